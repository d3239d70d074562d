// Random programs, eager and compiled side by side: results, the memory of inputs and constants, results that are held,
// and the generator must be the same after every call. A program that fails is shrunk and printed with its seed.
//
// DEFT_RANDOM_PROGRAMS=count or first:count runs that many of each kind instead of a few hundred:
//   DEFT_RANDOM_PROGRAMS=123:1 test_graph --gtest_filter='RandomPrograms.*'   # program 123 once more
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <set>

#include "core/grad_mode.h"
#include "graph/compile.h"
#include "random_steps.h"
#include "smooth_steps.h"

namespace deft::testing {
namespace {

struct Range {
  uint64_t first, count;
};
Range range(uint64_t usual) {
  const char* text = std::getenv("DEFT_RANDOM_PROGRAMS");
  if (!text) return {1, usual};
  char* end = nullptr;
  uint64_t a = std::strtoull(text, &end, 10);
  return *end == ':' ? Range{a, std::strtoull(end + 1, nullptr, 10)} : Range{1, a};
}

// The same bytes; NaNs may differ in theirs.
bool same_values(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  if (x.numel() == 0) return true;
  if (std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0) return true;
  if (!is_floating(x.dtype())) return false;
  std::vector<double> v = x.to_vector<double>(), w = y.to_vector<double>();
  for (size_t i = 0; i < v.size(); ++i)
    if (!(v[i] == w[i] && std::signbit(v[i]) == std::signbit(w[i])) && !(std::isnan(v[i]) && std::isnan(w[i])))
      return false;
  return true;
}
// All of the memory that a tensor lies in.
Tensor whole(const Tensor& t) {
  auto count = static_cast<int64_t>(t.impl()->storage->nbytes / t.element_size());
  return Tensor(make_alias(*t.impl(), Meta::dense({count}, t.dtype(), kCPU), -t.storage_offset()));
}

// The modes of a program.
class Modes {
 public:
  explicit Modes(const Program& p) : inference_(p.inference) {
    if (p.autocast != DType::boolean) autocast_.emplace(p.autocast);
  }

 private:
  InferenceModeGuard inference_;
  NoGradGuard no_grad_;
  std::optional<AutocastGuard> autocast_;
};

// One side: what the function is given, what it has hold of, and what it gave.
struct Side {
  Tensors inputs, constants;
  std::vector<Tensors> held;
  std::vector<std::vector<double>> bounds;  // of what is held
  std::function<Tensors(const Tensors&)> run;
  std::vector<uint32_t> versions;

  Tensors outside() const {
    Tensors all = inputs;
    all.insert(all.end(), constants.begin(), constants.end());
    return all;
  }
  void note_versions() {
    versions.clear();
    for (const Tensor& t : outside()) versions.push_back(t.version());
  }
  std::vector<bool> written() const {
    std::vector<bool> moved;
    Tensors all = outside();
    for (size_t i = 0; i < all.size(); ++i) moved.push_back(all[i].version() != versions[i]);
    return moved;
  }
};

struct Counts {
  int64_t programs = 0, refused = 0, threw = 0, replays = 0, captures = 0;
  std::string text() const {
    return fmt::format("{} programs, {} refused, {} calls threw; {} replays, {} captures", programs, refused, threw,
                       replays, captures);
  }
};

class Check {
 public:
  Check(const Program& p, const std::vector<bool>& on, const graph::PassOptions& passes, Counts& counts)
      : p_(p), on_(on), counts_(counts), dice_(p.seed * 31 + 5), compiled_(make(passes)) {
    for (const Leaf& l : p.constants) {
      uint64_t seed = dice_.bits();
      for (Side* s : {&eager_, &plan_}) s->constants.push_back(make_leaf(l, seed));
    }
    eager_.run = [this](const Tensors& x) { return results_of(p_, run_steps(p_, x, eager_.constants, on_)); };
    plan_.run = [this](const Tensors& x) { return compiled_.run(x); };
  }

