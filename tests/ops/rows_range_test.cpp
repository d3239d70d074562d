// Norms, softmax and losses of rows of extreme magnitude, and their gradients, against the same function in f64, whose
// range has room for what overflows or vanishes on the way in the other types.
#include "core/grad_mode.h"
#include "range_util.h"
#include "runtime/cpu_isa.h"

namespace deft::testing {
namespace {

constexpr int64_t kRow = 24;
constexpr DType kSmall[] = {DType::f32, DType::bf16, DType::f16};

// A fixed series of numbers in [-1, 1), none of them 0.
struct Series {
  uint64_t state;
  double next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 40) + 0.5) / double(1 << 23) - 1;
  }
  int below(int n) { return static_cast<int>((next() + 1) / 2 * n); }
};

// Rows of one magnitude, of mixed ones, of equal numbers, and with special values. `finite` leaves those out.
std::vector<double> rows(DType t, bool finite, uint64_t seed = 1, int most = 1024) {
  Format f = format_of(t);
  f.most = std::min(f.most, most);  // numbers below 2^(most + 1)
  Series r{seed};
  std::vector<double> all;
  const auto add = [&](const std::function<double(int)>& at) {
    for (int i = 0; i < kRow; ++i) all.push_back(at(i));
  };
  for (int e = f.least - f.digits + 1; e <= f.most; e += std::max(1, f.most / 16))
    add([&](int) { return std::ldexp(r.next(), e); });
  for (int k = 0; k < 4; ++k) add([&](int) { return std::ldexp(r.next(), f.least + r.below(f.most - f.least)); });
  for (double one : {largest_of(f), std::ldexp(1.0, f.most), std::ldexp(1.0, f.most / 2), std::ldexp(1.0, f.least)})
    for (double rest : {0.0, 1.0}) add([&](int i) { return i == 5 ? one : rest * r.next(); });
  for (double same : {0.0, 1.0, -3.0, largest_of(f), smallest_of(f), std::ldexp(1.0, f.least / 2)})
    add([&](int) { return same; });
  add([&](int i) { return i % 2 ? largest_of(f) : -largest_of(f); });
  add([&](int i) { return i % 3 ? 0.0 : -0.0; });
  if (!finite) {
    for (double v : {kInf, -kInf, kNan}) add([&](int i) { return i == 7 ? v : r.next(); });
    for (double v : {kInf, -kInf, kNan}) add([&](int) { return v; });
    add([&](int i) { return i == 7 ? kInf : i == 9 ? -kInf : r.next(); });
    add([&](int i) { return i == 7 ? -kInf : largest_of(f); });
  }
  return rounded(all, t);
}
Tensor matrix(const std::vector<double>& values, DType t) {
  return tensor(values).to(t).reshape({static_cast<int64_t>(values.size()) / kRow, kRow});
}
Tensor random_like(const Tensor& x, uint64_t seed, double low = -1, double high = 1) {
  Series r{seed};
  std::vector<double> values;
  for (int64_t i = 0; i < x.numel(); ++i) values.push_back(low + (high - low) * (r.next() + 1) / 2);
  return tensor(rounded(values, DType::bf16)).to(DType::f16).to(x.dtype()).reshape(x.sizes());
}

// Rounding steps of the type it is computed in: of the value itself, and of the largest one in its row.
struct Bound {
  double own = 8, row = 8;
  bool narrow = false;  // composed of ops that each round to the type of the input
  double least = 0;     // a row counts as if it reached this: what was taken from each other on the way
};

void compare(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, int64_t row,
             DType t, const Bound& bound) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const Format f = format_of(t), computed = format_of(bound.narrow ? t : DType::f32);
  int faults = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t begin = i / static_cast<size_t>(row) * static_cast<size_t>(row);
    L size = 0;
    for (size_t k = begin; k < std::min(want.size(), begin + static_cast<size_t>(row)); ++k)
      if (std::isfinite(want[k])) size = std::max<L>(size, std::fabs(want[k]));
    const int edge = same_edge(got[i], want[i], t);
    size = std::max<L>(std::min<L>(size, largest_of(f)), bound.least);
    const L allowed = bound.own * ulp_of(computed, want[i]) + bound.row * ulp_of(computed, size) + ulp_of(f, want[i]) +
                      std::ldexp(1.0L, -124);  // results below the normal numbers may be 0
    if (edge == 1 || (edge < 0 && std::fabs(got[i] - want[i]) <= allowed)) continue;
    if (++faults <= 3)
      ADD_FAILURE() << what << " in " << name_of(t) << ": " << got[i] << " at row " << i / row << ", element "
                    << i % row << ", want " << want[i] << " in a row up to " << double(size);
  }
  EXPECT_LE(faults, 3) << what << " in " << name_of(t) << ": as many are wrong";
}

