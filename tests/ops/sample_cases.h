// What is checked of every sample. See generated_test.cpp for how the cases are named and registered.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "case_checks.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "core/graph_stats.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/gradcheck.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "runtime/random.h"
#include "runtime/stream.h"

namespace deft::testing {

constexpr int64_t kGradLimit = 400;      // input elements of a sample for gradcheck
constexpr int64_t kGradGradLimit = 120;  // and for gradgradcheck
constexpr PhiloxState kRandomState{42, 0};
// Sharp enough to find a formula that goes through f32 on the way, which is off by up to 3e-8.
constexpr GradcheckOptions kGradcheck{.eps = 1e-4, .atol = 5e-10, .rtol = 1e-9, .fourth_order = true};

// Gradients of low precision types are a few roundings further away than results.
inline Bound grad_bound(const OpSamples& op, double largest) { return {4 * op.growth, op.scale * (1 + largest)}; }

// Each call draws the same random numbers.
inline Tensors run(const SampleFn& f, const Tensors& inputs) {
  RngScope rng(kRandomState);
  return f(inputs);
}

inline bool is_view_op(const OpSamples& op) {
  const OpInfo* info = find_op_info(op.op);
  return info && info->fusion == Fusion::view;
}

// The type a result must have, given the type it has for f64 inputs.
inline bool dtype_fits(DType got, DType in, DType for_f64) {
  if (for_f64 != DType::f64) return got == for_f64;
  if (is_floating(in)) return got == in;
  return got == in || got == DType::i64 || got == DType::f32;
}

inline Tensor on_host(const Tensor& t) { return t.defined() ? t.detach().to(kCPU) : t; }

// On a device: nothing is written behind a result or scratch memory. Freed blocks are checked when they are freed, so
// that a guard made before all tensors of a case sees every one of them.
class GuardWords {
 public:
  explicit GuardWords(Device device) : on_(!device.is_cpu()) {
    if (!on_) return;
    set_guard_words(true);
    before_ = check_guard_words();
  }
  ~GuardWords() {
    if (!on_) return;
    EXPECT_EQ(check_guard_words() - before_, 0) << "blocks were written past their end";
    set_guard_words(false);
  }
  GuardWords(const GuardWords&) = delete;
  GuardWords& operator=(const GuardWords&) = delete;

 private:
  bool on_;
  int64_t before_ = 0;
};

inline void check_forward(const OpSamples& op, const Sample& s, DType dtype, Layout layout, uint64_t seed,
                          Device device) {
  GuardWords guard(device);
  CaseInputs in(s.args, dtype, seed, layout, device);
  const Tensors& inputs = in.given;
  Tensors reference = as_reference(s.args, in.host);
  Unchanged unchanged(in);
  Tensors got = run(s.call, inputs);
  EXPECT_EQ(unchanged.problem(), "");
  ASSERT_FALSE(got.empty()) << "the call gave no result";
  ASSERT_TRUE(s.expect) << "the sample has no expect()";
  Tensors want = run(s.expect, reference);
  ASSERT_LE(want.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined()) continue;
    if (!inputs.empty()) {  // what is made of nothing lies on the CPU
      EXPECT_EQ(got[i].device(), device) << "output " << i;
    }
    if (i < want.size() && want[i].defined()) {
      EXPECT_EQ(compare(on_host(got[i]), want[i], {op.growth, op.scale}), "") << "output " << i;
    }
    if (op.may_alias || is_view_op(op)) continue;
    for (size_t k = 0; k < inputs.size(); ++k)
      EXPECT_FALSE(inputs[k].defined() && got[i].numel() && inputs[k].shares_storage_with(got[i]))
          << "output " << i << " shares memory with input " << k;
  }
  if (!op.dtypes.contains(DType::f64)) return;
  Tensors wide = run(s.call, reference);
  ASSERT_EQ(wide.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(wide[i].defined(), got[i].defined());
    if (!got[i].defined()) continue;
    EXPECT_TRUE(dtype_fits(got[i].dtype(), dtype, wide[i].dtype()))
        << "output " << i << " is " << name_of(got[i].dtype()) << "; for f64 inputs it is " << name_of(wide[i].dtype());
    EXPECT_EQ(got[i].sizes(), wide[i].sizes()) << "output " << i;
  }
}

