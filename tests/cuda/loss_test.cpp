// Cross entropy on a GPU: rows that begin and end between multiples of 16 bytes, and 16-bit logits under autocast.
#include "amp/autocast.h"
#include "cuda_util.h"

namespace deft {
namespace {

class CudaLoss : public GpuTest {};

struct Result {
  Tensor loss, gradient;
};

Result run(const Tensor& logits, const Tensor& target, const ClassLossOptions& options = {}) {
  Tensor x = logits.detach().requires_grad_();
  Tensor loss = cross_entropy(x, target, options);
  (options.reduction == Reduction::none ? (loss * loss).sum() : loss).backward();
  return {host(loss), host(x.grad())};
}

void expect_close(const Tensor& found, const Tensor& want, double tolerance, const std::string& what) {
  EXPECT_EQ(found.dtype(), want.dtype()) << what;
  const double error = (found - want).abs().amax().item(), size = want.abs().amax().item();
  EXPECT_LE(error, tolerance * size) << what;
}

TEST_F(CudaLoss, RowsOfAnyLength) {
  const ClassLossOptions kinds[] = {{},
                                    {.reduction = Reduction::sum},
                                    {.reduction = Reduction::none},
                                    {.ignore_index = 1, .label_smoothing = 0.1},
                                    {.weight = sample({1}, 1), .reduction = Reduction::none, .label_smoothing = 0.2}};
  for (int64_t classes : {2, 7, 8, 31, 257, 1023, 5001}) {
    for (ClassLossOptions o : kinds) {
      const std::string what = std::to_string(classes) + " classes, smoothing " + std::to_string(o.label_smoothing);
      const Tensor x = randn({9, classes}) * 3, target = randint(0, classes, {9});
      if (o.weight.defined()) o.weight = rand({classes});
      const Result want = run(x, target, o);
      if (o.weight.defined()) o.weight = o.weight.to(kCUDA);
      const Result found = run(x.to(kCUDA), target.to(kCUDA), o);
      expect_close(found.loss, want.loss, 1e-5, what);
      expect_close(found.gradient, want.gradient, 1e-5, what + ", gradient");
    }
  }
}

// The logits are a view that begins in the middle of 16 bytes, their gradient is not.
TEST_F(CudaLoss, LogitsThatBeginBetween) {
  const Tensor all = randn({12 * 77 + 3}), target = randint(0, 77, {12});
  auto rows = [](const Tensor& t) { return t.narrow(0, 3, 12 * 77).view({12, 77}); };
  const Result want = run(rows(all), target), found = run(rows(all.to(kCUDA)), target.to(kCUDA));
  expect_close(found.loss, want.loss, 1e-5, "loss");
  expect_close(found.gradient, want.gradient, 1e-5, "gradient");
}

// The loss is that of the logits in f32, and the gradient that of their cast, but for the order of sums.
TEST_F(CudaLoss, SixteenBitLogitsUnderAutocast) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = (randn({33, 1001}) * 3).to(dtype).to(kCUDA), target = randint(0, 1001, {33}).to(kCUDA);
    Tensor wide = x.detach().requires_grad_();
    const Tensor want = cross_entropy(wide.to(DType::f32), target);
    want.backward();
    AutocastGuard autocast(dtype);
    Tensor narrow = x.detach().requires_grad_();
    const Tensor loss = cross_entropy(narrow, target);
    loss.backward();
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_EQ(narrow.grad().dtype(), dtype);
    expect_close(host(loss), host(want), 1e-6, "loss");
    expect_close(host(narrow.grad()), host(wide.grad()), dtype == DType::bf16 ? 0x1p-8 : 0x1p-11, "gradient");
  }
}

}  // namespace
}  // namespace deft
