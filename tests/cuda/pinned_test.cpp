// Pinned memory and copies that nobody waits for.
#include "cuda_util.h"
#include "ops/copy.h"

namespace deft {
namespace {

class CudaPinned : public GpuTest {};

TEST_F(CudaPinned, IsOrdinaryHostMemory) {
  Tensor x = sample({3, 5}, 1, DType::f32), p = x.pin_memory();
  EXPECT_FALSE(x.is_pinned());
  EXPECT_TRUE(p.is_pinned());
  EXPECT_TRUE(p.device().is_cpu());
  EXPECT_EQ(values(p), values(x));
  EXPECT_TRUE(p.pin_memory().is_same(p));
  EXPECT_TRUE(p.t().is_pinned());
  EXPECT_EQ(values(p * 2), values(x * 2));
  p.add_(1);
  EXPECT_EQ(values(p), values(x + 1));
  EXPECT_EQ(values(x.t().pin_memory()), values(x.t()));
  EXPECT_EQ(values(zeros({0, 3}).pin_memory()), values(zeros({0, 3})));
  EXPECT_THROW(x.to(kCUDA).pin_memory(), DeviceError);
  EXPECT_FALSE(x.to(kCUDA).is_pinned());
}

TEST_F(CudaPinned, NothingIsLeft) {
  expect_leaves_nothing([] {
    Tensor p = sample({100000}).pin_memory();
    Tensor d = p.to(kCUDA, true);
    p = Tensor();
    Tensor back = d.to(kCPU, true);
    EXPECT_TRUE(back.is_pinned());
    synchronize(kCUDA);
  });
}

TEST_F(CudaPinned, NoWaitingOnTheWay) {
  Tensor x = sample({257, 33}, 1, DType::f32), p = x.pin_memory(), d, back;
  {
    SyncGuard guard(SyncPolicy::forbid);
    d = p.to(kCUDA, true);
    back = (d * 2).to(kCPU, true);
    EXPECT_TRUE(back.is_pinned());
  }
  EXPECT_EQ(values(back), values(x * 2));
  EXPECT_EQ(values(d), values(x));
}

TEST_F(CudaPinned, CopyAsyncGivesATicket) {
  Tensor p = full({1 << 20}, 7).pin_memory(), d = zeros({1 << 20}, on_gpu());
  uint32_t version = d.version();
  Event done = copy_async(d, p);
  EXPECT_GT(d.version(), version);
  done.synchronize();
  EXPECT_TRUE(done.query());
  expect_all(d, 7);
}

TEST_F(CudaPinned, ReadingACopyUnderWayWaits) {
  Tensor p = zeros({kBusyElements}).pin_memory();
  Tensor x = busy(zeros({kBusyElements}, on_gpu()));
  Event done = copy_async(p, x);
  bool running = !done.query();
  const float* v = p.data<float>();
  EXPECT_TRUE(done.query());
  EXPECT_EQ(v[0], kBusySteps);
  EXPECT_EQ(v[kBusyElements - 1], kBusySteps);
  EXPECT_TRUE(running) << "the copy was done too early to show anything";
  // Ops of the host wait as well.
  p.zero_();
  copy_async(p, busy(x));
  expect_all(p + 0, 2 * kBusySteps);
}

TEST_F(CudaPinned, WritingTheSourceOfACopyUnderWayWaits) {
  Tensor p = full({1 << 20}, 5).pin_memory(), d = zeros({1 << 20}, on_gpu());
  Stream s = Stream::create(kCUDA);
  {
    StreamGuard guard(s);
    Tensor late = busy(zeros({kBusyElements}, on_gpu()));
    copy_async(d, p);
  }
  p.data<float>()[0] = 9;
  EXPECT_EQ(d[0].item<float>(), 5);
  {
    StreamGuard guard(s);
    Tensor late = busy(zeros({kBusyElements}, on_gpu()));
    copy_async(d, p);
  }
  p.fill_(11);
  EXPECT_EQ(d[0].item<float>(), 9);
  EXPECT_EQ(d[1].item<float>(), 5);
}

TEST_F(CudaPinned, ADroppedSourceIsHeld) {
  Tensor d = zeros({1 << 20}, on_gpu());
  {
    StreamGuard guard(Stream::create(kCUDA));
    Tensor late = busy(zeros({kBusyElements}, on_gpu()));
    Tensor p = full({1 << 20}, 5).pin_memory();
    copy_async(d, p);
  }
  // Had the memory been handed out again, this would overwrite what the copy reads.
  std::vector<Tensor> others;
  for (int i = 0; i < 4; ++i) others.push_back(full({1 << 20}, 77).pin_memory());
  expect_all(d, 5);
}

TEST_F(CudaPinned, ADroppedTargetIsHeld) {
  {
    Tensor p = zeros({kBusyElements}).pin_memory();
    copy_async(p, busy(zeros({kBusyElements}, on_gpu())));
  }
  Tensor other = full({kBusyElements}, 3).pin_memory();
  synchronize(kCUDA);
  expect_all(other, 3);
}

TEST_F(CudaPinned, PartsAndLayouts) {
  Tensor x = sample({6, 8}, 1, DType::f32), p = x.pin_memory(), d = zeros({8, 6}, on_gpu());
  Tensor transposed = d.t();
  copy_async(transposed, p);
  EXPECT_EQ(values(transposed), values(x));
  Tensor part = d.narrow(0, 2, 3);
  copy_async(part, p.t().narrow(0, 0, 3));
  EXPECT_EQ(values(d.narrow(0, 2, 3)), values(x.t().narrow(0, 0, 3)));
  Tensor back = zeros({6, 8}).pin_memory();
  copy_async(back, d.t());
  EXPECT_EQ(values(back), values(d.t()));
}

TEST_F(CudaPinned, PageableMemoryWorksAndCounts) {
  Tensor x = sample({1000}, 1, DType::f32), d = zeros({1000}, on_gpu());
  int64_t before = sync_count();
  copy_async(d, x);
  EXPECT_EQ(sync_count(), before + 1);
  EXPECT_EQ(values(d), values(x));
}

TEST_F(CudaPinned, Refuses) {
  Tensor d = zeros({3}, on_gpu()), w = zeros({3}, on_gpu()).requires_grad_();
  EXPECT_THROW(copy_async(d, zeros({4})), ShapeError);
  EXPECT_THROW(copy_async(d, zeros({3}, DType::f64)), Error);
  EXPECT_THROW(copy_async(d, Tensor()), ValueError);
  EXPECT_THROW(copy_async(w, zeros({3})), GradError);
  NoGradGuard off;
  EXPECT_NO_THROW(copy_async(w, zeros({3})));
}

TEST_F(CudaPinned, AWriteAfterTheCopyIsSeenByOtherStreams) {
  Stream a = Stream::create(kCUDA);
  Tensor x;
  {
    StreamGuard guard(a);
    x = ones({kBusyElements}).pin_memory().to(kCUDA);
    x.copy_(busy(zeros({kBusyElements}, on_gpu())));
  }
  bool running = !a.query();
  expect_all(x + 0, kBusySteps);
  EXPECT_TRUE(running) << "the stream was done too early to show anything";
}

TEST_F(CudaPinned, CopiesThroughOneBufferKeepTheirOrder) {
  Stream a = Stream::create(kCUDA), b = Stream::create(kCUDA);
  Tensor p, d;
  {
    StreamGuard guard(a);
    p = busy(zeros({kBusyElements}, on_gpu())).to(kCPU, true);
  }
  {
    StreamGuard guard(b);
    d = p.to(kCUDA);
    copy_async(p, zeros({kBusyElements}, on_gpu()));
  }
  expect_all(d, kBusySteps);
  expect_all(p, 0);
}

TEST_F(CudaPinned, ATicketForAStridedTargetComesLast) {
  Tensor p = full({1 << 20}, 3).pin_memory(), room = zeros({1 << 20, 2}, on_gpu());
  Tensor target = room.select(1, 1);
  Stream a = Stream::create(kCUDA);
  StreamGuard guard(a);
  Tensor before = busy(zeros({kBusyElements}, on_gpu()));
  Event done = copy_async(target, p);
  EXPECT_FALSE(done.query()) << "the work before it was done too early to show anything";
  {
    SyncGuard forbid(SyncPolicy::forbid);
    if (!done.query()) {
      EXPECT_THROW(done.synchronize(), SyncError);
    }
  }
  done.synchronize();
  expect_all(room.select(1, 1), 3);
  expect_all(room.select(1, 0), 0);
}

TEST_F(CudaPinned, CachedBlocksCanBeGivenBack) {
  { Tensor p = zeros({1 << 20}).pin_memory(); }
  EXPECT_GE(trim_device_memory(kCPU), size_t{4} << 20);
  EXPECT_EQ(trim_device_memory(kCPU), 0u);
}

TEST_F(CudaPinned, AFaultComesOutWhenTheHostReads) {
  Tensor table = sample({5, 4}).to(f32).to(kCUDA), index = tensor<int64_t>({1, 9}).to(kCUDA);
  auto read = [&] { return table.index_select(0, index).to(kCPU, true).data<float>()[0]; };
  EXPECT_THROW(read(), IndexError);
}

TEST_F(CudaPinned, HistoryIsNotLostSilently) {
  Tensor x = sample({3}).to(f32).requires_grad_();
  EXPECT_THROW(x.pin_memory(), GradError);
  EXPECT_TRUE(x.detach().pin_memory().is_pinned());
}

}  // namespace
}  // namespace deft