// Inputs as leaves that require grad wherever the sample says so.
inline Tensors leaves(const std::vector<Arg>& args, const Tensors& inputs, bool on = true) {
  Tensors out = inputs;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!inputs[i].defined() || !is_floating(inputs[i].dtype())) continue;
    out[i] = inputs[i].detach();
    if (on && args[i].grad) out[i].requires_grad_();
  }
  return out;
}

// Results of the same call on the same inputs. Only sums in no fixed order, which devices make where indices repeat,
// may differ by a few roundings.
inline std::string difference(const OpSamples& op, const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return "";
  static const std::set<std::string> unordered = {"scatter_add", "index_add", "index_put"};
  if (a.defined() && b.defined() && !a.device().is_cpu() && unordered.count(op.op))
    return compare(on_host(a), on_host(b), {op.growth, op.scale});
  return "the bits differ";
}

inline void check_modes(const OpSamples& op, const Sample& s, DType dtype, uint64_t seed, Device device) {
  Tensors inputs = leaves(s.args, make_inputs(s.args, dtype, seed, Layout::contiguous, device), op.grad);
  Tensors plain;
  {
    Tensors recorded = run(s.call, inputs);
    bool any = false, wanted = false;
    for (const Tensor& x : inputs) wanted |= x.defined() && x.requires_grad();
    for (const Tensor& t : recorded) {
      plain.push_back(t.defined() ? t.detach().clone() : Tensor());
      any |= t.defined() && t.requires_grad();
    }
    EXPECT_TRUE(any || !wanted) << "inputs require grad but no output does";
  }
  GraphStats before = graph_stats();
  auto check = [&](const char* mode, const Tensors& got) {
    GraphStats after = graph_stats();
    EXPECT_EQ(after.live_nodes, before.live_nodes) << mode << " recorded a node";
    EXPECT_EQ(after.saved_bytes, before.saved_bytes) << mode << " saved bytes";
    ASSERT_EQ(got.size(), plain.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(difference(op, got[i], plain[i]), "") << mode << " changed output " << i;
      if (!got[i].defined()) continue;
      bool is_input = false;
      for (const Tensor& x : inputs) is_input |= x.defined() && got[i].is_same(x);
      if (is_input) continue;
      EXPECT_FALSE(got[i].requires_grad()) << mode << ", output " << i;
      EXPECT_EQ(got[i].grad_fn_name(), std::string()) << mode << ", output " << i;
    }
  };
  no_grad([&] { check("no_grad", run(s.call, inputs)); });
  inference_mode([&] { check("inference_mode", run(s.call, inputs)); });
}

inline int64_t real_elements(const std::vector<Arg>& args) {
  int64_t n = 0;
  for (const Arg& a : args)
    if (a.kind == Arg::Kind::real) n += checked_numel(a.sizes, DType::f64);
  return n;
}
inline bool any_grad_arg(const std::vector<Arg>& args) {
  for (const Arg& a : args)
    if (a.kind == Arg::Kind::real && a.grad) return true;
  return false;
}

// Random gradients for the floating outputs, rounded to `dtype` and given as `as`, on the host.
inline Tensors cotangents_for(const Tensors& outputs, DType dtype, DType as, uint64_t seed,
                              Layout layout = Layout::contiguous) {
  Tensors u;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad()) {
      u.emplace_back();
      continue;
    }
    Arg arg{.sizes = outputs[i].sizes(), .low = -1, .high = 1};
    u.push_back(make_inputs({arg}, dtype, seed + i + 1, layout)[0].to(as));
  }
  return u;
}

