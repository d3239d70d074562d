// Where the host waits for the device, and where it must not.
#include "cuda_util.h"
#include "runtime/numerics.h"

namespace deft {
namespace {

class CudaSync : public GpuTest {};

template <class F>
void expect_forbidden(F&& f, const std::string& what, const std::string& where) {
  SyncGuard guard(SyncPolicy::forbid);
  std::string text = message_of<SyncError>(f);
  EXPECT_EQ(text.rfind(what, 0), 0u) << what << " does not begin: " << text;
  EXPECT_NE(text.find(where), text.npos) << where << " is not in: " << text;
  EXPECT_NE(text.find("SyncGuard"), text.npos) << text;
}

TEST_F(CudaSync, ForbiddenOnesNameTheLine) {
  Tensor x = ones({3}, on_gpu()), mask = x > 0, one = ones({}, on_gpu());
  expect_forbidden([&] { one.item(); }, "item", HERE());
  expect_forbidden([&] { nonzero(x); }, "nonzero", HERE());
  expect_forbidden([&] { masked_select(x, mask); }, "masked_select", HERE());
  expect_forbidden([&] { unique(x); }, "unique", HERE());
  expect_forbidden([&] { x.index({mask}); }, "", HERE());
  expect_forbidden([&] { x.to(kCPU); }, "copy to pageable memory", HERE());
  expect_forbidden([&] { zeros({3}).to(kCUDA); }, "copy from pageable memory", HERE());
  expect_forbidden([&] { synchronize(kCUDA); }, "synchronize", HERE());
  expect_forbidden([&] { x.to_string(); }, "printing", "");
  expect_forbidden([&] { x.to_vector<float>(); }, "to_vector", "");
  // Nothing was broken by the refusals.
  EXPECT_VALUES(x, 1, 1, 1);
  EXPECT_EQ(nonzero(x).sizes(), (Shape{3, 1}));
}

TEST_F(CudaSync, GuardsNest) {
  Tensor one = ones({}, on_gpu());
  SyncGuard outer(SyncPolicy::forbid);
  EXPECT_THROW(one.item(), SyncError);
  {
    SyncGuard inner(SyncPolicy::allow);
    EXPECT_EQ(one.item(), 1);
  }
  EXPECT_THROW(one.item(), SyncError);
}

TEST_F(CudaSync, LogsPlacesAndCounts) {
  Tensor one = ones({}, on_gpu());
  clear_sync_log();
  int64_t before = sync_count();
  std::string line;
  {
    SyncGuard guard(SyncPolicy::log);
    for (int i = 0; i < 3; ++i) one.item(), line = HERE();
    nonzero(one);
  }
  one.item();  // not logged
  EXPECT_EQ(sync_count() - before, 5);
  std::vector<SyncRecord> log = sync_log();
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[0].what, "item");
  EXPECT_EQ(log[0].count, 3);
  EXPECT_NE(to_string(log[0].site).find(line), std::string::npos) << to_string(log[0].site);
  EXPECT_EQ(log[1].what, "nonzero");
  clear_sync_log();
  EXPECT_TRUE(sync_log().empty());
}

TEST_F(CudaSync, TheLogIsBounded) {
  clear_sync_log();
  for (int i = 0; i < 3 * kSyncLogLines; ++i) {
    SyncGuard guard(SyncPolicy::log);
    count_sync(("place " + std::to_string(i)).c_str(), Site::current());
  }
  std::vector<SyncRecord> log = sync_log();
  EXPECT_LE(log.size(), static_cast<size_t>(kSyncLogLines));
  int64_t total = 0;
  for (const SyncRecord& r : log) total += r.count;
  EXPECT_EQ(total, 3 * kSyncLogLines);
  clear_sync_log();
}

TEST_F(CudaSync, HostTensorsNeverSync) {
  SyncGuard guard(SyncPolicy::forbid);
  Tensor x = ones({3});
  EXPECT_EQ(x.sum().item(), 3);
  EXPECT_EQ(nonzero(x).numel(), 3);
  EXPECT_FALSE(x.to_string().empty());
}

// One step from the inputs to the update, first and later ones alike.
template <class M>
void expect_no_sync(M& model, const Tensor& x, const Tensor& target) {
  int64_t before = sync_count();
  Tensor loss;
  {
    SyncGuard guard(SyncPolicy::forbid);
    for (int i = 0; i < 3; ++i) {
      loss = model.loss(x, target);
      loss.backward();
      model.step(0.05);
    }
  }
  EXPECT_EQ(sync_count(), before);
  EXPECT_TRUE(std::isfinite(loss.item()));
}

TEST_F(CudaSync, NoneInTrainingAnMlp) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    Mlp model(kCUDA, t);
    expect_no_sync(model, sample_on(kCUDA, {8, 16}, 1, t), classes(kCUDA, {8}, 5));
  }
}

TEST_F(CudaSync, NoneInTrainingACnn) {
  for (DType t : {DType::f32, DType::bf16}) {
    Cnn model(kCUDA, t);
    expect_no_sync(model, sample_on(kCUDA, {4, 3, 8, 8}, 1, t), classes(kCUDA, {4}, 5));
  }
}

TEST_F(CudaSync, NoneInTrainingATransformerBlock) {
  Block model(kCUDA, DType::f32);
  expect_no_sync(model, classes(kCUDA, {2, 6}, 11), classes(kCUDA, {2, 6}, 11));
}

TEST_F(CudaSync, NoneInSecondGradientsAndInference) {
  Tensor x = sample_on(kCUDA, {4, 4}).requires_grad_();
  SyncGuard guard(SyncPolicy::forbid);
  Tensor y = (x.tanh() * x).sum();
  Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
  g.square().sum().backward();
  inference_mode([&] { return sort(softmax(matmul(x, x), -1))[0]; });
}

}  // namespace
}  // namespace deft