struct Case {
  std::string name;
  Function f;
  std::vector<Tensor> inputs;  // in the small type
  std::vector<bool> wanted;
  Bound value = {}, gradient = {};
  int64_t row = kRow;  // what numbers are compared in, of values and gradients alike
};
void check(const Case& c, DType t, Way way, double g = 0.5) {
  std::vector<Tensor> wide;
  for (const Tensor& x : c.inputs) wide.push_back(x.defined() && is_floating(x.dtype()) ? x.to(DType::f64) : x);
  Tensor y;
  {
    NoGradGuard no_grad;
    y = c.f(wide);
  }
  const Tensor incoming = random_like(y.to(t), 77, g, 2 * g);
  const Values want = run_way(Way::eager, c.f, wide, c.wanted, incoming.to(DType::f64));
  const Values got = run_way(way, c.f, c.inputs, c.wanted, incoming);
  compare(c.name, got.y, want.y, c.row, t, c.value);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.wanted[i])
      compare(c.name + ", gradient " + std::to_string(i), got.gradients[i], want.gradients[i], c.row, t, c.gradient);
}

class RowsRange : public RangeTest {};
DEFT_RANGE_WAYS(RowsRange);

TEST_P(RowsRange, Norms) {
  for (DType t : kSmall) {
    for (bool finite : {true, false}) {
      const Tensor x = matrix(rows(t, finite), t);
      const Tensor weight = random_like(x.select(0, 0), 5), bias = random_like(x.select(0, 0), 6);
      // Gradients of weights are sums over all rows: special values in one would hide the others.
      const std::vector<bool> three = {true, finite, finite};
      const Bound sums{256, 64};
      check({"layer_norm",
             [](const auto& in) { return layer_norm(in[0], {kRow}, in[1], in[2]); },
             {x, weight, bias},
             three,
             {16, 16},
             sums},
            t, GetParam());
      check({"rms_norm",
             [](const auto& in) { return rms_norm(in[0], {kRow}, in[1]); },
             {x, weight},
             {true, finite},
             {16, 16},
             sums},
            t, GetParam());
      // Their gradients divide by the square of the deviation, in f32: numbers to 2^60. Values have the whole range.
      for (int most : {1024, 60}) {
        const Tensor some = matrix(rows(t, finite, 1, most), t);
        const int64_t m = some.sizes()[0];
        const bool slopes = most == 60, sums_too = slopes && finite;
        const Tensor groups = some.reshape({m, 4, 6}), channels = random_like(zeros({4}, t), 8);
        const Tensor factors = random_like(zeros({m}, t), 9);
        const auto norm = [&](const char* name, int64_t row, const Function& f, const std::vector<Tensor>& in) {
          std::vector<bool> wanted(in.size(), sums_too);
          wanted[0] = slopes;
          check({name, f, in, wanted, {16, 16}, sums, row}, t, GetParam());
        };
        norm("group_norm", 12, [](const auto& in) { return group_norm(in[0], 2, in[1], in[1]); }, {groups, channels});
        norm("instance_norm", 12, [](const auto& in) { return instance_norm(in[0]); }, {some.reshape({m, 2, 12})});
        norm("batch_norm", kRow, [](const auto& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); },
             {some.reshape({1, m, kRow}), factors, factors});
        norm("batch_norm of features", kRow,
             [](const auto& in) {
               return batch_norm(in[0].t().contiguous(), {}, {}, in[1], in[2], true).t().contiguous();
             },
             {some, factors, factors});
        for (double p : {1.0, 2.0, kInf})  // sums of squares are in f32, as in PyTorch
          if (slopes && t != DType::f16)   // whose lengths have few digits where they are small
            check({"normalize " + std::to_string(p),
                   [p](const auto& in) { return normalize(in[0], p, 1); },
                   {some},
                   {true},
                   {16, 16, true},
                   {16, 32, true}},
                  t, GetParam());
      }
    }
  }
}

