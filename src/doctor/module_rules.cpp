#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "core/engine.h"
#include "core/grad_mode.h"
#include "doctor/linter.h"
#include "doctor/steps.h"
#include "nn/dropout.h"
#include "nn/norm.h"
#include "runtime/dtype.h"

namespace deft::doctor {

namespace {

const nn::Module& module_of(const ModuleCall& call) { return *static_cast<const nn::Module*>(call.module); }

// "a, b, c and 4 more"
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

std::string name_in(const ModuleCall& root, const void* module) {
  for (const auto& [name, m] : root.tree(root.module))
    if (m == module) return name.empty() ? root.describe(module) : name;
  return "a module";
}

// D005: evaluation of a module in train mode. Checkpoints compute again with gradients on, so gradients that are off
// are the caller's wish.
struct TrainModeInEvaluation : Rule {
  struct Place {
    Site site;
    std::string layers;
    int64_t count = 0;
  };
  void module_begins(const ModuleCall& call) override {
    if (open_module_calls() != 1 || is_grad_enabled() || in_backward()) return;
    auto it = lines.find(Line{call.site});
    if (it == lines.end() || !call.training) {
      std::vector<std::string> layers = live_layers(call);
      if (layers.empty()) return;
      it = lines.try_emplace(Line{call.site}, Place{call.site, listed(layers)}).first;
    }
    ++it->second.count;
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [key, line] : lines) {
      Finding f = finding("D005", line.site,
                          fmt::format("the module is called with gradients off but in train mode: {} behave as in "
                                      "training, so results are random or depend on the batch.",
                                      line.layers));
      f.count = line.count;
      findings.push_back(std::move(f));
    }
  }

 private:
  static std::vector<std::string> live_layers(const ModuleCall& call) {
    std::vector<std::string> names;
    for (const auto& [name, m] : call.tree(call.module)) {
      const auto* module = static_cast<const nn::Module*>(m);
      if (!module->is_training()) continue;
      const auto* dropout = dynamic_cast<const nn::DropoutBase*>(module);
      if ((dropout && dropout->p() > 0) || dynamic_cast<const nn::BatchNorm*>(module))
        names.push_back(name.empty() ? call.describe(m) : name);
    }
    return names;
  }
  std::map<Line, Place> lines;
};

// D008: a batch norm in train mode whose own parameters are frozen, and never were trained at the same place.
struct MovingStatistics : Rule {
  struct Norm {
    Site site;  // of the outermost call
    std::string name;
    int64_t frozen = 0, trained = 0;
  };
  void module_begins(const ModuleCall& call) override {
    const std::thread::id self = std::this_thread::get_id();
    if (open_module_calls() == 1) roots[self] = call;
    if (!call.layer || !call.training || !is_grad_enabled() || in_backward()) return;
    const auto* norm = dynamic_cast<const nn::BatchNorm*>(&module_of(call));
    if (!norm || !norm->weight.defined() || !norm->running_mean.defined()) return;
    const bool frozen = !norm->weight.requires_grad() && !norm->bias.requires_grad();
    auto [it, fresh] = norms.try_emplace(norm);
    if (fresh && frozen) {
      const ModuleCall& root = roots.at(self);
      it->second.site = root.site;
      it->second.name = name_in(root, norm);
    }
    ++(frozen ? it->second.frozen : it->second.trained);
  }
  void module_ends(const ModuleCall&) override {
    if (open_module_calls() == 1) roots.erase(std::this_thread::get_id());
  }
  void report(std::vector<Finding>& findings) override {
    std::map<Line, std::vector<const Norm*>> by_line;
    for (const auto& [module, norm] : norms)
      if (norm.frozen >= 2 && !norm.trained) by_line[Line{norm.site}].push_back(&norm);
    for (const auto& [line, found] : by_line) {
      std::vector<std::string> names;
      for (const Norm* n : found) names.push_back(n->name);
      std::ranges::sort(names);
      Finding f = finding("D008", found[0]->site,
                          fmt::format("the parameters of {} are frozen, but it is in train mode: each of {} forward "
                                      "passes moved its running statistics.",
                                      listed(names), found[0]->frozen));
      f.count = found[0]->frozen;
      f.figures = {{"layers", static_cast<double>(names.size())}};
      findings.push_back(std::move(f));
    }
  }

 private:
  std::map<std::thread::id, ModuleCall> roots;  // the outermost call that is open
  std::map<const void*, Norm> norms;
};

// Names of parameters by their storages, from the modules that were called.
class ParameterNames {
 public:
  void learn(const ModuleCall& call) {
    if (open_module_calls() != 1 || known_.size() > kMostModules || !known_.insert(call.module).second) return;
    for (const auto& [name, p] : module_of(call).named_parameters()) {
      if (!p.defined()) continue;
      const size_t dot = name.rfind('.');
      names_.try_emplace(p.impl()->storage, Name{name, {call.module, dot == name.npos ? "" : name.substr(0, dot)}});
    }
  }
  std::string of(const Tensor& p, size_t number) const {
    auto it = names_.find(p.impl()->storage);
    return it == names_.end() ? fmt::format("parameter {}", number) : it->second.name;
  }
  // The module it is a parameter of: the outermost one and the way from there. Null: not known.
  using Owner = std::pair<const void*, std::string>;
  Owner owner_of(const Tensor& p) const {
    auto it = names_.find(p.impl()->storage);
    return it == names_.end() ? Owner() : it->second.owner;
  }

