// Products and convolutions with bias, residual and activation in one op, as compiled plans use them.
#include "core/op.h"
#include "cuda_util.h"
#include "ops/conv.h"
#include "ops/packed_linear.h"
#include "runtime/numerics.h"

namespace deft {
namespace {

class CudaFused : public GpuTest {
 protected:
  NoGradGuard no_grad_;
};

// Kernels are not timed in it: the first that cuDNN or cuBLASLt offers.
class Untimed {
 public:
  Untimed() { set_deterministic(true); }
  ~Untimed() { set_deterministic(false); }
};

constexpr FusedActivation kActivations[] = {FusedActivation::none,      FusedActivation::relu, FusedActivation::gelu,
                                            FusedActivation::gelu_tanh, FusedActivation::silu, FusedActivation::sigmoid,
                                            FusedActivation::tanh};

Tensor activated(FusedActivation a, const Tensor& x) {
  switch (a) {
    case FusedActivation::relu:
      return x.relu();
    case FusedActivation::gelu:
      return gelu(x);
    case FusedActivation::gelu_tanh:
      return gelu(x, GeluApproximation::tanh);
    case FusedActivation::silu:
      return silu(x);
    case FusedActivation::sigmoid:
      return x.sigmoid();
    case FusedActivation::tanh:
      return x.tanh();
    default:
      return x;
  }
}

Tensor wide(const Tensor& t) { return t.defined() ? t.to(kCPU).to(f64) : t; }

// From the same operands in f64: the sum before the activation, and the sum of its terms' absolute values.
struct Sums {
  Tensor sum, size;
  int64_t length;  // how many products are added up
};

// Terms are added in f32; a product that is rounded before the rest comes loses another half eps, as without fusion.
// No activation is steeper than 1.13. Kernels for 16-bit results take the hardware's tanh and exp, good to 2^-11.
void expect_fused(const Tensor& got, const Sums& s, FusedActivation a, const std::string& what) {
  const DType t = got.dtype();
  const bool half = size_of(t) == 2;
  const double eps = epsilon_of(t), add = t == f64 ? eps : epsilon_of(f32);
  const double rough = !half || a == FusedActivation::none || a == FusedActivation::relu ? 0 : 0x1p-11;
  Tensor want = activated(a, s.sum);
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  std::vector<double> g = values(host(got).contiguous()), w = values(want.contiguous());
  std::vector<double> sums = values(s.sum.contiguous()), sizes = values(s.size.contiguous());
  int failures = 0;
  for (size_t i = 0; i < g.size() && failures < 3; ++i) {
    double before = 1.13 * sizes[i] * (add * static_cast<double>(s.length + 3) + (half ? eps / 2 : 0));
    double after = (half ? eps / 2 : 8 * eps) * std::fabs(w[i]) + rough * std::max(1.0, std::fabs(sums[i]));
    double tiny = t == f16 ? 0x1p-24 : 0;  // below its normal numbers
    if (std::fabs(g[i] - w[i]) <= before + after + tiny) continue;
    ADD_FAILURE() << what << " " << name_of(t) << " activation " << static_cast<int>(a) << " at " << i << ": " << g[i]
                  << ", want " << w[i] << ", allowed " << before + after;
    ++failures;
  }
}

// --- convolutions

struct ConvCase {
  Shape x, w;
  ConvGeometry geometry;
  DType dtype = bf16;
  FusedActivation activation = FusedActivation::relu;
  bool bias = true, residual = true;
};

ConvGeometry geometry(int64_t stride, int64_t pad_h, int64_t pad_w, bool channels_last) {
  ConvGeometry g;
  g.stride = {stride, stride, 1};
  g.padding = {pad_h, pad_w, 0};
  g.channels_last = channels_last;
  return g;
}

struct ConvOperands {
  Tensor x, w, bias, residual;
};

Tensor scaled(const Shape& sizes, uint64_t seed, double scale, DType dtype) {
  return (sample(IntList(sizes.data(), static_cast<size_t>(sizes.size())), seed) * scale).to(dtype).to(kCUDA);
}

int64_t terms(const Shape& w) {
  int64_t n = 1;
  for (int i = 1; i < w.size(); ++i) n *= w[i];
  return n;
}

ConvOperands operands(const ConvCase& c) {
  ConvOperands o;
  o.x = scaled(c.x, 1, 1, c.dtype);
  o.w = scaled(c.w, 2, 1 / std::sqrt(static_cast<double>(terms(c.w))), c.dtype);
  if (c.bias) o.bias = scaled({c.w[0]}, 3, 1, c.dtype);
  Shape out{c.x[0], c.w[0]};
  for (int d = 0; d < 2; ++d) {
    auto i = static_cast<size_t>(d);
    out.push_back((c.x[d + 2] + 2 * c.geometry.padding[i] - c.w[d + 2]) / c.geometry.stride[i] + 1);
  }
  if (c.residual) o.residual = scaled(out, 4, 1, c.dtype);
  if (c.geometry.channels_last && o.residual.defined()) o.residual = o.residual.contiguous(MemoryFormat::channels_last);
  return o;
}

Sums sums_of(const ConvCase& c, const ConvOperands& o) {
  auto conv = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    const auto& g = c.geometry;
    return conv2d(x, w, b, {g.stride[0], g.stride[1]}, {g.padding[0], g.padding[1]});
  };
  Tensor x = wide(o.x).contiguous(), w = wide(o.w).contiguous(), b = wide(o.bias);
  Sums s{conv(x, w, b), conv(x.abs(), w.abs(), b.defined() ? b.abs() : b), terms(c.w)};
  if (o.residual.defined()) s.sum = s.sum + wide(o.residual), s.size = s.size + wide(o.residual).abs();
  return s;
}

Tensor run(const ConvCase& c, const ConvOperands& o) {
  return call<FusedConvolution>(Site::current(), {c.geometry, c.activation}, o.x, o.w, o.bias, o.residual);
}

void check(const ConvCase& c, const ConvOperands& o, const std::string& what) {
  Tensor y = run(c, o);
  EXPECT_TRUE(c.geometry.channels_last ? y.meta().is_channels_last() : y.is_contiguous()) << what;
  expect_fused(y, sums_of(c, o), c.activation, what);
}
// The input in the order of the result.
void check(const ConvCase& c, const std::string& what) {
  ConvOperands o = operands(c);
  if (c.geometry.channels_last) o.x = o.x.contiguous(MemoryFormat::channels_last);
  check(c, o, what);
}

TEST_F(CudaFused, ConvolutionsWithAllActivations) {
  Untimed untimed;
  for (DType t : {bf16, f16, f32})
    for (FusedActivation a : kActivations)
      check({{2, 16, 9, 11}, {24, 16, 3, 3}, geometry(1, 1, 1, true), t, a}, "3x3");
}

TEST_F(CudaFused, ConvolutionsWithAndWithoutEachPart) {
  Untimed untimed;
  for (DType t : {bf16, f16, f32, f64})
    for (bool bias : {false, true})
      for (bool residual : {false, true})
        for (FusedActivation a : {FusedActivation::none, FusedActivation::relu})
          check({{2, 32, 8, 8}, {40, 32, 1, 1}, geometry(1, 0, 0, true), t, a, bias, residual}, "1x1");
}

TEST_F(CudaFused, ConvolutionsOfOddSizesAndInPlainOrder) {
  Untimed untimed;
  for (DType t : {bf16, f16, f32})
    for (bool channels_last : {true, false}) {
      check({{1, 5, 7, 9}, {3, 5, 3, 3}, geometry(1, 1, 1, channels_last), t}, "5 channels");
      check({{3, 7, 13, 6}, {9, 7, 3, 1}, geometry(2, 1, 0, channels_last), t, FusedActivation::gelu}, "7 channels");
      check({{2, 16, 8, 8}, {16, 16, 3, 3}, geometry(2, 1, 1, channels_last), t, FusedActivation::silu}, "stride 2");
    }
}

TEST_F(CudaFused, TimedConvolutionsAreAsExact) {
  check({{4, 64, 14, 14}, {64, 64, 3, 3}, geometry(1, 1, 1, true)}, "3x3 relu residual");
  check({{4, 64, 14, 14}, {128, 64, 1, 1}, geometry(1, 0, 0, true), f16, FusedActivation::gelu}, "1x1 gelu residual");
  check({{4, 64, 14, 14}, {128, 64, 1, 1}, geometry(2, 0, 0, true), bf16, FusedActivation::none, true, false}, "plain");
}

// The result takes the place of the residual.
Tensor run_over_residual(const ConvCase& c, const ConvOperands& o) {
  Tensor out = o.residual.clone();
  const Tensor* inputs[] = {&o.x, &o.w, &o.bias, &out};
  const FusedConvolution::Params params{c.geometry, c.activation};
  KernelCall kernel_call{op_def<FusedConvolution>, inputs, 4, &out, &params};
  op_def<FusedConvolution>.kernel(DeviceType::cuda)(kernel_call);  // by the table: it is in the plug-in
  return out;
}

void check_over_residual(const ConvCase& c, const std::string& what) {
  ConvOperands o = operands(c);
  if (c.geometry.channels_last) o.x = o.x.contiguous(MemoryFormat::channels_last);
  Tensor first = run_over_residual(c, o), again = run_over_residual(c, o);
  EXPECT_EQ(first.ne(again).to(i64).sum().item(), 0) << what << " " << name_of(c.dtype);
  expect_fused(first, sums_of(c, o), c.activation, what);
}

TEST_F(CudaFused, ConvolutionsOverTheirResidual) {
  Untimed untimed;
  for (DType t : {bf16, f16, f32, f64})
    for (bool channels_last : {true, false})
      for (FusedActivation a : {FusedActivation::none, FusedActivation::relu, FusedActivation::gelu}) {
        check_over_residual({{2, 32, 9, 7}, {40, 32, 1, 1}, geometry(1, 0, 0, channels_last), t, a}, "1x1");
        check_over_residual({{3, 5, 9, 9}, {7, 5, 3, 3}, geometry(2, 1, 1, channels_last), t, a}, "odd");
        check_over_residual({{5, 24, 31, 29}, {136, 24, 1, 1}, geometry(1, 0, 0, channels_last), t, a},
                            "ends of tiles");
      }
}

// Each kernel is chosen by timing; where it runs over its residual, the blocks of the GPU must not see each other's
// results.
TEST_F(CudaFused, TimedConvolutionsOverTheirResidual) {
  for (DType t : {bf16, f16, f32})
    for (int64_t c : {64, 128, 256, 512}) {
      const int64_t side = 56 * 64 / c;
      check_over_residual({{8, c, side, side}, {4 * c, c, 1, 1}, geometry(1, 0, 0, true), t}, "end of a block");
    }
  check_over_residual({{8, 64, 56, 56}, {64, 64, 3, 3}, geometry(1, 1, 1, true)}, "3x3");
  check_over_residual({{8, 64, 28, 28}, {64, 64, 3, 3}, geometry(1, 1, 1, false), f32}, "3x3 in plain order");
}

TEST_F(CudaFused, EmptyBatches) {
  ConvCase c{{0, 16, 8, 8}, {8, 16, 3, 3}, geometry(1, 1, 1, false)};
  EXPECT_EQ(run(c, operands(c)).sizes(), (Shape{0, 8, 8, 8}));
}

// --- few channels with stride 2

const std::vector<ConvCase> kFirstLayers = {{{2, 3, 224, 224}, {64, 3, 7, 7}, geometry(2, 3, 3, true)},
                                            {{3, 3, 33, 31}, {16, 3, 3, 3}, geometry(2, 1, 1, true)},
                                            {{2, 1, 28, 28}, {8, 1, 5, 5}, geometry(2, 2, 2, true)},
                                            {{1, 4, 17, 40}, {32, 4, 3, 3}, geometry(2, 0, 0, true)},
                                            {{2, 2, 20, 21}, {8, 2, 4, 6}, geometry(2, 1, 2, true)},
                                            {{5, 3, 9, 9}, {24, 3, 9, 9}, geometry(2, 4, 0, true)}};

TEST_F(CudaFused, FirstLayers) {
  Untimed untimed;
  for (ConvCase c : kFirstLayers)
    for (DType t : {bf16, f16, f32}) {
      c.dtype = t;
      std::string what = "kernel " + std::to_string(c.w[2]) + " channels " + std::to_string(c.x[1]);
      check(c, what);
      c.residual = false;
      check(c, operands(c), what + ", plain order in");
      c.activation = FusedActivation::none;
      c.bias = false;
      ConvOperands o = operands(c);
      o.w = o.w.contiguous(MemoryFormat::channels_last);
      check(c, o, what + ", weight channels_last");
      c.bias = c.residual = true;
      c.activation = FusedActivation::relu;
    }
}

TEST_F(CudaFused, FirstLayersReadViewsAsTheyLie) {
  Untimed untimed;
  ConvCase c{{2, 3, 21, 30}, {16, 3, 7, 7}, geometry(2, 3, 3, true)};
  ConvOperands o = operands(c);
  Tensor wider = scaled({2, 4, 25, 64}, 7, 1, bf16);
  o.x = wider.narrow(1, 1, 3).narrow(2, 2, 21).narrow(3, 5, 30);
  check(c, o, "part of a larger image");
  o.x = scaled({2, 3, 30, 21}, 8, 1, bf16).transpose(2, 3);
  check(c, o, "transposed");
  o.x = scaled({1, 3, 21, 30}, 9, 1, bf16).expand({2, 3, 21, 30});
  check(c, o, "one image twice");
}

TEST_F(CudaFused, FirstLayersWithTF32) {
  set_allow_tf32(true);
  ConvCase c{{2, 3, 32, 32}, {16, 3, 7, 7}, geometry(2, 3, 3, true), f32};
  ConvOperands o = operands(c);
  Tensor y = run(c, o);
  set_allow_tf32(false);
  Sums s = sums_of(c, o);
  Tensor error = (wide(y) - s.sum.relu()).abs(), bound = s.size * 0x1p-9;  // both factors rounded to 11 bits
  EXPECT_LT((error - bound).amax().item(), 0);
}

TEST_F(CudaFused, TimedFirstLayer) {
  check({{4, 3, 64, 64}, {64, 3, 7, 7}, geometry(2, 3, 3, true), bf16, FusedActivation::relu, true, false}, "timed");
}

// --- products

struct LinearCase {
  Shape x, w;
  DType dtype = bf16;
  FusedActivation activation = FusedActivation::relu;
  bool bias = true, residual = true;
};

void check(const LinearCase& c, const Tensor& x, const Tensor& w, const std::string& what) {
  Shape out = x.sizes();
  out[out.size() - 1] = w.size(0);
  Tensor bias = c.bias ? scaled({w.size(0)}, 3, 1, c.dtype) : Tensor();
  Tensor residual = c.residual ? scaled(out, 4, 1, c.dtype) : Tensor();
  Tensor y = call<FusedLinear>(Site::current(), {c.activation}, x, w, bias, residual);
  Tensor bias64 = wide(bias), size_of_bias = c.bias ? bias64.abs() : bias64;
  Sums s{linear(wide(x), wide(w), bias64), linear(wide(x).abs(), wide(w).abs(), size_of_bias), w.size(1)};
  if (c.residual) s.sum = s.sum + wide(residual), s.size = s.size + wide(residual).abs();
  expect_fused(y, s, c.activation, what);
}
void check(const LinearCase& c, const std::string& what) {
  double scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(c.w[1], 1)));
  check(c, scaled(c.x, 1, 1, c.dtype), scaled(c.w, 2, scale, c.dtype), what);
}

