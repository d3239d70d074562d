// The same numbers as on the host: random draws, special values, precision switches.
#include <limits>

#include "cuda_util.h"
#include "ops/case_checks.h"
#include "ops/sample_inputs.h"
#include "runtime/numerics.h"

namespace deft {
namespace {

class CudaNumbers : public GpuTest {};

using testing::same_bits;

template <class F>
void expect_same_draw(F&& draw, const char* what) {
  manual_seed(11);
  Tensor a = draw(kCPU), next_a = draw(kCPU);
  manual_seed(11);
  Tensor b = draw(kCUDA), next_b = draw(kCUDA);
  EXPECT_EQ(b.device(), kCUDA) << what;
  EXPECT_TRUE(same_bits(a, b)) << what;
  EXPECT_TRUE(same_bits(next_a, next_b)) << what << ", second draw";
}

TEST_F(CudaNumbers, RandomNumbersAreThoseOfTheHost) {
  for (DType t : {f32, f64, bf16, f16}) {
    expect_same_draw([&](Device d) { return rand({100003}, TensorOptions(t, d)); }, "rand");
    expect_same_draw([&](Device d) { return bernoulli(full({1001}, 0.3, TensorOptions(t, d))); }, "bernoulli");
    expect_same_draw([&](Device d) { return dropout(ones({37, 41}, TensorOptions(t, d)), 0.3); }, "dropout");
    expect_same_draw(
        [&](Device d) {
          Tensor x = empty({6, 40}, TensorOptions(t, d)).t();
          return uniform_(x, -2, 3);
        },
        "uniform_ of a transposed tensor");
  }
  for (DType t : {i64, i32, u8})
    expect_same_draw([&](Device d) { return randint(0, 100, {5003}, TensorOptions(t, d)); }, "randint");
  expect_same_draw(
      [&](Device d) {
        return feature_dropout(ones({5, 7, 3, 3}, TensorOptions(f32, d)));
      },
      "feature_dropout");
  // Box and Muller's formula is as exact as the functions in it.
  for (DType t : {f32, f64}) {
    manual_seed(3);
    Tensor a = randn({100003}, t);
    manual_seed(3);
    Tensor b = randn({100003}, TensorOptions(t, kCUDA));
    expect_close(b, a, "randn", t == f32 ? 2e-6 : 1e-14);
  }
}

TEST_F(CudaNumbers, DropoutInBackwardUsesTheSameMask) {
  Tensor x = ones({1000}, with_grad(f32, kCUDA)), y = dropout(x, 0.5);
  y.sum().backward();
  EXPECT_EQ(values(x.grad()), values(y));
}

TEST_F(CudaNumbers, TF32IsOffUnlessAskedFor) {
  EXPECT_FALSE(allow_tf32());
  Tensor a = sample({256, 300}, 1, f32), b = sample({300, 200}, 2, f32), want = matmul(a.to(f64), b.to(f64));
  auto error = [&] { return (matmul(a.to(kCUDA), b.to(kCUDA)).to(kCPU).to(f64) - want).abs().amax().item(); };
  double exact = error();
  EXPECT_LT(exact, 5e-5);
  set_allow_tf32(true);
  double rough = error();
  set_allow_tf32(false);
  EXPECT_GT(rough, 10 * exact) << "the switch changes nothing";
  EXPECT_LT(rough, 0.05);
  EXPECT_EQ(error(), exact);
}

// Elementwise ops on values where formulas go wrong. Results may differ by rounding, never in kind.
constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> kSpecial = {kNan, kInf,  -kInf, 0.0,   -0.0,  1,     -1,    0.5,   -0.5, 2,     -2,
                                      1.5,  -1.5,  2.5,   -2.5,  3,     -3,    6,     -6,    20,   -20,   75,
                                      -75,  1e-3,  -1e-3, 1e-7,  -1e-7, 1e-20, 1e-38, 1e-40, 1e4,  -1e4,  1e10,
                                      1e19, -1e19, 0.999, 1.001, 88.7,  -88.7, 104,   -104,  3e38, -3e38, 30.5};
const std::vector<double> kWhole = {
    0,           1,           2,  3,  7,  8,  31,  63,   64,   100,          127,  128,   255, 256, 2147483647,
    2147483648., 4294967295., -1, -2, -3, -7, -64, -127, -128, -2147483648., 9e18, -9e18, 5,   -5,  42};

DType compute_dtype(DType t) { return t == f64 ? f64 : f32; }

std::string kind_problem(const Tensor& got, const Tensor& want, double relative) {
  std::vector<double> g = values(got), w = values(want);
  if (got.dtype() != want.dtype()) return "type";
  for (size_t i = 0; i < g.size(); ++i) {
    if (std::isnan(g[i]) && std::isnan(w[i])) continue;
    if (g[i] == w[i] && (g[i] != 0 || std::signbit(g[i]) == std::signbit(w[i]))) continue;
    // Rounding may decide between the largest numbers and infinity, and between the smallest and zero.
    double scale = std::max(std::fabs(g[i]), std::fabs(w[i]));
    // Where a formula cancels (x - tanh(x)), the rounding of its terms is left.
    double rounding = 4 * epsilon_of(compute_dtype(want.dtype()));
    if (is_floating(want.dtype()) && std::fabs(g[i] - w[i]) <= relative * scale + rounding) continue;
    return fmt::format("element {}: {} on the GPU, {} on the host", i, g[i], w[i]);
  }
  return "";
}

bool is_formula(const OpSamples& op) {
  const OpInfo* info = find_op_info(op.op);
  return info && info->fusion == Fusion::elementwise && info->outputs == 1 && !op.good.empty() &&
         std::string(op.op) != "to" && std::string(op.op) != "dropout";
}
// The values as a column or a row, so that two of them meet in all pairs.
Tensor special(DType t, bool column) {
  Tensor x = tensor(is_floating(t) ? kSpecial : kWhole).to(t);
  return column ? x.unsqueeze(1) : x;
}

TEST_F(CudaNumbers, SpecialValuesInElementwiseOps) {
  int tried = 0;
  for (const OpSamples& op : all_samples()) {
    if (!is_formula(op)) continue;
    for (DType t : {f32, f64, bf16, f16, i8, u8, i32, i64, boolean}) {
      if (!op.dtypes.contains(t)) continue;
      std::set<std::string> seen;
      for (const Sample& s : op.good) {
        // One call for every way of calling it: notes are "way shape".
        std::string way = s.note.substr(0, s.note.find('['));
        if (!seen.insert(way + std::to_string(s.args.size())).second || s.args.size() > 2) continue;
        Tensors in;
        for (size_t i = 0; i < s.args.size(); ++i) in.push_back(special(t, i == 0 && s.args.size() == 2));
        // x times the share below x: -inf times 0 on the GPU, as PyTorch's; the CPU's kernel gives the limit.
        if (std::string(op.op) == "gelu") in[0] = in[0].clamp(-6e4);
        bool real_only = true;
        for (const Arg& a : s.args) real_only &= a.kind == Arg::Kind::real;
        if (!real_only) continue;
        Tensors on;
        for (const Tensor& x : in) on.push_back(x.to(kCUDA));
        Tensors want;
        try {
          want = s.call(in);
        } catch (const ValueError&) {  // an integer divided by 0: a GPU does not look
          continue;
        }
        double relative = t == f64 ? 1e-13 : t == f32 ? 1e-5 : t == bf16 ? 0.02 : 0.003;
        EXPECT_EQ(kind_problem(s.call(on)[0], want[0], relative), "") << op.op << " " << s.note << " " << name_of(t);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 300);
}

TEST_F(CudaNumbers, SpecialValuesInReductions) {
  using Fn = std::function<Tensors(const Tensor&)>;
  std::vector<std::pair<const char*, Fn>> all = {
      {"sum",
       [](const Tensor& x) {
         return Tensors{x.sum({1}), x.sum()};
       }},
      {"mean",
       [](const Tensor& x) {
         return Tensors{x.mean({0}), x.mean()};
       }},
      {"amax",
       [](const Tensor& x) {
         return Tensors{x.amax({1}), x.amin({1}), x.amax(), x.amin({0})};
       }},
      {"argmax",
       [](const Tensor& x) {
         return Tensors{x.argmax(1), x.argmin(1), x.argmax(), x.argmin(0)};
       }},
      {"max",
       [](const Tensor& x) {
         return Tensors{max(x, 1)[0], max(x, 1)[1], min(x, 0)[0], min(x, 0)[1]};
       }},
      {"sort",
       [](const Tensor& x) {
         return Tensors{sort(x)[0], sort(x)[1], sort(x, 0, true)[0], sort(x, 0, true)[1]};
       }},
      {"topk",
       [](const Tensor& x) {
         return Tensors{topk(x, 2)[0], topk(x, 2)[1], topk(x, 2, -1, false)[0]};
       }},
      {"unique", [](const Tensor& x) { return Tensors{unique(where(isnan(x), 0, x))[0]}; }},
      {"any",
       [](const Tensor& x) {
         return Tensors{x.any({1}), x.all({1}), count_nonzero(x, {1})};
       }},
      {"softmax",
       [](const Tensor& x) {
         return Tensors{x.softmax(1), x.log_softmax(1), logsumexp(x, {1})};
       }},
      {"norm",
       [](const Tensor& x) {
         return Tensors{x.norm(2, {1}), x.norm(1, {1}), x.norm(kInf, {1})};
       }},
      {"nansum", [](const Tensor& x) { return Tensors{nansum(x, {1})}; }},
      {"cumsum",
       [](const Tensor& x) {
         return Tensors{x.cumsum(1), x.cumprod(0)};
       }},
      {"nonzero", [](const Tensor& x) { return Tensors{nonzero(x)}; }},
      {"relu pool",
       [](const Tensor& x) {
         return Tensors{max_pool2d(x.view({1, 1, 5, 4}), {2})};
       }},
  };
  for (DType t : {f32, f64, bf16, f16}) {
    Tensor x = tensor<double>(
                   {1, 2, 3, 2, kNan, 1, kNan, 0, kInf, -kInf, 1, 2, kInf, kInf, 3, -0.0, -kInf, -kInf, -kInf, -kInf})
                   .view({5, 4})
                   .to(t);
    for (auto& [name, f] : all) {
      Tensors want = f(x), got = f(x.to(kCUDA));
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(kind_problem(got[i], want[i], 0.02), "") << name << " " << i << " " << name_of(t);
    }
  }
}

TEST_F(CudaNumbers, SubnormalsAreKept) {
  Tensor x = tensor({1e-40f, -1e-42f, 1.2e-38f}), d = x.to(kCUDA);
  EXPECT_TRUE(same_bits(d * 1, x * 1));
  EXPECT_TRUE(same_bits(d / 2, x / 2));
  EXPECT_TRUE(same_bits(d + 1e-39, x + 1e-39));
  EXPECT_TRUE(same_bits(d.abs().sqrt(), x.abs().sqrt()));
}

TEST_F(CudaNumbers, LongSumsAreExactEnough) {
  Tensor x = full({1 << 22}, 0.1, on_gpu());
  EXPECT_NEAR(x.sum().item(), 0.1 * (1 << 22), 0.1 * (1 << 22) * 1e-6);
  EXPECT_NEAR(x.to(bf16).to(f32).mean().item(), 0.1, 1e-3);
  Tensor half = full({1 << 16}, 2, on_gpu(f16));
  EXPECT_NEAR(half.mean().item(), 2, 1e-3) << "16-bit floats are added up in f32";
}

TEST_F(CudaNumbers, ProductsOfPartsMayLeaveTheRange) {
  for (int64_t n : {400, 100000}) {  // one piece, several
    Tensor x = arange(n).to(f32), wide = repeat(x.unsqueeze(1), {1, 16});
    EXPECT_TRUE(same_bits(x.to(kCUDA).cumprod(0), x.cumprod(0))) << n;
    EXPECT_TRUE(same_bits(wide.to(kCUDA).cumprod(0), wide.cumprod(0))) << n << ", side by side";
  }
}

}  // namespace
}  // namespace deft