// Gradients of the real inputs for random cotangents; undefined where there is none.
inline Tensors gradients(const Sample& s, const Tensors& inputs, const Tensors& outputs, const Tensors& cotangents) {
  Tensors roots, u, wanted;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (cotangents[i].defined()) {
      roots.push_back(outputs[i]);
      u.push_back(cotangents[i].to(outputs[i].dtype()).to(outputs[i].device()));
    }
  std::vector<size_t> at;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].requires_grad()) {
      wanted.push_back(inputs[i]);
      at.push_back(i);
    }
  Tensors result(s.args.size());
  if (roots.empty() || wanted.empty()) return result;
  Tensors g = grad(roots, wanted, u, {.allow_unused = true});
  for (size_t k = 0; k < at.size(); ++k) result[at[k]] = g[k];
  return result;
}

inline double largest(const Tensor& t) {
  double m = 0;
  for (double v : t.to_vector<double>()) m = std::max(m, std::fabs(v));
  return m;
}

inline bool all_finite(const Tensors& list) {
  for (const Tensor& t : list)
    if (t.defined())
      for (double v : t.to_vector<double>())
        if (!std::isfinite(v)) return false;
  return true;
}

// Against differences, on the host.
inline void check_gradient(const OpSamples& op, const Sample& s, uint64_t seed) {
  Tensors inputs = leaves(s.args, make_inputs(s.args, DType::f64, seed));
  if (!all_finite(run(s.call, inputs))) GTEST_SKIP() << "there is no derivative where the result is not finite";
  Unchanged unchanged(inputs, inputs);
  // These jump where the quotient is whole, which no choice of inputs keeps far away.
  static const std::set<std::string> jumps = {"remainder", "fmod", "floor_divide"};
  GradcheckOptions options = jumps.count(op.op) ? GradcheckOptions{} : kGradcheck;
  try {
    gradcheck(s.call, inputs, options);
    if (op.gradgrad && real_elements(s.args) <= kGradGradLimit) gradgradcheck(s.call, inputs, options);
  } catch (const Error& e) {
    ADD_FAILURE() << class_of(e) << ": " << e.what();
  }
  EXPECT_EQ(unchanged.problem(), "");
}

// Gradients of the inputs that want one and, with `twice`, gradients of those with respect to the same inputs and the
// incoming gradients. The latter are random and the same on every device.
struct Derivatives {
  Tensors first, second;
};
inline Derivatives derivatives(const Sample& s, const Tensors& inputs, uint64_t seed, bool twice,
                               Layout layout = Layout::contiguous) {
  Tensors outputs = run(s.call, inputs), roots, u, wanted;
  Tensors cotangents = cotangents_for(outputs, DType::f64, DType::f64, seed, layout);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!cotangents[i].defined()) continue;
    roots.push_back(outputs[i]);
    u.push_back(on_device({cotangents[i]}, outputs[i].device())[0]);
    if (twice) u.back().requires_grad_();
  }
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) wanted.push_back(x);
  if (roots.empty() || wanted.empty()) return {};
  Derivatives d;
  d.first = grad(roots, wanted, u, {.create_graph = twice, .allow_unused = true});
  if (!twice) return d;
  Tensors again, v, v_host = cotangents_for(d.first, DType::f64, DType::f64, seed + 100);
  for (size_t i = 0; i < v_host.size(); ++i)
    if (v_host[i].defined()) {
      again.push_back(d.first[i]);
      v.push_back(v_host[i].to(d.first[i].device()));
    }
  wanted.insert(wanted.end(), u.begin(), u.end());
  if (!again.empty()) d.second = grad(again, wanted, v, {.allow_unused = true});
  return d;
}