TEST_F(CudaFused, ProductsWithAllActivationsAndParts) {
  Untimed untimed;
  for (DType t : {bf16, f16, f32, f64})
    for (FusedActivation a : kActivations)
      for (bool bias : {false, true})
        for (bool residual : {false, true}) {
          check({{33, 64}, {48, 64}, t, a, bias, residual}, "33 x 64 x 48");
          check({{2, 5, 13}, {17, 13}, t, a, bias, residual}, "10 x 13 x 17");
        }
}

TEST_F(CudaFused, TimedProducts) {
  for (FusedActivation a : kActivations) check({{128, 256}, {512, 256}, bf16, a, true, false}, "timed");
  for (DType t : {f16, f32})
    for (FusedActivation a : {FusedActivation::relu, FusedActivation::gelu})
      check({{128, 256}, {512, 256}, t, a, true, true}, "timed with a residual");
  check({{2, 64, 768}, {3072, 768}, bf16, FusedActivation::gelu, true, false}, "up");
  check({{2, 64, 3072}, {768, 3072}, bf16, FusedActivation::none, true, true}, "down");
  check({{64, 256}, {128, 256}, bf16, FusedActivation::silu, true, true}, "silu residual");
}

TEST_F(CudaFused, ProductsOfUnusualOperands) {
  Untimed untimed;
  for (DType t : {bf16, f32}) {
    for (FusedActivation a : {FusedActivation::relu, FusedActivation::gelu}) {
      check({{7}, {5, 7}, t, a}, "one row without a batch");
      check({{4, 9}, {1, 9}, t, a}, "one column");
      check({{1, 1}, {1, 1}, t, a}, "one by one");
      check({{4, 0}, {6, 0}, t, a}, "nothing to add up");
      LinearCase c{{}, {}, t, a};
      Tensor x = scaled({6, 5, 16}, 1, 1, t), w = scaled({24, 16}, 2, 0.25, t);
      check(c, x.select(1, 2), w, "rows apart");
      check(c, x.transpose(0, 1), w, "rows in another order");
      check(c, scaled({5, 16, 6}, 1, 1, t).transpose(1, 2), w, "columns as rows");
      check(c, x, scaled({16, 24}, 2, 0.25, t).transpose(0, 1), "weight by columns");
      check(c, x, scaled({48, 32}, 2, 0.25, t).index({Slice{0, {}, 2}, Slice{0, {}, 2}}), "every other weight");
    }
  }
  EXPECT_EQ(call<FusedLinear>(Site::current(), {}, zeros({0, 3}, on_gpu()), zeros({4, 3}, on_gpu()), Tensor(), Tensor())
                .sizes(),
            (Shape{0, 4}));
}

