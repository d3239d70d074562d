#include "ops/gradcheck.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "core/describe.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "ops/creation.h"
#include "ops/view.h"
#include "runtime/random.h"

namespace deft {

namespace {

constexpr int64_t kFullLimit = 200;    // entries of a Jacobian that is checked whole
constexpr int64_t kElementLimit = 64;  // elements of an input that are moved one by one
constexpr int kDirections = 4;         // otherwise: random directions to move it in
constexpr uint64_t kSeed = 0x6772616463686bull;
constexpr double kLayoutTolerance = 1e-9;

using Tensors = std::vector<Tensor>;

double normal(uint64_t draw, uint64_t i) {
  auto bits = philox({kSeed, draw}, i);
  double u = 1 - uniform_from_bits(bits[0], bits[1]), v = uniform_from_bits(bits[2], bits[3]);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

Tensor random_normal(const Shape& sizes, uint64_t draw) {
  Tensor t = empty(sizes, DType::f64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = normal(draw, static_cast<uint64_t>(i));
  return t;
}

// Row-major values that the host can read.
Tensor host(const Tensor& x) { return x.defined() ? x.detach().to(kCPU).contiguous() : Tensor(); }

// The same values in permuted, spaced out memory.
Tensor scattered(const Tensor& x) {
  Shape strides = x.sizes();
  int64_t step = 2;
  for (int i = 0; i < strides.size(); ++i) {
    strides[i] = step;
    step *= std::max<int64_t>(x.sizes()[i], 1);
  }
  Tensor room = zeros({step + 1}, TensorOptions(x.dtype(), x.device()));
  Tensor t = as_strided(room, x.sizes(), strides, 1);
  t.copy_(x);
  return t;
}

std::string place(const Shape& sizes, int64_t flat) {
  Shape index = sizes;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    index[i] = flat % sizes[i];
    flat /= sizes[i];
  }
  return to_string(index);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!(a.sizes() == b.sizes()) || a.dtype() != b.dtype()) return false;
  Tensor x = host(a), y = host(b);
  return std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

class Checker {
 public:
  Checker(const char* name, const GradcheckFn& f, const Tensors& inputs, const GradcheckOptions& options,
          const Site& site)
      : name_(name), f_(f), options_(options), site_(site), base_(inputs.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& x = inputs[i];
      leaves_.push_back(x);
      if (!x.defined() || !is_floating(x.dtype())) continue;
      DEFT_CHECK(x.dtype() == DType::f64, DTypeError, "{}: input {} is {}, differences need f64; convert it with to()",
                 name_, i, describe(x.meta()));
      leaves_[i] = x.detach().clone(MemoryFormat::contiguous);
      if (!x.requires_grad()) continue;
      leaves_[i].requires_grad_();
      base_[i] = host(x);
      checked_.push_back(i);
      input_count_ += x.numel();
    }
    DEFT_CHECK(!checked_.empty(), ValueError, "{}: no input requires grad; call requires_grad_() on those to check",
               name_);
  }

  // `constants_allowed`: results may turn out not to depend on the inputs (gradients of linear functions).
  void run(bool constants_allowed) {
    Tensors first = evaluate();
    bool any = false;
    for (size_t o = 0; o < first.size(); ++o) {
      if (!first[o].defined() || !is_floating(first[o].dtype())) continue;
      outputs_.push_back(o);
      output_count_ += first[o].numel();
      any |= first[o].requires_grad();
      cotangents_.push_back(random_normal(first[o].sizes(), 100 + o));
      on_device_.push_back(cotangents_.back().to(first[o].device()));
    }
    DEFT_CHECK(any || constants_allowed, GradError, "{}: no output of the function requires grad", name_);
    check_repeats(first);
    bool full = options_.full.value_or(input_count_ * output_count_ <= kFullLimit);
    full ? check_jacobian() : check_projections();
  }

 private:
  Tensors evaluate() const { return evaluate(leaves_); }
  Tensors evaluate(const Tensors& inputs) const {
    RngScope rng({kSeed, 0});
    return f_(inputs);
  }
  Tensors outputs_only(const Tensors& all) const {
    Tensors out;
    for (size_t o : outputs_) out.push_back(all[o]);
    return out;
  }

  // Gradients of the checked inputs, on the host; undefined where an input takes no part.
  Tensors analytic(const Tensors& all, const Tensors& cotangents, bool retain = false) const {
    Tensors roots, grads, inputs;
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (all[outputs_[i]].requires_grad() && cotangents[i].defined()) {
        roots.push_back(all[outputs_[i]]);
        grads.push_back(cotangents[i]);
      }
    for (size_t i : checked_) inputs.push_back(leaves_[i]);
    if (roots.empty()) return Tensors(inputs.size());
    Tensors result = grad(roots, inputs, grads, {.retain_graph = retain, .allow_unused = true}, site_);
    for (size_t i = 0; i < result.size(); ++i) {
      if (!result[i].defined()) continue;
      DEFT_CHECK(result[i].sizes() == inputs[i].sizes() && result[i].dtype() == DType::f64, GradError,
                 "{}: the gradient of input {} is {}, the input is {}", name_, checked_[i], describe(result[i].meta()),
                 describe(inputs[i].meta()));
      result[i] = host(result[i]);
      const double* g = result[i].data<double>();
      for (int64_t k = 0; k < result[i].numel(); ++k)
        DEFT_CHECK(std::isfinite(g[k]), GradError, "{}: the gradient of input {} at {} is {}", name_, checked_[i],
                   place(result[i].sizes(), k), g[k]);
    }
    return result;
  }

  void check_repeats(const Tensors& first) const {
    Tensors again = evaluate();
    for (size_t o : outputs_)
      DEFT_CHECK(same_bits(first[o], again[o]), GradError,
                 "{}: two calls of the function with the same inputs gave different results (output {})", name_, o);
    Tensors a = analytic(first, on_device_), b = analytic(again, on_device_);
    Tensors odd;
    for (const Tensor& c : on_device_) odd.push_back(scattered(c));
    Tensors s = analytic(evaluate(), odd);
    for (size_t i = 0; i < a.size(); ++i) {
      DEFT_CHECK(same_bits(a[i], b[i]), GradError, "{}: two backward passes gave different gradients for input {}",
                 name_, checked_[i]);
      DEFT_CHECK(a[i].defined() == s[i].defined(), GradError,
                 "{}: whether input {} has a gradient depends on the memory layout of the incoming gradient", name_,
                 checked_[i]);
      if (!a[i].defined()) continue;
      for (int64_t k = 0; k < a[i].numel(); ++k) {
        double x = a[i].data<double>()[k], y = s[i].data<double>()[k];
        DEFT_CHECK(
            std::fabs(x - y) <= kLayoutTolerance * (1 + std::fabs(x)), GradError,
            "{}: the gradient of input {} at {} is {} for a contiguous incoming gradient and {} for a strided one",
            name_, checked_[i], place(a[i].sizes(), k), x, y);
      }
    }
  }

  // Outputs, as flat values, after moving input `i` by `step` in direction `v` (one per element; empty: element k
  // only).
  std::vector<std::vector<double>> moved(size_t i, int64_t k, const std::vector<double>& v, double step) const {
    Tensor x = base_[i].clone();
    double* p = x.data<double>();
    if (v.empty()) {
      p[k] += step;
    } else {
      for (int64_t j = 0; j < x.numel(); ++j) p[j] += step * v[static_cast<size_t>(j)];
    }
    Tensors inputs = leaves_;
    inputs[i] = x.to(leaves_[i].device()).requires_grad_();
    std::vector<std::vector<double>> values;
    for (const Tensor& out : outputs_only(evaluate(inputs))) values.push_back(out.to_vector<double>());
    return values;
  }
  // d(outputs)/d(step) by central differences.
  std::vector<std::vector<double>> numeric(size_t i, int64_t k, const std::vector<double>& v = {}) const {
    double h = options_.eps;
    auto up = moved(i, k, v, h), down = moved(i, k, v, -h), up2 = up, down2 = down;
    if (options_.fourth_order) {
      up2 = moved(i, k, v, 2 * h);
      down2 = moved(i, k, v, -2 * h);
    }
    for (size_t o = 0; o < up.size(); ++o)
      for (size_t j = 0; j < up[o].size(); ++j) {
        double near = up[o][j] - down[o][j], far = up2[o][j] - down2[o][j];
        up[o][j] = options_.fourth_order ? (8 * near - far) / (12 * h) : near / (2 * h);
      }
    return up;
  }

  void compare(double got, double want, const Tensor& g, const std::string& where) const {
    double tol = options_.atol + options_.rtol * std::fabs(want);
    if (std::fabs(got - want) <= tol) return;
    DEFT_CHECK(g.defined(), GradError, "{}: {} has no gradient, but differences give {}", name_, where, want);
    DEFT_FAIL(GradError, "{}: the gradient of {} is {}, differences give {} (tolerance {})", name_, where, got, want,
              tol);
  }

  void check_jacobian() {
    // numbers[c]: column of input element c; outputs one after the other.
    Tensors out = evaluate();
    std::vector<std::vector<std::vector<double>>> columns;
    for (size_t i : checked_)
      for (int64_t k = 0; k < leaves_[i].numel(); ++k) columns.push_back(numeric(i, k));
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Tensor& y = out[outputs_[o]];
      for (int64_t r = 0; r < y.numel(); ++r) {
        Tensors one(outputs_.size());
        one[o] = zeros(y.sizes(), DType::f64);
        one[o].data<double>()[r] = 1;
        one[o] = one[o].to(y.device());
        Tensors row = analytic(out, one, true);
        size_t c = 0;
        for (size_t i = 0; i < checked_.size(); ++i) {
          const Tensor& x = leaves_[checked_[i]];
          for (int64_t k = 0; k < x.numel(); ++k, ++c)
            compare(row[i].defined() ? row[i].data<double>()[k] : 0, columns[c][o][static_cast<size_t>(r)], row[i],
                    fmt::format("output {} at {} with respect to input {} at {}", outputs_[o], place(y.sizes(), r),
                                checked_[i], place(x.sizes(), k)));
        }
      }
    }
  }