 private:
  struct Name {
    std::string name;
    Owner owner;
  };
  static constexpr size_t kMostModules = 256;
  std::set<const void*> known_;
  std::map<const Storage*, Name> names_;
};

// The first elements tell, but for what is zero or nearly so.
bool is_all_zero(const Tensor& t) {
  if (!t.device().is_cpu() || !t.meta().is_dense() || t.impl()->storage->memory || !is_floating(t.dtype()))
    return false;
  return dispatch_floating(t.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(t.impl()->data);
    return std::all_of(p, p + t.numel(), [](T v) { return static_cast<double>(v) == 0; });
  });
}

// D009: weight decay shrinks what gradients never reach. A missing gradient protects a parameter, a zero one does not.
// A parameter whose gradient is zero beside others of its module that do learn is not frozen: the result does not
// depend on it, as on a bias in front of a norm or on that of the keys of attention. One that is zero has nothing to
// shrink.
struct FrozenWeightsDecayed : Rule {
  struct Param {
    std::string name;
    double weight_decay = 0;
    int64_t zero = 0;  // steps in a row
  };
  struct Watched {
    Site site;
    std::map<const TensorImpl*, Param> params;  // only those that the last step shrank so
    int64_t steps = 0;
  };
  void module_begins(const ModuleCall& call) override { names.learn(call); }
  void optimizer_begins(const OptimizerStep& step) override {
    Watched& w = optimizers[step.optimizer];
    w.site = step.site;
    ++w.steps;
    std::vector<size_t> still;
    std::set<ParameterNames::Owner> learning;
    for (size_t i = 0; i < step.params.size(); ++i) {
      const Tensor& p = step.params[i];
      if (!p.requires_grad() || !p.grad().defined()) continue;
      if (is_all_zero(p.grad()))
        still.push_back(i);
      else
        learning.insert(names.owner_of(p));
    }
    learning.erase(ParameterNames::Owner());
    std::map<const TensorImpl*, Param> now;
    for (size_t i : still) {
      const Tensor& p = step.params[i];
      if (step.weight_decay[i] <= 0 || learning.contains(names.owner_of(p)) || is_all_zero(p)) continue;
      auto before = w.params.find(p.impl());
      const int64_t steps = before == w.params.end() ? 0 : before->second.zero;
      now[p.impl()] = {names.of(p, i), step.weight_decay[i], steps + 1};
    }
    w.params = std::move(now);
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [optimizer, w] : optimizers) {
      std::vector<std::string> decayed;
      double decay = 0;
      int64_t steps = 0;
      for (const auto& [impl, p] : w.params) {
        if (p.zero < kSteps) continue;
        decayed.push_back(p.name);
        decay = std::max(decay, p.weight_decay);
        steps = std::max(steps, p.zero);
      }
      if (decayed.empty()) continue;
      std::ranges::sort(decayed);
      Finding f =
          finding("D009", w.site,
                  fmt::format("gradients of {} were exactly zero in the last {} steps, yet weight decay of {:g} "
                              "shrinks {} in each.",
                              listed(decayed), steps, decay, decayed.size() == 1 ? "it" : "them"));
      f.count = steps;
      f.figures = {{"parameters", static_cast<double>(decayed.size())}};
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr int64_t kSteps = 5;
  ParameterNames names;
  std::map<const void*, Watched> optimizers;
};

// D010
struct UnusedParameters : Rule {
  struct Watched {
    Site site;
    int64_t steps = 0;
    std::vector<std::string> names;  // as they were in the first steps
    std::vector<bool> reached, trained;
  };
  void module_begins(const ModuleCall& call) override { names.learn(call); }
  void optimizer_begins(const OptimizerStep& step) override {
    Watched& w = optimizers[step.optimizer];
    if (w.reached.size() != step.params.size()) {  // a group was added, or another optimizer lies here now
      w = {};
      w.reached.resize(step.params.size());
      w.trained.resize(step.params.size());
    }
    w.site = step.site;
    ++w.steps;
    for (size_t i = 0; i < step.params.size(); ++i) {
      if (w.reached[i]) continue;
      w.trained[i] = step.params[i].requires_grad();
      w.reached[i] = step.params[i].grad().defined();
    }
    if (w.steps == kSteps)
      for (size_t i = 0; i < step.params.size(); ++i) w.names.push_back(names.of(step.params[i], i));
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [optimizer, w] : optimizers) {
      if (w.steps < kSteps || std::ranges::count(w.reached, true) == 0) continue;
      std::vector<std::string> unused;
      for (size_t i = 0; i < w.reached.size(); ++i)
        if (!w.reached[i] && w.trained[i]) unused.push_back(w.names[i]);
      if (unused.empty()) continue;
      Finding f = finding("D010", w.site,
                          fmt::format("{} of {} parameters got no gradient in {} steps: {}.", unused.size(),
                                      w.reached.size(), w.steps, listed(unused)));
      f.count = static_cast<int64_t>(unused.size());
      f.figures = {{"parameters", static_cast<double>(unused.size())}};
      findings.push_back(std::move(f));
    }
  }

 private:
  static constexpr int64_t kSteps = 3;
  ParameterNames names;
  std::map<const void*, Watched> optimizers;
};

}  // namespace

std::vector<std::unique_ptr<Rule>> make_module_rules() {
  std::vector<std::unique_ptr<Rule>> rules;
  rules.push_back(make_rule<TrainModeInEvaluation>());
  rules.push_back(make_rule<MovingStatistics>());
  rules.push_back(make_rule<FrozenWeightsDecayed>());
  rules.push_back(make_rule<UnusedParameters>());
  return rules;
}

}  // namespace deft::doctor
