// Attention in one kernel on a GPU, against double precision on the host.
#include "cuda_util.h"
#include "ops/case_checks.h"

namespace deft {
namespace {

class CudaAttention : public GpuTest {};

using testing::same_bits;

constexpr double kInf = std::numeric_limits<double>::infinity();

// What goes in, on the host: [batch, heads, length, features] and the gradient of the result.
struct Inputs {
  Tensor q, k, v, g, mask;
  bool causal = false;
  double dropout = 0;
};
struct Results {
  Tensor o, dq, dk, dv;
  std::vector<std::pair<const char*, Tensor>> all() const { return {{"o", o}, {"dq", dq}, {"dk", dk}, {"dv", dv}}; }
};

// Memory is [batch, length, heads, features], as projections leave it.
Tensor heads(IntList sizes, uint64_t seed, DType dtype) {
  Shape s(sizes);
  return sample({s[0], s[2], s[1], s[3]}, seed, dtype).transpose(1, 2);
}
Inputs inputs(int64_t queries, int64_t keys, int64_t features, DType dtype, int64_t batch = 2, int64_t count = 3) {
  Inputs in;
  in.q = (heads({batch, count, queries, features}, 1, DType::f64) * 3).to(dtype);
  in.k = heads({batch, count, keys, features}, 2, dtype);
  in.v = heads({batch, count, keys, features}, 3, dtype);
  in.g = heads({batch, count, queries, features}, 4, dtype);
  return in;
}

Results run(const Inputs& in, Device device, DType dtype) {
  auto leaf = [&](const Tensor& t) { return t.detach().to(dtype).to(device).requires_grad_(); };
  Tensor q = leaf(in.q), k = leaf(in.k), v = leaf(in.v), mask;
  if (in.mask.defined()) mask = (in.mask.dtype() == boolean ? in.mask : in.mask.to(dtype)).to(device);
  manual_seed(5);
  Tensor o = scaled_dot_product_attention(q, k, v, mask, in.dropout, in.causal);
  o.backward(in.g.to(dtype).to(device));
  return {host(o), host(q.grad()), host(k.grad()), host(v.grad())};
}

double most(const Tensor& t) { return t.numel() ? t.to(f64).abs().amax().item<double>() : 0; }

// Weights, their gradients and the results are rounded to 16 bits: half an eps each, of terms that add up to at most
// the largest value, or come close to the largest result.
void expect_exact(const Inputs& in, const std::string& what) {
  const DType dtype = in.q.dtype();
  const Results got = run(in, kCUDA, dtype), want = run(in, kCPU, f64);
  const double eps = epsilon_of(dtype), factor = in.dropout < 1 ? 1 / (1 - in.dropout) : 1;
  const auto given = got.all(), expected = want.all();
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& [name, x] = given[i];
    const Tensor& y = expected[i].second;
    ASSERT_EQ(x.dtype(), dtype);
    ASSERT_EQ(x.sizes(), y.sizes());
    const double scale = i == 0 ? most(in.v) * factor : 4 * most(y) + most(in.g) * factor / 8;
    const double error = x.numel() ? (x.to(f64) - y).abs().amax().item<double>() : 0;
    const bool finite = !isnan(x).any().item<bool>();
    EXPECT_TRUE(finite && error <= eps * scale) << what << " " << name << ": " << error << " of " << scale * eps;
  }
}

std::string text(const char* kind, int64_t queries, int64_t keys, int64_t features) {
  return fmt::format("{} {} x {} x {}", kind, queries, keys, features);
}

Tensor flags(IntList sizes, uint64_t seed) { return gt(sample(sizes, seed), -0.4); }
// Every third query sees nothing.
Tensor blinding(int64_t queries, int64_t keys) {
  Tensor seen = gt(sample({queries, 1}, 9), kInf);
  Tensor m = flags({2, 1, queries, keys}, 8);
  for (int64_t i = 0; i < queries; ++i) seen.data<bool>()[i] = i % 3 != 0;
  return logical_and(m, seen);
}

TEST_F(CudaAttention, LengthsAndFeatures) {
  for (int64_t n : {1, 7, 64, 100, 128, 257, 512}) {
    for (int64_t d : {8, 40, 64, 80, 128}) {
      for (DType t : {bf16, f16}) {
        Inputs in = inputs(n, n, d, t);
        expect_exact(in, text("plain", n, n, d));
        in.causal = true;
        expect_exact(in, text("causal", n, n, d));
      }
    }
  }
}

TEST_F(CudaAttention, Masks) {
  for (int64_t n : {1, 7, 64, 100, 257}) {
    for (int64_t d : {40, 64, 128}) {
      const int64_t keys = n + 3;
      Inputs in = inputs(n, keys, d, bf16);
      in.mask = flags({2, 1, 1, keys}, 5);
      expect_exact(in, text("same keys for all queries", n, keys, d));
      in.mask = flags({2, 3, n, keys}, 6);
      expect_exact(in, text("flags", n, keys, d));
      in.mask = flags({n, 1}, 6);
      expect_exact(in, text("flags of queries", n, keys, d));
      in.mask = flags({keys, n}, 6).t();
      expect_exact(in, text("transposed flags", n, keys, d));
      in.mask = blinding(n, keys);
      expect_exact(in, text("blind queries", n, keys, d));
      in.mask = (sample({3, n, keys}, 7) * 2).to(bf16);
      expect_exact(in, text("added numbers", n, keys, d));
      in.mask = where(flags({1, keys}, 7), sample({n, keys}, 8), -kInf).to(bf16);
      expect_exact(in, text("added numbers with -inf", n, keys, d));
    }
  }
}

TEST_F(CudaAttention, MoreHeadsThanTheCardHoldsAtOnce) {  // other tiles
  for (int64_t d : {64, 128}) {
    Inputs in = inputs(130, 200, d, bf16, 40, 16);
    expect_exact(in, text("plain", 130, 200, d));
    in.causal = true;
    expect_exact(in, text("causal", 130, 200, d));
    in.causal = false;
    in.mask = flags({40, 1, 1, 200}, 5);
    expect_exact(in, text("mask", 130, 200, d));
  }
}

TEST_F(CudaAttention, QueriesWithoutKeysGiveZeros) {
  Inputs in = inputs(70, 90, 64, bf16);
  in.mask = blinding(70, 90);
  const Results r = run(in, kCUDA, bf16);
  for (const Tensor& t : {r.o, r.dq})
    for (int64_t i = 0; i < 70; i += 3) EXPECT_EQ(most(t.narrow(-2, i, 1)), 0) << i;
  Inputs none = inputs(70, 0, 64, bf16);
  EXPECT_EQ(most(run(none, kCUDA, bf16).o), 0);
}

TEST_F(CudaAttention, HiddenKeysMayHoldAnything) {
  Inputs in = inputs(70, 90, 64, bf16);
  in.mask = flags({2, 1, 1, 90}, 5);
  const Results want = run(in, kCUDA, bf16);
  const Tensor hidden = logical_not(in.mask.transpose(-2, -1));
  in.k = in.k.masked_fill(hidden, std::nan(""));
  in.v = in.v.masked_fill(hidden, kInf);
  const Results got = run(in, kCUDA, bf16);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(same_bits(got.all()[i].second, want.all()[i].second)) << want.all()[i].first;
}

TEST_F(CudaAttention, AnyStridesAndSizes) {
  // Odd sizes and addresses: 8 values at once cannot be read.
  for (int64_t d : {1, 37, 75, 127}) {
    Inputs in = inputs(50, 70, d + 3, f16);
    for (Tensor* t : {&in.q, &in.k, &in.v, &in.g}) *t = t->narrow(-1, 1, d);
    expect_exact(in, text("odd", 50, 70, d));
    // The same as views on the device: detach() and to() leave strides alone only there.
    auto on = [&](const Tensor& t) { return t.to(kCUDA); };
    Inputs wide = inputs(50, 70, d + 3, f16);
    Tensor q = on(wide.q).narrow(-1, 1, d), k = on(wide.k).narrow(-1, 1, d), v = on(wide.v).narrow(-1, 1, d);
    Tensor dense = scaled_dot_product_attention(on(in.q), on(in.k), on(in.v));
    EXPECT_TRUE(same_bits(host(scaled_dot_product_attention(q, k, v)), host(dense))) << d;
  }
  // Heads of one projection, keys shared by all heads, features of values other than those of keys.
  Tensor x = sample({2, 100, 3 * 4 * 64}, 1, bf16).to(kCUDA);
  std::vector<Tensor> parts = x.chunk(3, -1);
  auto split = [](const Tensor& t) { return t.reshape({2, 100, 4, 64}).transpose(1, 2); };
  Tensor dense = scaled_dot_product_attention(split(parts[0]).contiguous(), split(parts[1]).contiguous(),
                                              split(parts[2]).contiguous());
  Tensor o = scaled_dot_product_attention(split(parts[0]), split(parts[1]), split(parts[2]));
  EXPECT_TRUE(same_bits(host(o), host(dense)));
  Inputs shared = inputs(64, 90, 64, bf16);
  shared.k = sample({90, 64}, 5, bf16);
  shared.v = sample({2, 1, 90, 40}, 6, bf16);
  shared.g = sample({2, 3, 64, 40}, 7, bf16);
  expect_exact(shared, "shared keys");
}

TEST_F(CudaAttention, DropoutIsThatOfTheHost) {
  for (int64_t keys : {128, 90, 67}) {
    for (int64_t d : {64, 128}) {
      Inputs in = inputs(70, keys, d, bf16);
      in.dropout = 0.3;
      expect_exact(in, text("dropout", 70, keys, d));
      in.mask = flags({2, 1, 1, keys}, 5);
      expect_exact(in, text("dropout and a mask", 70, keys, d));
    }
  }
  Inputs all = inputs(9, 20, 64, bf16);
  all.dropout = 1;
  EXPECT_EQ(most(run(all, kCUDA, bf16).o), 0);
}

TEST_F(CudaAttention, OnlyWantedGradients) {
  Inputs in = inputs(70, 90, 64, bf16);
  const Results want = run(in, kCUDA, bf16);
  for (int wanted = 1; wanted < 7; ++wanted) {
    Tensor t[] = {in.q.to(kCUDA), in.k.to(kCUDA), in.v.to(kCUDA)};
    for (int i = 0; i < 3; ++i) t[i].requires_grad_(wanted >> i & 1);
    scaled_dot_product_attention(t[0], t[1], t[2]).backward(in.g.to(kCUDA));
    const Tensor* grads[] = {&want.dq, &want.dk, &want.dv};
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(t[i].grad().defined(), wanted >> i & 1) << wanted;
      if (wanted >> i & 1) {
        EXPECT_TRUE(same_bits(host(t[i].grad()), *grads[i])) << wanted << " " << i;
      }
    }
  }
}