TEST_P(RowsRange, Softmax) {
  for (DType t : kSmall) {
    for (bool finite : {true, false}) {
      const Tensor x = matrix(rows(t, finite), t), columns = x.t().contiguous();
      // An exponential makes steps of its argument out of steps of the result: 110 at most before it vanishes.
      // Gradients are made of the result as it is stored, and are differences of numbers up to 1.
      const Bound value{128, 0}, slope = t == DType::f32 ? Bound{128, 2, false, 1} : Bound{4, 4, true, 1};
      check({"softmax", [](const auto& in) { return softmax(in[0], 1); }, {x}, {true}, value, slope}, t, GetParam());
      check({"log_softmax", [](const auto& in) { return log_softmax(in[0], 1); }, {x}, {true}, {8, 4}, slope}, t,
            GetParam());
      check({"softmax of columns",
             [](const auto& in) { return softmax(in[0].t().contiguous(), 0).t().contiguous(); },
             {x},
             {true},
             value,
             slope},
            t, GetParam());
      check({"log_softmax of columns",
             [](const auto& in) { return log_softmax(in[0].t().contiguous(), 0).t().contiguous(); },
             {x},
             {true},
             {8, 4},
             slope},
            t, GetParam());
      check({"softmin", [](const auto& in) { return softmin(in[0], 1); }, {x}, {true}, value, slope}, t, GetParam());
      check({"logsumexp", [](const auto& in) { return logsumexp(in[0], {1}); }, {x}, {t == DType::f32}, {8, 0}, slope},
            t, GetParam());
    }
  }
}

// A number for each row.
Tensor classes_of(const Tensor& x) {
  std::vector<int64_t> target;
  for (int64_t i = 0; i < x.sizes()[0]; ++i) target.push_back(i * 5 % kRow);
  return tensor<int64_t>(target);
}

// Losses row by row, so that one row does not hide another; their means and sums in the next test.
TEST_P(RowsRange, LossesOfPairs) {
  for (DType t : kSmall) {
    for (bool finite : {true, false}) {
      const Tensor x = matrix(rows(t, finite), t), target = matrix(rows(t, finite, 9), t), near = x + 1;
      const Bound each{8, 0, true}, slope{8, 0, true};
      for (const Tensor& other : {target, near}) {
        const std::vector<Tensor> in = {x, other};
        const auto pair = [&](const char* name, const Function& f) {
          check({name, f, in, {true, true}, each, slope}, t, GetParam());
        };
        pair("mse_loss", [](const auto& a) { return mse_loss(a[0], a[1], Reduction::none); });
        pair("l1_loss", [](const auto& a) { return l1_loss(a[0], a[1], Reduction::none); });
        pair("smooth_l1_loss", [](const auto& a) { return smooth_l1_loss(a[0], a[1], Reduction::none, 0.25); });
        pair("huber_loss", [](const auto& a) { return huber_loss(a[0], a[1], Reduction::none, 4); });
      }
      // Its terms are up to four times the input, in the input's type.
      const Tensor few = matrix(rows(t, finite, 1, t == DType::f16 ? 12 : 100), t),
                   few_weights = random_like(few, 4, 0.5, 2);
      const Tensor likely = random_like(x, 3, 0, 1);
      check({"binary_cross_entropy_with_logits",
             [](const auto& a) { return binary_cross_entropy_with_logits(a[0], a[1], a[2], a[3], Reduction::none); },
             {few, random_like(few, 3, 0, 1), few_weights, few_weights},
             {true, false, false, false},
             {16, 4, true},
             {16, 4, true}},
            t, GetParam());
      check({"kl_div",
             [](const auto& a) { return kl_div(a[0], a[1], KlReduction::none); },
             {x, likely},
             {true, true},
             {16, 4, true},
             {16, 4, true}},
            t, GetParam());
      const Tensor probabilities = minimum(abs(x), ones({}, t));
      if (finite)
        check({"binary_cross_entropy",
               [](const auto& a) { return binary_cross_entropy(a[0], a[1], {}, Reduction::none); },
               {probabilities, likely},
               {true, false},
               {16, 4, true},
               {16, 4, true}},
              t, GetParam());
    }
  }
}

bool has_fma() {
#if defined(__x86_64__)
  return cpu_has("fma");
#else
  return true;
#endif
}