  // What is wrong; "" if nothing is.
  std::string run(int calls) {
    for (int call = 0; call < calls; ++call) {
      prepare(call);
      std::string problem;
      if (!run_both(problem)) return problem;
      if (problem.empty()) problem = compare_outside();
      if (problem.empty()) problem = use_results();
      if (problem.empty()) problem = compare_held();
      if (!problem.empty()) return fmt::format("call {} ({}): {}", call, compiled_.misses().back(), problem);
    }
    return "";
  }
  ~Check() {
    counts_.replays += compiled_.stats().replays;
    counts_.captures += compiled_.stats().captures;
  }
  std::string explain() const { return compiled_.explain(); }

 private:
  Compiled make(const graph::PassOptions& passes) {
    auto f = [this](const Tensors& x) { return results_of(p_, run_steps(p_, x, plan_.constants, on_)); };
    return compile(f, {.passes = passes});
  }

  void prepare(int call) {
    if (call > 0 && dice_.chance(30) && !p_.constants.empty()) change_a_constant();
    if (call > 0 && dice_.chance(25)) return;  // the same tensors again, with what the last call wrote
    eager_.inputs.clear();
    plan_.inputs.clear();
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      const Leaf& l = p_.inputs[i];
      uint64_t seed = dice_.bits();
      int64_t shift = dice_.between(0, 4);
      for (Side* s : {&eager_, &plan_}) s->inputs.push_back(make_leaf(l, seed));
      if (l.shares >= 0) share(i, shift);
      if (dice_.chance(3)) give_a_constant(i);
    }
  }
  // Both inputs in one storage, the second one `shift` elements after the first one's begin or its end.
  void share(size_t i, int64_t shift) {
    auto first = static_cast<size_t>(p_.inputs[i].shares);
    bool apart = dice_.chance(50);
    for (Side* s : {&eager_, &plan_}) {
      Tensor a = s->inputs[first], b = s->inputs[i];
      int64_t n = a.numel(), at = shift + (apart ? n : 0);
      Tensor room = zeros({2 * n + 5}, a.dtype());
      Tensor x = room.narrow(0, 0, n).view(a.sizes()), y = room.narrow(0, at, n).view(a.sizes());
      y.copy_(b);
      x.copy_(a);
      s->inputs[first] = x;
      s->inputs[i] = y;
    }
  }
  // The function has hold of what it is given.
  void give_a_constant(size_t i) {
    const Tensor& like = eager_.inputs[i];
    for (size_t k = 0; k < p_.constants.size(); ++k) {
      const Tensor& c = eager_.constants[k];
      if (!(c.sizes() == like.sizes() && c.strides() == like.strides() && c.dtype() == like.dtype()) ||
          p_.constants[k].arg.kind != p_.inputs[i].arg.kind)
        continue;
      for (Side* s : {&eager_, &plan_}) s->inputs[i] = s->constants[k];
      return;
    }
  }
  void change_a_constant() {
    size_t k = static_cast<size_t>(dice_.below(static_cast<int64_t>(p_.constants.size())));
    uint64_t seed = dice_.bits();
    if (eager_.constants[k].meta().overlaps_itself()) return;
    for (Side* s : {&eager_, &plan_}) s->constants[k].copy_(make_leaf(p_.constants[k], seed));
  }

