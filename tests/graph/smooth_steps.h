// Steps whose rounding can be followed: smooth_program(). For the passes that round differently.
//
// Each step says how far its results may be off: what its inputs are off by times how fast it grows, and one rounding
// more or less of its own. Roundings are those that passes may change: the stored type's for every result in between,
// and f32's, the type of the sums, for every term of a sum. Both sides may be off by that, eager and compiled.
#pragma once

#include "ops/all_ops.h"
#include "random_program.h"

namespace deft::testing {

inline double largest_of(const Tensor& t) { return t.numel() ? t.to(DType::f64).abs().amax().item() : 0; }

class SmoothStep {
 public:
  SmoothStep(ProgramMaker& maker, DType dtype, bool images)
      : m_(maker), dice_(maker.dice), dtype_(dtype), images_(images) {
    bool low = maker.p.autocast != DType::boolean;
    eps_ = epsilon_of(low ? maker.p.autocast : dtype);
    sum_eps_ = epsilon_of(DType::f32);
    values_.push_back(leaf(images ? Shape{2, 4, 5, 6} : Shape{dice_.between(1, 6), 8 * dice_.between(1, 4)}, false));
  }

  void add() {
    using Kind = void (SmoothStep::*)();
    static const std::vector<Kind> flat = {&SmoothStep::linear_step, &SmoothStep::linear_step, &SmoothStep::activate,
                                           &SmoothStep::activate,    &SmoothStep::sum,         &SmoothStep::sum,
                                           &SmoothStep::scale,       &SmoothStep::product,     &SmoothStep::in_place,
                                           &SmoothStep::part,        &SmoothStep::attention,   &SmoothStep::norm};
    static const std::vector<Kind> image = {&SmoothStep::convolve, &SmoothStep::convolve, &SmoothStep::activate,
                                            &SmoothStep::activate, &SmoothStep::sum,      &SmoothStep::sum,
                                            &SmoothStep::scale,    &SmoothStep::in_place, &SmoothStep::part,
                                            &SmoothStep::norm,     &SmoothStep::norm};
    (this->*dice_.of(images_ ? image : flat))();
  }

 private:
  using Errors = std::vector<double>;
  using ErrorFn = std::function<double(const Tensors& in, const Errors& in_error, const Tensors& out)>;

  int leaf(const Shape& sizes, bool constant, double low = -1, double high = 1) {
    Layout layout = images_ && sizes.size() == 4 && dice_.chance(50) ? Layout::channels_last : Layout::contiguous;
    return m_.leaf({real(sizes, low, high), dtype_, layout}, constant);
  }
  // Mostly what was made last: chains.
  int some() {
    size_t n = values_.size();
    return dice_.chance(60) ? values_[n - 1] : dice_.of(values_);
  }
  int like(int a) {
    std::vector<int> same;
    for (int s : values_)
      if (m_.at(s).sizes() == m_.at(a).sizes() && s != a) same.push_back(s);
    return same.empty() ? leaf(m_.at(a).sizes(), dice_.chance(50)) : dice_.of(same);
  }
  int make(const std::string& text, const std::vector<int>& in, std::function<Tensor(const Tensors&)> f,
           ErrorFn error) {
    bool made = m_.step({.text = text,
                         .in = in,
                         .out = {},
                         .run = [f](const Tensors& x) { return Tensors{f(x)}; },
                         .error = std::move(error)},
                        1);
    if (made) values_.push_back(m_.p.steps.back().out[0]);
    return made ? values_.back() : in[0];
  }