  double project(const std::vector<std::vector<double>>& values) const {
    double sum = 0;
    for (size_t o = 0; o < values.size(); ++o)
      for (size_t j = 0; j < values[o].size(); ++j) sum += values[o][j] * cotangents_[o].data<double>()[j];
    return sum;
  }

  void check_projections() {
    Tensors g = analytic(evaluate(), on_device_);
    for (size_t i = 0; i < checked_.size(); ++i) {
      const Tensor& x = leaves_[checked_[i]];
      if (x.numel() <= kElementLimit) {
        for (int64_t k = 0; k < x.numel(); ++k)
          compare(
              g[i].defined() ? g[i].data<double>()[k] : 0, project(numeric(checked_[i], k)), g[i],
              fmt::format("a random sum of outputs with respect to input {} at {}", checked_[i], place(x.sizes(), k)));
        continue;
      }
      for (int d = 0; d < kDirections; ++d) {
        std::vector<double> v(static_cast<size_t>(x.numel()));
        double along = 0;
        for (size_t k = 0; k < v.size(); ++k) {
          v[k] = normal(1000 + checked_[i] * kDirections + static_cast<size_t>(d), k) /
                 std::sqrt(static_cast<double>(v.size()));
          if (g[i].defined()) along += v[k] * g[i].data<double>()[k];
        }
        compare(along, project(numeric(checked_[i], 0, v)), g[i],
                fmt::format("a random sum of outputs along a random direction of input {}", checked_[i]));
      }
    }
  }