inline void compare_all(const Tensors& got, const Tensors& want, const OpSamples& op, double factor, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << what << " " << i;
    if (!got[i].defined()) continue;
    EXPECT_EQ(got[i].dtype(), want[i].dtype()) << what << " " << i;
    Bound bound = grad_bound(op, largest(want[i]));
    bound.growth *= factor;
    EXPECT_EQ(compare(on_host(got[i]), want[i], bound), "") << what << " " << i;
  }
}

// On a device: first and second gradients in f64 against those of the host, which have a case of their own.
inline void check_device_gradient(const OpSamples& op, const Sample& s, uint64_t seed, Device device) {
  CaseInputs in(s.args, DType::f64, seed, Layout::contiguous, device);
  Tensors host = leaves(s.args, in.host), given = leaves(s.args, in.given);
  if (!all_finite(run(s.call, host))) GTEST_SKIP() << "there is no derivative where the result is not finite";
  Unchanged unchanged(in);
  bool twice = op.gradgrad && real_elements(s.args) <= kGradGradLimit;
  Derivatives want = derivatives(s, host, seed, twice), got = derivatives(s, given, seed, twice);
  compare_all(got.first, want.first, op, 1, "gradient");
  compare_all(got.second, want.second, op, 4, "gradient of gradients");
  compare_all(derivatives(s, given, seed, false, Layout::sliced).first, want.first, op, 1,
              "for a strided incoming gradient, gradient");
  EXPECT_EQ(unchanged.problem(), "");
}

// Gradients in a smaller type, or another layout, against those in f64 for the same (rounded) inputs.
inline void check_gradient_of(const OpSamples& op, const Sample& s, DType dtype, Layout layout, uint64_t seed,
                              Device device) {
  CaseInputs in(s.args, dtype, seed, layout, device);
  Tensors small = leaves(s.args, in.given);
  Tensors wide = leaves(s.args, as_reference(s.args, in.host));
  Tensors small_out = run(s.call, small), wide_out = run(s.call, wide);
  Tensors u = cotangents_for(wide_out, dtype, DType::f64, seed);
  Tensors got = gradients(s, small, small_out, u), want = gradients(s, wide, wide_out, u);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << "gradient of input " << i;
    if (!got[i].defined()) continue;
    EXPECT_EQ(got[i].dtype(), dtype) << "gradient of input " << i;
    EXPECT_EQ(compare(on_host(got[i]), want[i], grad_bound(op, largest(want[i]))), "") << "gradient of input " << i;
  }
}

inline void check_some_gradient(const OpSamples& op, Device device) {
  double most = 0;
  for (const Sample& s : op.good) {
    if (!any_grad_arg(s.args) || real_elements(s.args) > kGradLimit) continue;
    Tensors inputs = leaves(s.args, make_inputs(s.args, DType::f64, 7, Layout::contiguous, device));
    Tensors out = run(s.call, inputs);
    for (const Tensor& g : gradients(s, inputs, out, cotangents_for(out, DType::f64, DType::f64, 8)))
      if (g.defined()) most = std::max(most, largest(g));
  }
  static const std::set<std::string> flat = {"floor", "ceil",     "round",   "trunc",     "sign",
                                             "fill_", "uniform_", "normal_", "bernoulli", "floor_divide"};
  if (flat.count(op.op)) {
    EXPECT_EQ(most, 0);
  } else {
    EXPECT_GT(most, 0) << "every gradient of every sample is zero";
  }
}

// Calls that must throw. Returns the class of the error, "" if there was none, and its message in `text`. Errors that
// depend on values in device memory come out when the device is waited for.
inline std::string error_of(const SampleFn& call, const Tensors& inputs, Device device, std::string& text) {
  std::string error;
  try {
    run(call, inputs);
    synchronize(device);
  } catch (const std::exception& e) {
    text = e.what();
    error = class_of(e);
  }
  try {
    synchronize(device);
  } catch (const std::exception&) {
    // Another bad value of the same call.
  }
  return error;
}