// --- what both promise

TEST_F(CudaFused, NanIsNotLostInRelu) {
  for (bool timed : {false, true}) {
    set_deterministic(!timed);
    Tensor x = zeros({4, 64}, on_gpu(bf16)), w = ones({64, 64}, on_gpu(bf16)), bias = zeros({64}, on_gpu(bf16));
    x.select(0, 1).fill_(std::nan(""));
    Tensor y = call<FusedLinear>(Site::current(), {FusedActivation::relu}, x, w, bias, Tensor());
    EXPECT_EQ(isnan(y).sum().item(), 64) << "linear" << timed;
    ConvCase c{{4, 64, 1, 1}, {64, 64, 1, 1}, geometry(1, 0, 0, true)};
    Tensor image = x.reshape({4, 64, 1, 1}), kernel = w.reshape({64, 64, 1, 1});
    Tensor z = run(c, {image, kernel, bias, {}});
    EXPECT_EQ(isnan(z).sum().item(), 64) << "convolution" << timed;
  }
  set_deterministic(false);
}

// After the first call: no waiting, no memory from the driver, the same bits.
TEST_F(CudaFused, LaterCallsAreReadyToBeRecorded) {
  ConvCase first{{2, 3, 32, 32}, {16, 3, 7, 7}, geometry(2, 3, 3, true), bf16, FusedActivation::relu, true, false};
  ConvCase middle{{2, 64, 14, 14}, {64, 64, 3, 3}, geometry(1, 1, 1, true)};
  ConvOperands a = operands(first), b = operands(middle);
  b.x = b.x.contiguous(MemoryFormat::channels_last);
  b.w = b.w.contiguous(MemoryFormat::channels_last);
  Tensor x = scaled({64, 256}, 1, 1, bf16), w = scaled({512, 256}, 2, 0.1, bf16), bias = scaled({512}, 3, 1, bf16);
  auto all = [&] {
    FusedLinear::Params p{FusedActivation::gelu};
    return Tensors{run(first, a), run(middle, b), call<FusedLinear>(Site::current(), p, x, w, bias, Tensor())};
  };
  Tensors before = all();
  all();  // and memory for two sets of results
  synchronize(kCUDA);
  int64_t syncs = sync_count(), calls = device_memory_use(kCUDA).driver_calls;
  Tensors again;
  {
    SyncGuard forbid(SyncPolicy::forbid);
    again = all();
  }
  EXPECT_EQ(sync_count(), syncs);
  EXPECT_EQ(device_memory_use(kCUDA).driver_calls, calls);
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(values(host(again[i])), values(host(before[i]))) << i;
}

