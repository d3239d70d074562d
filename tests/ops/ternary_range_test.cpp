// Elementwise ops of three tensors, and clamp with numbers, over triples of magnitudes, against their definitions in
// long double: what overflows or vanishes on the way to a result that does neither shows here.
#include "range_util.h"

namespace deft::testing {
namespace {

// The value and the gradients of the three, for an incoming gradient of 1.
struct Exact3 {
  L y, d[3];
};
struct Case {
  std::string name;
  Function op;
  Exact3 (*exact)(L a, L b, L c);
  bool flags = false;  // the first is a condition
  // How large the terms are that a sum is made of: their rounding is all that is lost where they cancel.
  L (*terms)(L a, L b, L c) = [](L, L, L) -> L { return 0; };
};

constexpr L kScale = 1;  // others are multiplied from the left, as in PyTorch
const std::vector<Case> kCases = {
    {"where", [](const std::vector<Tensor>& x) { return where(x[0], x[1], x[2]); },
     [](L c, L a, L b) -> Exact3 {
       return {c != 0 ? a : b, {0, L(c != 0), L(c == 0)}};
     },
     true},
    {"clamp", [](const std::vector<Tensor>& x) { return clamp(x[0], x[1], x[2]); },
     [](L x, L low, L high) -> Exact3 {
       L y = std::isnan(x) || std::isnan(low) || std::isnan(high) ? L(kNan) : std::min(std::max(x, low), high);
       const bool apart = low < high, at_low = apart && x == low, at_high = apart && x == high;
       const L share = at_low || at_high ? 0.5L : 1;  // equal ones have a part each
       return {y,
               {x < low || x > high ? 0 : share, (x < low && low <= high) || at_low ? share : 0,
                (x > high && low <= high) || high < low || at_high ? share : 0}};
     }},
    {"lerp", [](const std::vector<Tensor>& x) { return lerp(x[0], x[1], x[2]); },
     [](L a, L b, L w) -> Exact3 {
       return {std::fabs(w) < 0.5L ? a + w * (b - a) : b - (b - a) * (1 - w), {1 - w, w, b - a}};
     },
     false,
     [](L a, L b, L w) -> L {
       return std::fabs(w) < 0.5L ? std::fabs(a) + std::fabs(w * (b - a)) : std::fabs(b) + std::fabs((b - a) * (1 - w));
     }},
    {"addcmul", [](const std::vector<Tensor>& x) { return addcmul(x[0], x[1], x[2], double(kScale)); },
     [](L x, L a, L b) -> Exact3 {
       return {x + kScale * a * b, {1, kScale * b, kScale * a}};
     },
     false, [](L x, L a, L b) -> L { return std::fabs(x) + std::fabs(kScale * a * b); }},
    {"addcdiv", [](const std::vector<Tensor>& x) { return addcdiv(x[0], x[1], x[2], double(kScale)); },
     [](L x, L a, L b) -> Exact3 {
       return {x + kScale * a / b, {1, kScale / b, -(kScale * a / b) / b}};
     },
     false, [](L x, L a, L b) -> L { return std::fabs(x) + std::fabs(kScale * a / b); }},
};

std::vector<double> magnitudes(DType t) {
  const Format f = format_of(t);
  std::vector<double> x = {
      0, 1, 0.3, 2.5, largest_of(f), largest_of(f) / 3, smallest_of(f), std::ldexp(1.375, f.least), kInf, kNan};
  for (int e = f.least; e < f.most; e += std::max(1, f.most / 4)) x.push_back(std::ldexp(1.4375, e));
  for (size_t i = 0, n = x.size(); i < n; ++i)
    if (x[i] == x[i]) x.push_back(-x[i]);
  return rounded(x, t);
}

void check(const Case& c, DType t, Way way) {
  const Format f = format_of(t), computed = format_of(DType::f32);
  std::vector<double> in[3];
  const std::vector<double> all = magnitudes(t);
  for (double a : c.flags ? std::vector<double>{0, 1} : all)
    for (double b : all)
      for (double x : all) in[0].push_back(a), in[1].push_back(b), in[2].push_back(x);
  std::vector<Tensor> inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(tensor(in[i]).to(c.flags && i == 0 ? DType::boolean : t));
  const Values got = run_way(way, c.op, inputs, {!c.flags, true, true}, ones(inputs[1].sizes(), t), true);
  int faults = 0;
  for (size_t k = 0; k < in[0].size(); ++k) {
    const L a = in[0][k], b = in[1][k], x = in[2][k];
    const Exact3 want = c.exact(a, b, x);
    auto fits = [&](double found, L wanted, L terms) {
      if (const int edge = same_edge(found, wanted, t); edge >= 0) return edge == 1;
      L allowed = 4 * ulp_of(computed, wanted) + 2 * ulp_of(f, wanted) + 4 * smallest_of(computed);
      if (std::isfinite(terms)) allowed += 4 * std::ldexp(terms, -computed.digits);
      return std::fabs(found - wanted) <= allowed;
    };
    // As in PyTorch, the difference of both ends is a number of the type, also
    // times the weight, or what the weight leaves of 1.
    const L difference = std::fabs(b - a) * (1 + (std::isfinite(x) ? std::fabs(x) : 0));
    if (c.name == "lerp" && !(difference <= largest_of(t == DType::f16 ? computed : f))) continue;
    const L terms = c.terms(a, b, x);
    const L product = c.name.starts_with("addc") ? c.terms(0, b, x) : 0;  // or quotient, which has a place of its own
    const bool overflows = std::isfinite(product) && product > largest_of(t == DType::f16 ? computed : f);
    bool good = overflows || fits(got.y[k], want.y, terms);
    // The gradient by a divisor is made of the quotient, as a number of the type.
    const L rounding = c.name == "addcdiv" && std::isfinite(product) ? ulp_of(f, product) / std::fabs(x) : 0;
    for (int i = c.flags; i < 3; ++i) {
      const double found = got.gradients[static_cast<size_t>(i)][k];
      good &= fits(found, want.d[i], 0) || (i == 2 && std::fabs(found - want.d[i]) <= rounding);
    }
    if (good || ++faults > 4) continue;
    ADD_FAILURE() << c.name << "(" << in[0][k] << ", " << in[1][k] << ", " << in[2][k] << ") in " << name_of(t)
                  << " gives " << got.y[k] << " and gradients " << got.gradients[0][k] << ", " << got.gradients[1][k]
                  << ", " << got.gradients[2][k] << ", want " << double(want.y) << " and " << double(want.d[0]) << ", "
                  << double(want.d[1]) << ", " << double(want.d[2]);
  }
  EXPECT_LE(faults, 4) << c.name << " in " << name_of(t) << " is wrong in as many places";
}

class TernaryRange : public RangeTest {};
DEFT_RANGE_WAYS(TernaryRange);

TEST_P(TernaryRange, AgainstLongDouble) {
  for (const Case& c : kCases)
    for (DType t : {DType::f32, DType::bf16, DType::f16}) check(c, t, GetParam());
}
// A new one needs a definition above.
TEST(TernaryRangeOps, AllAreSwept) {
  size_t count = 0;
#define DEFT_TERNARY(Type, function) ++count;
#include "ops/ternary.def"
#undef DEFT_TERNARY
  EXPECT_EQ(count, kCases.size());
}
TEST_P(TernaryRange, ClampWithNumbers) {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const std::vector<double> all = magnitudes(t);
    const Tensor x = tensor(all).to(t);
    for (double low : all) {
      for (double high : all) {
        if (std::isnan(low) || std::isnan(high) || (low + high) * 0 != 0) continue;
        const Function op = [&](const std::vector<Tensor>& in) { return clamp(in[0], low, high); };
        const bool compiled = GetParam() == Way::compiled;
        if (compiled && low != -high) continue;  // a capture each: a sample
        const Values got = run_way(GetParam(), op, {x}, {true}, ones(x.sizes(), t), true);
        for (size_t i = 0; i < all.size(); ++i) {
          const double want = std::isnan(all[i]) ? kNan : std::min(std::max(all[i], low), high);
          ASSERT_EQ(same_edge(got.y[i], want, t) != 0 && (std::isnan(want) || got.y[i] == want), true)
              << "clamp(" << all[i] << ", " << low << ", " << high << ") in " << name_of(t) << " gives " << got.y[i];
          ASSERT_EQ(got.gradients[0][i], all[i] > low && all[i] < high) << all[i] << " " << low << " " << high;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deft::testing
