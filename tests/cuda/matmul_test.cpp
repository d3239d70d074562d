// Products on a GPU whose rows do not lie, or do not end, at multiples of 16 bytes: large ones are made from copies.
#include "cuda_util.h"
#include "ops/packed_linear.h"
#include "runtime/numerics.h"

namespace deft {
namespace {

class CudaMatmul : public GpuTest {};

// Freed memory is full of NaN: copies must not read what lies behind their rows.
void poison() {
  Tensor all = full({64 << 20}, NAN, on_gpu());
  synchronize(kCUDA);
}

void expect_close(const Tensor& found, const Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(found.sizes(), want.sizes()) << what;
  const Tensor difference = (found.to(DType::f32) - want).abs();
  EXPECT_LE(difference.amax().item(), tolerance * want.abs().amax().item()) << what;
}

struct Case {
  const char* name;
  int64_t m, n, k;
};
constexpr Case kCases[] = {{"odd n", 1024, 2049, 1024},
                           {"odd k", 1024, 2048, 1027},
                           {"odd m", 1025, 2048, 1024},
                           {"all odd", 1023, 2051, 1029},
                           {"even, no multiple of 8", 1026, 2052, 1028}};

TEST_F(CudaMatmul, RowsOfAnyLength) {
  NoGradGuard no_grad;
  for (const Case& c : kCases) {
    for (int transposed = 0; transposed < 4; ++transposed) {
      const std::string what = std::string(c.name) + ", transposed " + std::to_string(transposed);
      Tensor a = transposed & 1 ? randn({c.k, c.m}, on_gpu()).t() : randn({c.m, c.k}, on_gpu());
      Tensor b = transposed & 2 ? randn({c.n, c.k}, on_gpu()).t() : randn({c.k, c.n}, on_gpu());
      const Tensor x = a.to(DType::bf16), w = b.to(DType::bf16);
      const Tensor want = matmul(x.to(DType::f32), w.to(DType::f32));
      poison();
      expect_close(matmul(x, w), want, 0.005, what);
    }
  }
}

TEST_F(CudaMatmul, BiasOfAnyLength) {
  NoGradGuard no_grad;
  const Tensor x = randn({1024, 1027}, on_gpu(DType::bf16)), w = randn({2049, 1027}, on_gpu(DType::bf16));
  const Tensor bias = randn({2049}, on_gpu(DType::bf16)) * 100;
  const Tensor want = linear(x.to(DType::f32), w.to(DType::f32), bias.to(DType::f32));
  poison();
  expect_close(linear(x, w, bias), want, 0.005, "linear");
}

TEST_F(CudaMatmul, ViewsThatBeginBetween) {
  NoGradGuard no_grad;
  const Tensor whole = randn({1025, 2057}, on_gpu(DType::bf16)), w = randn({1024, 2048}, on_gpu(DType::bf16));
  const Tensor x = whole.narrow(1, 3, 1024).narrow(0, 1, 1024);
  const Tensor want = matmul(x.to(DType::f32), w.to(DType::f32));
  poison();
  expect_close(matmul(x, w), want, 0.005, "view");
}

// Without room for copies the product is made as its operands lie; but not where the bits of the result must stay.
TEST_F(CudaMatmul, WithoutMemoryForCopies) {
  NoGradGuard no_grad;
  const Tensor x = randn({4096, 1024}, on_gpu(DType::bf16)), w = randn({8193, 1024}, on_gpu(DType::bf16));
  const int64_t result = x.size(0) * w.size(0) * 2;
  const Tensor want = matmul(x, w.t());
  for (bool same_bits : {false, true}) {
    set_deterministic(same_bits);
    trim_device_memory(kCUDA);
    const int64_t cap = device_memory_use(kCUDA).reserved_bytes + result + result / 2;
    set_device_memory_limit(kCUDA, static_cast<size_t>(cap));
    Tensor found;
    if (same_bits) {
      EXPECT_THROW(matmul(x, w.t()), OutOfMemoryError);
    } else {
      found = matmul(x, w.t());
    }
    set_device_memory_limit(kCUDA, 0);
    set_deterministic(false);
    if (found.defined()) expect_close(found, want.to(DType::f32), 0.01, "as they lie");
  }
}

TEST_F(CudaMatmul, Tf32TooIsMadeFromCopies) {
  NoGradGuard no_grad;
  const Tensor a = randn({1024, 1027}, on_gpu()), b = randn({1027, 2049}, on_gpu());
  const Tensor want = matmul(a, b);
  const bool before = allow_tf32();
  set_allow_tf32(true);
  poison();
  expect_close(matmul(a, b), want, 0.002, "tf32");
  set_allow_tf32(before);
}

// f32 from 16-bit inputs: nearer to the sum than what is rounded to 16 bits.
TEST_F(CudaMatmul, WideResults) {
  NoGradGuard no_grad;
  for (const Case& c : {Case{"small", 33, 47, 65}, Case{"all odd", 1023, 2051, 1029}}) {
    for (DType dtype : {DType::bf16, DType::f16}) {
      const Tensor x = randn({c.m, c.k}, on_gpu(dtype)), w = randn({c.n, c.k}, on_gpu(dtype));
      const Tensor want = linear(x.to(DType::f32), w.to(DType::f32));
      FusedLinear::Params p{};
      p.wide_result = true;
      const Tensor found = call<FusedLinear>(Site::current(), p, x, w, Tensor(), Tensor());
      EXPECT_EQ(found.dtype(), DType::f32);
      expect_close(found, want, 1e-5, c.name);
      const Tensor more = randn({c.m, c.n}, on_gpu(DType::f32));
      expect_close(call<FusedLinear>(Site::current(), p, x, w, Tensor(), more), want + more, 1e-5, c.name);
    }
  }
}

TEST_F(CudaMatmul, WideResultsWithMore) {
  NoGradGuard no_grad;
  const Tensor x = randn({64, 96}, on_gpu(DType::bf16)), w = randn({32, 96}, on_gpu(DType::bf16));
  const Tensor bias = randn({32}, on_gpu(DType::bf16));
  FusedLinear::Params p{};
  p.wide_result = true;
  p.activation = FusedActivation::relu;
  const Tensor want = relu(linear(x.to(DType::f32), w.to(DType::f32), bias.to(DType::f32)));
  expect_close(call<FusedLinear>(Site::current(), p, x, w, bias, Tensor()), want, 0.005, "bias and relu");
  EXPECT_THROW(call<FusedLinear>(Site::current(), p, x, w, bias, want), ValueError);
  p.activation = FusedActivation::none;
  const Tensor sum = linear(x.to(DType::f32), w.to(DType::f32), bias.to(DType::f32)) + want;
  expect_close(call<FusedLinear>(Site::current(), p, x, w, bias, want), sum, 0.005, "bias and residual");
}

}  // namespace
}  // namespace deft