struct Net {
  Tensor w1 = scaled({16, 3, 7, 7}, 1, 0.1, bf16), w2 = scaled({16, 16, 3, 3}, 2, 0.1, bf16);
  Tensor w3 = scaled({24, 16}, 3, 0.25, bf16), bias = scaled({24}, 4, 1, bf16);
  Tensor gamma = scaled({16}, 5, 1, bf16), beta = scaled({16}, 6, 1, bf16), mean = scaled({16}, 7, 1, bf16);
  Tensor var = scaled({16}, 8, 1, bf16).abs() + 0.5;

  Tensor norm(const Tensor& x) const { return batch_norm(x, mean, var, gamma, beta, false); }
  Tensor operator()(const Tensor& x) const {
    Tensor y = norm(conv2d(x.contiguous(MemoryFormat::channels_last), w1, {}, {2}, {3})).relu();
    Tensor z = norm(conv2d(y, w2, {}, {1}, {1}));
    z += y;
    return gelu(linear(z.relu_().mean({2, 3}), w3, bias));
  }
  Net exact() const {
    Net n;
    for (Tensor Net::*t : {&Net::w1, &Net::w2, &Net::w3, &Net::bias, &Net::gamma, &Net::beta, &Net::mean, &Net::var})
      n.*t = wide(this->*t);
    return n;
  }
};

TEST_F(CudaFused, PlansUseThem) {
  Net net;
  Compiled plan = compile([&](const Tensor& x) { return net(x); });
  Tensor x = scaled({2, 3, 40, 40}, 9, 1, bf16);
  Tensor eager = net(x), captured = plan(x), first = plan(x), again = plan(x), want = net.exact()(wide(x));
  EXPECT_EQ(values(host(first)), values(host(again)));
  auto error = [&](const Tensor& y) { return (wide(y) - want).abs().amax().item(); };
  EXPECT_LE(error(again), 2 * error(eager) + epsilon_of(bf16) * want.abs().amax().item());
  std::string text = plan.explain();
  for (const char* part : {"fold_batch_norm: 2 into", "fuse_epilogues: 4 ops", "fused_convolution", "fused_linear"})
    EXPECT_NE(text.find(part), text.npos) << part << " is not in\n" << text;
  EXPECT_EQ(text.find("= clone"), text.npos) << "the first layer reads the image as it lies\n" << text;
}

}  // namespace
}  // namespace deft
