// Programs made from a number: steps over the whole op table on inputs, constants and each other's results, with views,
// writes in place and random draws. See random_programs_test.cpp for what is checked of them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "amp/autocast.h"
#include "base/error.h"
#include "core/grad_mode.h"
#include "ops/sample_inputs.h"

namespace deft::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

 private:
  uint64_t state_;
};

// A tensor from outside: an input, or a constant that the function has hold of.
struct Leaf {
  Arg arg;
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  int shares = -1;  // inputs: lies in the memory of that one, somewhere
};

// Slots hold the values of a run. A step whose inputs are not there, because the step that makes them was left out, is
// skipped.
struct Step {
  std::string text;  // "softmax(dim=1)", with the numbers of its slots added by to_text()
  std::vector<int> in, out;
  std::function<Tensors(const Tensors&)> run;
  DType autocast = DType::boolean;  // a guard around the step; boolean: none
  // Programs with a bound: how far results may be off where inputs are off by `in_error`, and rounding once more or
  // less changes results of size `size`.
  std::function<double(const Tensors& in, const std::vector<double>& in_error, const Tensors& out)> error = nullptr;
  bool writes = false;  // in place, into its first input
};

inline void run_step(const Step& s, Tensors& slots) {
  Tensors in;
  for (int slot : s.in) {
    in.push_back(slots[static_cast<size_t>(slot)]);
    if (!in.back().defined()) return;
  }
  std::optional<AutocastGuard> guard;
  if (s.autocast != DType::boolean) guard.emplace(s.autocast);
  Tensors out = s.run(in);
  for (size_t i = 0; i < s.out.size(); ++i) slots[static_cast<size_t>(s.out[i])] = i < out.size() ? out[i] : Tensor();
}

struct Program {
  uint64_t seed = 0;
  std::vector<Leaf> inputs, constants;
  std::vector<int> input_slots, constant_slots;
  std::vector<Step> steps;
  std::vector<int> results;
  int slots = 0;
  bool inference = false;
  DType autocast = DType::boolean;  // around everything; boolean: none
};

inline Tensor make_leaf(const Leaf& leaf, uint64_t seed) {
  return make_inputs({leaf.arg}, leaf.dtype, seed, leaf.layout)[0];
}

// All slots after a run of the steps that are `on`. Throws what a step throws.
inline Tensors run_steps(const Program& p, const Tensors& inputs, const Tensors& constants,
                         const std::vector<bool>& on) {
  Tensors slots(static_cast<size_t>(p.slots));
  for (size_t i = 0; i < inputs.size(); ++i) slots[static_cast<size_t>(p.input_slots[i])] = inputs[i];
  for (size_t i = 0; i < constants.size(); ++i) slots[static_cast<size_t>(p.constant_slots[i])] = constants[i];
  for (size_t i = 0; i < p.steps.size(); ++i)
    if (on[i]) run_step(p.steps[i], slots);
  return slots;
}
// The program's results; slots that were not made are left out.
inline Tensors results_of(const Program& p, const Tensors& slots) {
  Tensors results;
  for (int r : p.results)
    if (slots[static_cast<size_t>(r)].defined()) results.push_back(slots[static_cast<size_t>(r)]);
  return results;
}

inline std::string to_text(const Program& p, const std::vector<bool>& on) {
  std::vector<std::string> name(static_cast<size_t>(p.slots));
  for (int i = 0; i < p.slots; ++i) name[static_cast<size_t>(i)] = fmt::format("v{}", i);
  std::string text = fmt::format("program {}{}{}\n", p.seed, p.inference ? ", inference_mode" : ", no_grad",
                                 p.autocast == DType::boolean ? "" : fmt::format(", autocast {}", name_of(p.autocast)));
  auto leaves = [&](const char* kind, const std::vector<Leaf>& list, const std::vector<int>& slots) {
    for (size_t i = 0; i < list.size(); ++i) {
      name[static_cast<size_t>(slots[i])] = fmt::format("{}{}", kind[0], i);
      text += fmt::format("  {} = {} {} {} {}", name[static_cast<size_t>(slots[i])], kind, name_of(list[i].dtype),
                          to_string(list[i].arg.sizes), name_of(list[i].layout));
      text += list[i].shares < 0 ? "\n" : fmt::format(" in the memory of input {}\n", list[i].shares);
    }
  };
  leaves("input", p.inputs, p.input_slots);
  leaves("constant", p.constants, p.constant_slots);
  auto names = [&](const std::vector<int>& slots) {
    std::string list;
    for (int s : slots) list += (list.empty() ? "" : ", ") + name[static_cast<size_t>(s)];
    return list;
  };
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    if (!on[i]) continue;
    text += "  ";
    if (!s.out.empty()) text += names(s.out) + " = ";
    text += s.text + " of (" + names(s.in) + ")";
    if (s.autocast != DType::boolean) text += fmt::format(" under autocast {}", name_of(s.autocast));
    text += "\n";
  }
  return text + "  return " + names(p.results) + "\n";
}

// Makes a program step by step and runs each step at once: what throws is left out.
class ProgramMaker {
 public:
  explicit ProgramMaker(uint64_t seed) : dice(seed) { p.seed = seed; }
  Program p;
  Dice dice;

  // A slot with a tensor from outside.
  int leaf(const Leaf& l, bool constant) {
    int slot = new_slot();
    (constant ? p.constants : p.inputs).push_back(l);
    (constant ? p.constant_slots : p.input_slots).push_back(slot);
    values_[static_cast<size_t>(slot)] = make_leaf(l, dice.bits());
    return slot;
  }
  const Tensor& at(int slot) const { return values_[static_cast<size_t>(slot)]; }
  int count() const { return p.slots; }
  int any() { return static_cast<int>(dice.below(p.slots)); }

  // False where the step threw, and is left out.
  bool step(Step s, int outputs) {
    for (int i = 0; i < outputs; ++i) s.out.push_back(new_slot());
    try {
      run_step(s, values_);
      for (int slot : s.out)
        if (!at(slot).defined() || at(slot).numel() > 40000) throw ValueError("no result");
    } catch (const Error&) {
      p.slots -= outputs;
      values_.resize(static_cast<size_t>(p.slots));
      return false;
    }
    p.steps.push_back(std::move(s));
    return true;
  }
  // The same once more, into slots of its own.
  void again(const Step& s) {
    Step copy = s;
    copy.out.clear();
    step(std::move(copy), static_cast<int>(s.out.size()));
  }
  void choose_results(int most) {
    int n = static_cast<int>(dice.between(1, most));
    for (int i = 0; i < n; ++i) {
      bool late = dice.chance(80) && !p.steps.empty() && !p.steps.back().out.empty();
      p.results.push_back(late && i == 0 ? p.steps.back().out[0]
                                         : static_cast<int>(dice.between(std::max(0, p.slots - 12), p.slots - 1)));
    }
  }

 private:
  int new_slot() {
    values_.emplace_back();
    return p.slots++;
  }
  Tensors values_;
};

}  // namespace deft::testing