  // False where there is no more to do.
  bool run_both(std::string& problem) {
    Modes modes(p_);
    PhiloxState draws{p_.seed, static_cast<uint64_t>(dice_.below(3))}, after, after_plan;
    eager_.note_versions();
    plan_.note_versions();
    if (!p_.steps.empty() && p_.steps[0].error) bounds_ = result_errors(p_, eager_.inputs, eager_.constants, on_);
    try {
      RngScope rng(draws);
      eager_results_ = eager_.run(eager_.inputs);
      after = rng_state();
    } catch (const Error&) {
      ++counts_.threw;
      return false;
    }
    try {
      RngScope rng(draws);
      plan_results_ = plan_.run(plan_.inputs);
      after_plan = rng_state();
    } catch (const CaptureError& e) {
      ++counts_.refused;
      return false;
    } catch (const std::exception& e) {
      problem = fmt::format("(): the plan throws: {}", e.what());
      return false;
    }
    problem = compare_results();
    if (problem.empty() && !(after == after_plan)) problem = "the generator is elsewhere";
    return true;
  }
  std::string compare_results() const {
    if (eager_results_.size() != plan_results_.size()) return "another number of results";
    for (size_t i = 0; i < eager_results_.size(); ++i)
      if (std::string problem = difference(eager_results_[i], plan_results_[i], bound(bounds_, i)); !problem.empty())
        return fmt::format("result {} {}", i, problem);
    return "";
  }
  // Both sides may be off by that; below zero: not at all.
  static double bound(const std::vector<double>& errors, size_t i) { return i < errors.size() ? 2 * errors[i] : -1; }
  static bool is_near(const Tensor& want, const Tensor& got, double bound) {
    if (bound < 0 || !is_floating(want.dtype())) return same_values(want, got);
    std::vector<double> v = want.to_vector<double>(), w = got.to_vector<double>();
    for (size_t i = 0; i < v.size(); ++i)
      if (!(std::fabs(v[i] - w[i]) <= bound + 1e-30) && std::isfinite(v[i])) return false;
    return true;
  }
  static std::string difference(const Tensor& want, const Tensor& got, double bound) {
    if (!(want.sizes() == got.sizes()) || want.dtype() != got.dtype()) return "has another shape or type";
    for (int d = 0; d < want.dim(); ++d)
      if (want.size(d) > 1 && want.numel() > 0 && want.stride(d) != got.stride(d)) return "has other strides";
    if (want.is_inference() != got.is_inference()) return "is an inference tensor on one side only";
    if (!is_near(want, got, bound)) return fmt::format("has other values{}", bound < 0 ? "" : " beyond the bound");
    return "";
  }
  // Inputs and constants hold the same bytes, also beside the elements, and count the same writes.
  std::string compare_outside() const {
    Tensors a = eager_.outside(), b = plan_.outside();
    for (size_t i = 0; i < a.size(); ++i) {
      std::string who =
          i < p_.inputs.size() ? fmt::format("input {}", i) : fmt::format("constant {}", i - p_.inputs.size());
      if (!same_values(whole(a[i]), whole(b[i]))) return "the memory of " + who + " differs";
      if (eager_.written()[i] != plan_.written()[i]) return "the version of " + who + " moved on one side only";
    }
    return "";
  }
  // The caller may write what it got, without anything else changing.
  std::string use_results() {
    bool hold = dice_.chance(60), write = dice_.chance(40);
    size_t at = static_cast<size_t>(dice_.below(static_cast<int64_t>(std::max<size_t>(1, eager_results_.size()))));
    if (write && at < eager_results_.size()) {
      Modes modes(p_);
      try {
        eager_results_[at].fill_(1);
      } catch (const Error&) {
        write = false;
      }
      try {
        if (write) plan_results_[at].fill_(1);
      } catch (const Error& e) {
        return fmt::format("result {} cannot be written: {}", at, e.what());
      }
      if (write) {
        std::string problem = compare_results();
        if (problem.empty()) problem = compare_outside();
        if (!problem.empty()) return fmt::format("after a write to result {}: {}", at, problem);
      }
    }
    if (hold) {
      eager_.held.push_back(eager_results_);
      plan_.held.push_back(plan_results_);
      plan_.bounds.push_back(bounds_);
    }
    eager_results_.clear();
    plan_results_.clear();
    return "";
  }
  std::string compare_held() const {
    for (size_t k = 0; k < eager_.held.size(); ++k)
      for (size_t i = 0; i < eager_.held[k].size(); ++i)
        if (!is_near(eager_.held[k][i], plan_.held[k][i], bound(plan_.bounds[k], i)))
          return fmt::format("result {} of an earlier call, still held, changed", i);
    return "";
  }