TEST_P(RowsRange, LossesOfRows) {
  for (DType t : kSmall) {
    for (bool finite : {true, false}) {
      // Without FMA, the argument of an exponential is rounded to steps of the row's largest number.
      const int most = t == DType::f16 && !has_fma() ? 8 : 1024;
      const Tensor x = matrix(rows(t, finite, 1, most), t), target = classes_of(x);
      const Tensor weight = random_like(x.select(0, 0), 5, 0.5, 2);
      const auto classes = [&](const std::string& name, const Tensor& logits, ClassLossOptions o) {
        o.reduction = Reduction::none;
        check({name,
               [=](const auto& in) {
                 ClassLossOptions mine = o;
                 if (in.size() > 2) mine.weight = in[2];
                 return cross_entropy(in[0], in[1], mine);
               },
               o.weight.defined() ? std::vector<Tensor>{logits, classes_of(logits), weight}
                                  : std::vector<Tensor>{logits, classes_of(logits)},
               o.weight.defined() ? std::vector<bool>{true, false, false} : std::vector<bool>{true, false},
               {8, 0},
               {128, 16}},
              t, GetParam());
      };
      classes("cross_entropy", x, {});
      const Tensor summed = matrix(rows(t, finite, 1, std::min(most, 118)), t);  // a sum over a row fits
      classes("cross_entropy smoothed", summed, {.label_smoothing = 0.125});
      classes("cross_entropy weighted", x, {.weight = weight});
      check({"nll_loss",
             [](const auto& in) { return nll_loss(in[0], in[1], {.reduction = Reduction::none}); },
             {x, target},
             {true, false},
             {2, 0},
             {2, 0}},
            t, GetParam());
      // Squares of lengths are in f32: numbers to 2^60. What is a sum of both signs is exact to roundings of its terms.
      const Tensor some = matrix(rows(t, finite, 1, 60), t), transposed = matrix(rows(t, finite, 9, 60), t);
      const Tensor few_signs = where(random_like(some.select(1, 0), 6) > 0, 1, -1).to(t);
      const Bound angle{8, 4, false, 1};
      check({"cosine_similarity",
             [](const auto& in) { return cosine_similarity(in[0], in[1], 1); },
             {some, transposed},
             {t != DType::f16, t != DType::f16},
             angle,
             {32, 64, false, 1}},
            t, GetParam());
      check({"cosine_similarity of one",
             [](const auto& in) { return cosine_similarity(in[0], in[0], 1); },
             {some},
             {false},
             angle},
            t, GetParam());
      check({"cosine_embedding_loss",
             [](const auto& in) { return cosine_embedding_loss(in[0], in[1], in[2], 0.25, Reduction::none); },
             {some, transposed, few_signs},
             {t != DType::f16, t != DType::f16, false},
             angle,
             {32, 64, false, 1}},
            t, GetParam());
    }
  }
}

TEST_P(RowsRange, MeansAndSumsOfLosses) {
  for (DType t : kSmall) {
    const std::vector<double> all = rows(t, true, 1, 115), others = rows(t, true, 9, 115);  // their sums fit
    for (size_t at = 0; at < all.size(); at += kRow) {
      if (GetParam() == Way::compiled && at / kRow % 4) continue;  // a capture each: a sample
      const Tensor x = tensor(std::vector(all.begin() + long(at), all.begin() + long(at) + kRow)).to(t);
      const Tensor y = tensor(std::vector(others.begin() + long(at), others.begin() + long(at) + kRow)).to(t);
      const Tensor likely = random_like(x, 3, 0, 1);
      for (Reduction r : {Reduction::mean, Reduction::sum}) {
        const std::string kind =
            std::string(r == Reduction::mean ? " mean" : " sum") + " of row " + std::to_string(at / kRow);
        const Bound bound{16, 8, true};
        const auto pair = [&](const char* name, const Tensor& b, const Function& f) {
          // On a GPU the loss of each element is rounded to the type of the input, as in PyTorch.
          if (GetParam() == Way::cuda && t == DType::f16 &&
              !isfinite(mse_loss(x, b, Reduction::none)).all().item<bool>())
            return;
          const double exact = f({x.to(DType::f64), b.to(DType::f64)}).item<double>();
          const bool sum_overflows = std::fabs(exact) * kRow > largest_of(format_of(DType::f32));
          if (r == Reduction::mean && std::isfinite(exact) && sum_overflows) return;
          check({name + kind, f, {x, b}, {true, false}, bound, bound}, t, GetParam());
        };
        pair("mse_loss", y, [=](const auto& a) { return mse_loss(a[0], a[1], r); });
        pair("l1_loss", y, [=](const auto& a) { return l1_loss(a[0], a[1], r); });
        pair("smooth_l1_loss", y, [=](const auto& a) { return smooth_l1_loss(a[0], a[1], r); });
        pair("huber_loss", y, [=](const auto& a) { return huber_loss(a[0], a[1], r, 4); });
        pair("binary_cross_entropy_with_logits", likely,
             [=](const auto& a) { return binary_cross_entropy_with_logits(a[0], a[1], {}, {}, r); });
        pair("cross_entropy with probabilities", likely,
             [=](const auto& a) { return cross_entropy(a[0].unsqueeze(0), a[1].unsqueeze(0), {.reduction = r}); });
      }
    }
  }
}

}  // namespace
}  // namespace deft::testing