TEST_F(CudaAttention, TheSameBitsEveryTime) {
  Inputs in = inputs(300, 500, 64, bf16, 4, 8);
  in.dropout = 0.1;
  const Results a = run(in, kCUDA, bf16), b = run(in, kCUDA, bf16);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(a.all()[i].second, b.all()[i].second)) << a.all()[i].first;
}

TEST_F(CudaAttention, ScoresTakeNoMemory) {
  constexpr int64_t kLength = 2048, kHeads = 8, kFeatures = 64;
  auto make = [&] { return rand({1, kHeads, kLength, kFeatures}, on_gpu(bf16)).requires_grad_(); };
  Tensor q = make(), k = make(), v = make();
  reset_peak_memory(kCUDA);
  const int64_t start = device_memory_use(kCUDA).peak_bytes;
  scaled_dot_product_attention(q, k, v, {}, 0, true).sum().backward();
  const int64_t operand = kHeads * kLength * kFeatures * 2, scores = kHeads * kLength * kLength * 2;
  const int64_t used = device_memory_use(kCUDA).peak_bytes - start;
  EXPECT_LT(used, 8 * operand);  // the result and its gradient, three gradients, two numbers for each query
  EXPECT_LT(used, scores);
}

TEST_F(CudaAttention, NegativeAndLargeScales) {
  Inputs in = inputs(70, 90, 64, bf16);
  for (double scale : {-0.2, 0.0, 2.0}) {
    Tensor want = scaled_dot_product_attention(in.q.to(f64), in.k.to(f64), in.v.to(f64), {}, 0, false, scale);
    Tensor got = scaled_dot_product_attention(in.q.to(kCUDA), in.k.to(kCUDA), in.v.to(kCUDA), {}, 0, false, scale);
    const double error = (host(got).to(f64) - want).abs().amax().item<double>();
    EXPECT_TRUE(error <= epsilon_of(bf16) * most(in.v)) << scale << ": " << error;
  }
}

}  // namespace
}  // namespace deft