  const Program& p_;
  const std::vector<bool>& on_;
  Counts& counts_;
  Dice dice_;
  Side eager_, plan_;
  Tensors eager_results_, plan_results_;
  std::vector<double> bounds_;
  Compiled compiled_;
};

constexpr int kCalls = 5;
// All passes, whether they pay for such small tensors or not; and those that promise the same bits.
const graph::PassOptions kAll = graph::without({}, "cost_model");
const graph::PassOptions kSameBits = graph::without(
    kAll, "fold_batch_norm,fuse_epilogues,fuse_sums,fuse_casts,assign_layout,fuse_attention,merge_siblings,pack_rows");

std::string problem_of(const Program& p, const std::vector<bool>& on, const graph::PassOptions& passes,
                       Counts& counts) {
  Check check(p, on, passes, counts);
  return check.run(kCalls);
}

// The text without its numbers: what kind of problem it is.
std::string kind_of(const std::string& problem) {
  std::string kind = problem.substr(std::min(problem.size(), problem.rfind("): ")));
  std::erase_if(kind, [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
  return kind;
}

// Leaves out what is not needed for a problem of this kind to show.
std::string shrunk(Program p, std::vector<bool> on, const std::string& problem, const graph::PassOptions& passes) {
  Counts ignored;
  auto fails = [&] { return kind_of(problem_of(p, on, passes, ignored)) == kind_of(problem); };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t i = p.steps.size(); i-- > 0;) {
      if (!on[i]) continue;
      on[i] = false;
      if (fails())
        smaller = true;
      else
        on[i] = true;
    }
    for (size_t i = p.results.size(); i-- > 0 && p.results.size() > 1;) {
      Program all = p;
      p.results.erase(p.results.begin() + static_cast<std::ptrdiff_t>(i));
      if (fails())
        smaller = true;
      else
        p = all;
    }
  }
  Check check(p, on, passes, ignored);
  return to_text(p, on) + check.run(kCalls) + "\n" + check.explain();
}

void run_programs(Program (*make)(uint64_t), uint64_t usual, const graph::PassOptions& passes, int most_failures) {
  Range r = range(usual);
  Counts counts;
  int failures = 0;
  for (uint64_t seed = r.first; seed < r.first + r.count && failures < most_failures; ++seed) {
    Program p = make(seed);
    std::vector<bool> on(p.steps.size(), true);
    ++counts.programs;
    if (r.count == 1) std::cout << to_text(p, on) << std::flush;
    std::string problem = problem_of(p, on, passes, counts);
    if (problem.empty()) continue;
    ++failures;
    ADD_FAILURE() << "program " << seed << ": " << problem << "\n" << shrunk(p, on, problem, passes);
  }
  std::cout << counts.text() << "\n";
  EXPECT_GE(counts.replays, counts.programs);  // most are not refused, and most calls are replays
}

// Of each op one program that does nothing else, for every type it takes.
TEST(RandomPrograms, EveryOp) {
  Counts counts;
  std::set<std::string> refused;
  for (const OpList::Call& call : op_list().calls) {
    for (DType t : {DType::f32, DType::bf16, DType::i64, DType::boolean}) {
      if (!call.op->dtypes.contains(t)) continue;
      Program p = sample_program(call, t);
      std::vector<bool> on(p.steps.size(), true);
      if (p.steps.empty()) continue;
      ++counts.programs;
      int64_t before = counts.refused;
      std::string problem = problem_of(p, on, kSameBits, counts);
      if (!problem.empty()) ADD_FAILURE() << problem << "\n" << shrunk(p, on, problem, kSameBits);
      if (counts.refused > before) refused.insert(call.op->op);
    }
  }
  std::string list;
  for (const std::string& op : refused) list += " " + op;
  std::cout << counts.text() << "; refused are some of:" << list << "\n";
  EXPECT_GE(counts.replays, 3 * (counts.programs - counts.refused));
}

// Programs that were wrong once: a matmul that chose its kernel by strides of a single row, and a tensor that
// the function has hold of, detached.
TEST(RandomPrograms, SameBitsAgain) {
  Counts counts;
  for (uint64_t seed : {6342, 146758}) {
    Program p = random_program(seed);
    std::vector<bool> on(p.steps.size(), true);
    EXPECT_EQ(problem_of(p, on, kSameBits, counts), "") << "program " << seed;
  }
}
TEST(RandomPrograms, SameBits) { run_programs(random_program, 2000, kSameBits, 3); }
TEST(RandomPrograms, WithinBounds) { run_programs(smooth_program, 1000, kAll, 3); }

}  // namespace
}  // namespace deft::testing