  // Of weights [out, ...]: the largest sum of absolute values per output.
  static double row_sum(const Tensor& w) {
    return largest_of(w.to(DType::f64).abs().reshape({w.size(0), -1}).sum({1}));
  }
  ErrorFn product_error(int64_t terms) const {
    double eps = eps_, sum_eps = sum_eps_;
    return [=](const Tensors& in, const Errors& e, const Tensors&) {
      double rows = row_sum(in[1]), size = rows * (largest_of(in[0]) + e[0]) + (in.size() > 2 ? largest_of(in[2]) : 0);
      // Inputs, weights (folded, or converted by autocast) and the result, each once.
      return rows * e[0] + (4 * eps + static_cast<double>(terms) * sum_eps) * size;
    };
  }
  void linear_step() {
    int a = some();
    int64_t k = m_.at(a).size(-1), n = 8 * dice_.between(1, 4);
    if (dice_.chance(50)) n = m_.at(values_[0]).size(-1);
    double most = 2 / std::sqrt(static_cast<double>(k));
    std::vector<int> in{a, leaf({n, k}, true, -most, most)};
    if (dice_.chance(60)) in.push_back(leaf({n}, true));
    make(
        "linear", in, [](const Tensors& x) { return linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor()); },
        product_error(k));
  }
  void convolve() {
    int a = some();
    int64_t c = m_.at(a).size(1), n = dice_.chance(60) ? 4 : 2 * dice_.between(1, 4), side = dice_.chance(50) ? 1 : 3;
    int64_t terms = c * side * side;
    double most = 2 / std::sqrt(static_cast<double>(terms));
    std::vector<int> in{a, leaf({n, c, side, side}, true, -most, most)};
    if (dice_.chance(60)) in.push_back(leaf({n}, true));
    make(
        fmt::format("conv2d({}x{})", side, side), in,
        [side](const Tensors& x) { return conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), {1}, {side / 2}); },
        product_error(terms));
  }
  // Batch norm with fixed statistics, or layer norm, which is not for batches of images.
  void norm() {
    int a = some();
    double eps = eps_;
    if (!images_) {
      int64_t n = m_.at(a).size(-1);
      make(
          "layer_norm", {a}, [n](const Tensors& x) { return layer_norm(x[0], {n}, {}, {}, 0.1); },
          [eps](const Tensors& in, const Errors& e, const Tensors& out) {
            // The derivative of (x - mean) / sqrt(var + 0.1): at most 2 (1 + |y|) / sqrt(0.1) by the largest change.
            double y = largest_of(out[0]);
            return 2 * (1 + y) / std::sqrt(0.1) * (e[0] + eps * largest_of(in[0])) + 2 * eps * y;
          });
      return;
    }
    int64_t c = m_.at(a).size(1);
    std::vector<int> in{a, leaf({c}, true), leaf({c}, true, 0.5, 2), leaf({c}, true, 0.5, 1), leaf({c}, true)};
    make(
        "batch_norm", in, [](const Tensors& x) { return batch_norm(x[0], x[1], x[2], x[3], x[4], false); },
        [eps](const Tensors& t, const Errors& e, const Tensors&) {
          double slope = largest_of(t[3]) / std::sqrt(0.5);
          double size = slope * (largest_of(t[0]) + largest_of(t[1])) + largest_of(t[4]);
          return slope * e[0] + 4 * eps * size;
        });
  }
  void activate() {
    struct Named {
      const char* name;
      Tensor (*f)(const Tensor&);
    };
    static const std::vector<Named> all = {
        {"relu", [](const Tensor& x) { return x.relu(); }},
        {"gelu", [](const Tensor& x) { return gelu(x); }},
        {"gelu(tanh)", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }},
        {"silu", [](const Tensor& x) { return silu(x); }},
        {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }},
        {"tanh", [](const Tensor& x) { return x.tanh(); }}};
    const Named& chosen = dice_.of(all);
    double eps = eps_, sum_eps = sum_eps_;
    // No slope is above 1.2; formulas of fused ones differ by a few roundings of f32.
    make(
        chosen.name, {some()}, [f = chosen.f](const Tensors& x) { return f(x[0]); },
        [=](const Tensors& in, const Errors& e, const Tensors& out) {
          return 1.2 * e[0] + eps * largest_of(out[0]) + 8 * sum_eps * (1 + largest_of(in[0]));
        });
  }
  ErrorFn sum_error() const {
    double eps = eps_;
    return [eps](const Tensors& in, const Errors& e, const Tensors&) {
      return e[0] + e[1] + eps * (largest_of(in[0]) + largest_of(in[1]));
    };
  }
  void sum() {
    int a = some(), b = like(a);
    if (dice_.chance(50)) std::swap(a, b);
    make(
        "add", {a, b}, [](const Tensors& x) { return x[0] + x[1]; }, sum_error());
  }
  void product() {
    int a = some(), b = like(a);
    double eps = eps_;
    make(
        "mul", {a, b}, [](const Tensors& x) { return x[0] * x[1]; },
        [eps](const Tensors& in, const Errors& e, const Tensors&) {
          double x = largest_of(in[0]) + e[0], y = largest_of(in[1]) + e[1];
          return x * e[1] + y * e[0] + eps * x * y;
        });
  }
  void scale() {
    double eps = eps_;
    make(
        "* 0.3", {some()}, [](const Tensors& x) { return x[0] * 0.3; },
        [eps](const Tensors&, const Errors& e, const Tensors& out) { return 0.3 * e[0] + eps * largest_of(out[0]); });
  }
  void part() {
    int a = some();
    int64_t n = m_.at(a).size(0), from = dice_.below(n), length = dice_.between(1, n - from);
    make(
        fmt::format("narrow(0, {}, {})", from, length), {a},
        [=](const Tensors& x) { return x[0].narrow(0, from, length); },
        [](const Tensors&, const Errors& e, const Tensors&) { return e[0]; });
  }
  // Only into what the program made.
  void in_place() {
    std::vector<int> made;
    auto is_outside = [&](int slot) {
      auto shares = [&](int leaf) { return m_.at(leaf).shares_storage_with(m_.at(slot)); };
      return std::any_of(m_.p.input_slots.begin(), m_.p.input_slots.end(), shares) ||
             std::any_of(m_.p.constant_slots.begin(), m_.p.constant_slots.end(), shares);
    };
    for (const Step& s : m_.p.steps)
      if (!s.out.empty() && !is_outside(s.out[0])) made.push_back(s.out[0]);
    if (made.empty()) return;
    int a = dice_.chance(60) ? made.back() : dice_.of(made);
    if (dice_.chance(50)) {
      m_.step({.text = "relu_",
               .in = {a},
               .out = {},
               .run =
                   [](const Tensors& x) {
                     Tensor(x[0]).relu_();
                     return Tensors{};
                   },
               .error = [](const Tensors&, const Errors& e, const Tensors&) { return e[0]; },
               .writes = true},
              0);
      return;
    }
    int b = like(a);
    m_.step({.text = "add_",
             .in = {a, b},
             .out = {},
             .run =
                 [](const Tensors& x) {
                   Tensor(x[0]).add_(x[1]);
                   return Tensors{};
                 },
             .error = sum_error(),
             .writes = true},
            0);
  }
  // softmax(q k^T / 4) v, in single ops.
  void attention() {
    int x = some();
    int64_t d = m_.at(x).size(-1);
    double eps = eps_, sum_eps = sum_eps_;
    auto errors = [=](double terms) -> ErrorFn {
      return [=](const Tensors& in, const Errors& e, const Tensors&) {
        double a = largest_of(in[0]) + e[0], b = largest_of(in[1]) + e[1];
        return terms * (a * e[1] + b * e[0] + (3 * eps + terms * sum_eps) * a * b);
      };
    };
    int scores = make(
        "matmul(q, k.t())", {x, x}, [](const Tensors& t) { return matmul(t[0], t[1].t()); },
        errors(static_cast<double>(d)));
    int scaled = make(
        "* 0.25", {scores}, [](const Tensors& t) { return t[0] * 0.25; },
        [eps](const Tensors&, const Errors& e, const Tensors& out) { return 0.25 * e[0] + eps * largest_of(out[0]); });
    int weights = make(
        "softmax(-1)", {scaled}, [](const Tensors& t) { return t[0].softmax(-1); },
        [eps](const Tensors& in, const Errors& e, const Tensors&) { return 2 * e[0] + eps * (2 + largest_of(in[0])); });
    make(
        "matmul(p, v)", {weights, x}, [](const Tensors& t) { return matmul(t[0], t[1]); },
        errors(static_cast<double>(m_.at(x).size(0))));
  }

  ProgramMaker& m_;
  Dice& dice_;
  DType dtype_;
  bool images_;
  double eps_, sum_eps_;
  std::vector<int> values_;
};