  const char* name_;
  const GradcheckFn& f_;
  GradcheckOptions options_;
  Site site_;
  Tensors base_;  // values of the checked inputs, on the host
  Tensors leaves_;
  std::vector<size_t> checked_, outputs_;
  Tensors cotangents_, on_device_;
  int64_t input_count_ = 0, output_count_ = 0;
};

}  // namespace

void gradcheck(const GradcheckFn& f, const std::vector<Tensor>& inputs, GradcheckOptions options, Site site) {
  EnableGradGuard guard(site);
  Checker("gradcheck", f, inputs, options, site).run(false);
}

bool gradcheck_ok(const GradcheckFn& f, const std::vector<Tensor>& inputs, GradcheckOptions options, Site site) {
  try {
    gradcheck(f, inputs, options, site);
    return true;
  } catch (const GradError&) {
    return false;
  }
}

void gradgradcheck(const GradcheckFn& f, const std::vector<Tensor>& inputs, GradcheckOptions options, Site site) {
  EnableGradGuard guard(site);
  std::vector<size_t> wanted;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && is_floating(inputs[i].dtype()) && inputs[i].requires_grad()) wanted.push_back(i);
  DEFT_CHECK(!wanted.empty(), ValueError,
             "gradgradcheck: no input requires grad; call requires_grad_() on those to check");
  // Inputs of the new function: the old ones, then one incoming gradient per output that has a graph.
  Tensors all = inputs;
  std::vector<size_t> roots;
  Tensors first;
  {
    RngScope rng({kSeed, 0});
    first = f(inputs);
  }
  for (size_t o = 0; o < first.size(); ++o) {
    if (!first[o].defined() || !first[o].requires_grad()) continue;
    roots.push_back(o);
    all.push_back(random_normal(first[o].sizes(), 200 + o).to(first[o].device()).requires_grad_());
  }
  DEFT_CHECK(!roots.empty(), GradError, "gradgradcheck: no output of the function requires grad");
  size_t count = inputs.size();
  auto gradients = [&](const Tensors& in) {
    Tensors y = f(Tensors(in.begin(), in.begin() + static_cast<int64_t>(count)));
    Tensors from, to, g;
    for (size_t r : roots) from.push_back(y[r]);
    for (size_t i : wanted) to.push_back(in[i]);
    for (size_t i = count; i < in.size(); ++i) g.push_back(in[i]);
    Tensors result = grad(from, to, g, {.create_graph = true, .allow_unused = true}, site);
    for (size_t i = 0; i < result.size(); ++i)
      if (!result[i].defined()) result[i] = zeros_like(to[i]);
    return result;
  };
  GradcheckFn second = gradients;
  Checker("gradgradcheck", second, all, options, site).run(true);
}

}  // namespace deft