inline void check_other_dtype(const Sample& s, DType dtype, uint64_t seed, Device device) {
  CaseInputs in(s.args, dtype, seed, Layout::contiguous, device);
  Unchanged unchanged(in);
  std::string text, error = error_of(s.call, in.given, device, text);
  EXPECT_TRUE(error == "DTypeError" || error == "UnsupportedError")
      << "the samples do not list " << name_of(dtype) << ", yet "
      << (error.empty() ? "the call went through" : "it threw " + error + ": " + text);
  EXPECT_EQ(unchanged.problem(), "");
}

inline void check_bad(const BadSample& b, uint64_t seed, Device device) {
  CaseInputs in(b.args, DType::f32, seed, Layout::contiguous, device);
  Unchanged unchanged(in);
  std::string text, wanted = b.text;
  int64_t live = memory_live().total;
  std::string error = error_of(b.call, in.given, device, text);
  int64_t after = memory_live().total;
  ASSERT_NE(error, "") << "nothing was thrown, expected " << b.error;
  EXPECT_EQ(error, b.error) << text;
  if (!device.is_cpu()) {
    text = without_places(text);
    wanted = without_places(wanted);
  }
  EXPECT_NE(text.find(wanted), text.npos) << "\"" << wanted << "\" is not in: " << text;
  EXPECT_EQ(sentence_problem(text), "");
  // In place, a bad index is found while the good ones are written.
  EXPECT_EQ(unchanged.problem(!device.is_cpu() && b.error == "IndexError"), "");
  EXPECT_EQ(after, live) << "bytes were kept";
}

inline void check_threads(const std::vector<Arg>& args, const Sample& s, uint64_t seed) {
  Tensors inputs = make_inputs(args, DType::f32, seed);
  struct Restore {
    int threads = num_threads();
    ~Restore() { set_num_threads(threads); }
  } restore;
  set_num_threads(1);
  Tensors one = run(s.call, inputs);
  set_num_threads(3);
  Tensors three = run(s.call, inputs);
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bits(one[i], three[i])) << "output " << i;
}

// On a device: the same bits when run again, and on another stream.
inline void check_streams(const std::vector<Arg>& args, const OpSamples& op, const Sample& s, uint64_t seed,
                          Device device) {
  Tensors inputs = make_inputs(args, DType::f32, seed, Layout::contiguous, device);
  static const Stream other = Stream::create(device);
  Tensors one = run(s.call, inputs), two = run(s.call, inputs), three;
  {
    StreamGuard guard(other);
    three = run(s.call, inputs);
  }
  ASSERT_EQ(one.size(), two.size());
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(difference(op, two[i], one[i]), "") << "output " << i << ", run again";
    EXPECT_EQ(difference(op, three[i], one[i]), "") << "output " << i << " on another stream";
  }
}

// The comparison must be sharp enough to find a kernel that is off by a thousandth.
inline void check_comparator(const OpSamples& op, Device device) {
  int tried = 0;
  for (const Sample& s : op.good) {
    Tensors inputs = make_inputs(s.args, DType::f32, 11, Layout::contiguous, device);
    for (const Tensor& result : run(s.call, inputs)) {
      Tensor out = on_host(result);
      if (!out.defined() || out.dtype() != DType::f32) continue;
      std::vector<double> right = out.to_vector<double>(), wrong = right;
      double most = 0;
      for (double& v : wrong) {
        if (std::isfinite(v)) most = std::max(most, std::fabs(v));
        v *= 1 + 1e-3;
      }
      if (most < 0.1) continue;
      ++tried;
      EXPECT_EQ(compare(right, DType::f32, out.sizes(), right, {op.growth, op.scale}), "");
      EXPECT_NE(compare(wrong, DType::f32, out.sizes(), right, {op.growth, op.scale}), "")
          << "the bound of " << op.op << " is too wide: a result scaled by 1.001 passes (" << s.note << ")";
    }
  }
  if (!tried) GTEST_SKIP() << "no f32 results";
}

}  // namespace deft::testing