inline Program smooth_program(uint64_t seed) {
  ProgramMaker m(seed);
  Dice& dice = m.dice;
  m.p.inference = dice.chance(40);
  static const std::vector<DType> types = {DType::f32, DType::f32, DType::f32, DType::bf16, DType::f16};
  DType dtype = dice.of(types);
  if (dtype == DType::f32 && dice.chance(25)) m.p.autocast = DType::bf16;
  SmoothStep steps(m, dtype, dice.chance(40));
  {
    InferenceModeGuard inference(m.p.inference);
    NoGradGuard no_grad;
    std::optional<AutocastGuard> autocast;
    if (m.p.autocast != DType::boolean) autocast.emplace(m.p.autocast);
    for (int64_t n = dice.between(2, 10); n > 0; --n) steps.add();
  }
  m.choose_results(3);
  return m.p;
}

// How far the program's results may be off on either side. Errors belong to memory: views share them, and what is
// written keeps the larger one.
inline std::vector<double> result_errors(const Program& p, const Tensors& inputs, const Tensors& constants,
                                         const std::vector<bool>& on) {
  std::unordered_map<const Storage*, double> of;
  Tensors slots(static_cast<size_t>(p.slots));
  for (size_t i = 0; i < inputs.size(); ++i) slots[static_cast<size_t>(p.input_slots[i])] = inputs[i].clone();
  for (size_t i = 0; i < constants.size(); ++i) slots[static_cast<size_t>(p.constant_slots[i])] = constants[i].clone();
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    Tensors in, before, out;
    std::vector<double> errors;
    for (int slot : s.in) in.push_back(slots[static_cast<size_t>(slot)]);
    if (!on[i] || std::any_of(in.begin(), in.end(), [](const Tensor& t) { return !t.defined(); })) continue;
    for (const Tensor& t : in) errors.push_back(of[t.impl()->storage]), before.push_back(s.writes ? t.clone() : t);
    run_step(s, slots);
    for (int slot : s.out) out.push_back(slots[static_cast<size_t>(slot)]);
    double& found = of[(s.writes ? in[0] : out[0]).impl()->storage];
    found = std::max(found, s.error(before, errors, out));
  }
  std::vector<double> bounds;
  for (const Tensor& t : results_of(p, slots)) bounds.push_back(of[t.impl()->storage]);
  return bounds;
}

}  // namespace deft::testing
