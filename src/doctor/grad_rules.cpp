#include "doctor/grad_rules.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string_view>

#include "core/engine.h"
#include "core/grad_mode.h"
#include "doctor/steps.h"

namespace deft::doctor {

std::string megabytes(double bytes) {
  return bytes >= 1e5 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.3g} MB", bytes / 1e6);
}

namespace {

// Findings of rules that know at once: one for each line.
class Lines {
 public:
  void add(std::string_view id, const Site& site, Severity severity, std::string message) {
    auto [it, fresh] = found_.try_emplace(Line{site});
    if (!fresh) {
      ++it->second.count;
      return;
    }
    it->second = finding(id, site, std::move(message));
    it->second.severity = severity;
  }
  void report(std::vector<Finding>& findings) const {
    for (const auto& [line, f] : found_) findings.push_back(f);
  }

 private:
  std::map<Line, Finding> found_;
};

// D001: backward() on what was computed with gradients off.
struct BackwardInNoGrad : Rule {
  void backward_begins(std::span<const Tensor> roots, const BackwardOptions&, const Site& site) override {
    for (const Tensor& root : roots) {
      if (!root.defined()) continue;
      if (!root.requires_grad()) {
        if (std::string why = why_no_graph(*root.impl()); !why.empty())
          lines.add("D001", site, Severity::error, "backward() finds no graph: " + why + ".");
      } else if (!is_grad_enabled()) {
        lines.add("D001", site, Severity::note,
                  "backward() is called with gradients off, turned off at " + to_string(context().grad_site) +
                      ": it works, but nothing computed in there reaches the next one.");
      }
    }
  }
  void report(std::vector<Finding>& findings) override { lines.report(findings); }

  static std::string why_no_graph(const TensorImpl& t) {
    if (t.has(kMadeWithGradOff) && !t.base) {
      const char* what = t.has(kInferenceTensor) ? "inference_mode, entered at " : "gradients off, turned off at ";
      return std::string("its tensor was computed with ") + what + to_string(t.site);
    }
    if (t.base && (t.view_origin == ViewOrigin::no_grad || t.view_origin == ViewOrigin::inference))
      return "its tensor is a view made with gradients off at " + to_string(t.site);
    if (!is_grad_enabled()) return "gradients are off, turned off at " + to_string(context().grad_site);
    return "";
  }
  Lines lines;
};

// D002: requires_grad_() with gradients off, on a tensor that is then used only in there. Setting up a leaf in a
// no_grad block and training it outside is fine.
struct RequiresGradInNoGrad : Rule {
  struct Asked {
    Site site, off_at;
    int64_t unrecorded = 0;
  };
  void requires_grad_set(const Tensor& t, bool on, const Site& site) override {
    asked.erase(t.impl());
    if (!on || is_grad_enabled() || t.requires_grad() || in_backward()) return;
    if (site.line() == 0) return;  // a module's parameters
    if (asked.size() < kMostAsked) asked[t.impl()] = {site, context().grad_site};
  }
  void op_ran(const OpDef&, std::span<const Tensor* const> inputs, std::span<const Tensor>, bool recorded,
              const Site&) override {
    if (asked.empty()) return;
    for (const Tensor* t : inputs) {
      auto it = t->defined() ? asked.find(t->impl()) : asked.end();
      if (it == asked.end()) continue;
      if (recorded)
        asked.erase(it);
      else if (!is_grad_enabled())
        ++it->second.unrecorded;
    }
  }
  void report(std::vector<Finding>& findings) override {
    Lines lines;
    for (const auto& [impl, a] : asked) {
      if (a.unrecorded)
        lines.add("D002", a.site, Severity::warning,
                  fmt::format("requires_grad_() is called with gradients off, turned off at {}, and {} op{} used the "
                              "tensor there: none was recorded.",
                              to_string(a.off_at), a.unrecorded, a.unrecorded == 1 ? "" : "s"));
    }
    lines.report(findings);
  }
  static constexpr size_t kMostAsked = 1024;
  std::map<const TensorImpl*, Asked> asked;  // by address: a tensor made in a freed one's place is asked for anew
};

// D007
struct InferenceTensorInTraining : Rule {
  void refused(const char* op, const std::string& message, const Site& site) override {
    if (message.starts_with("an inference tensor"))
      lines.add("D007", site, Severity::error, std::string(op) + ": " + message + ".");
  }
  void report(std::vector<Finding>& findings) override { lines.report(findings); }
  Lines lines;
};

// D022: gradients of the step before are still there and were added to. Forgetting a gradient makes a new storage,
// whose version begins anew; filling it with zeros is seen as an op.
struct GradsNeverCleared : Rule {
  struct Seen {
    const Storage* storage = nullptr;
    uint32_t version = 0;
  };
  struct Watched {
    std::array<Seen, 4> grads;  // of the first parameters that have one
    Site site;
    int64_t steps = 0, dirty = 0, streak = 0, longest = 0;
  };
  void grads_cleared(const void*, bool, const Site&) override { cleared(); }
  void op_ran(const OpDef& def, std::span<const Tensor* const>, std::span<const Tensor> outputs, bool,
              const Site&) override {
    if (optimizers.empty() || outputs.empty() || !outputs[0].defined()) return;
    if (outputs[0].memory_category() == MemoryCategory::gradient && std::strcmp(def.info.name, "fill_") == 0) cleared();
  }
  void optimizer_begins(const OptimizerStep& step) override {
    Watched& w = optimizers[step.optimizer];
    const std::array<Seen, 4> now = grads_of(step.params);
    bool grown = false;
    for (size_t i = 0; i < now.size(); ++i)
      grown |= now[i].storage && now[i].storage == w.grads[i].storage && now[i].version > w.grads[i].version;
    w.grads = now;
    w.site = step.site;
    ++w.steps;
    w.dirty += grown;
    w.streak = grown ? w.streak + 1 : 0;
    w.longest = std::max(w.longest, w.streak);
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [optimizer, w] : optimizers) {
      if (w.longest < kStreak) continue;
      Finding f = finding("D022", w.site,
                          fmt::format("{} of {} steps used gradients to which those of earlier steps had been added: "
                                      "nothing cleared them in between.",
                                      w.dirty, w.steps));
      f.count = w.dirty;
      findings.push_back(std::move(f));
    }
  }

  static std::array<Seen, 4> grads_of(std::span<const Tensor> params) {
    std::array<Seen, 4> found{};
    size_t n = 0;
    for (const Tensor& p : params) {
      if (n == found.size()) break;
      if (!p.requires_grad()) continue;
      if (Tensor g = p.grad(); g.defined() && !g.is_inference())
        found[n++] = {g.impl()->storage, g.impl()->storage->current_version()};
    }
    return found;
  }
  void cleared() {
    for (auto& [optimizer, w] : optimizers) w.grads = {};
  }
  static constexpr int64_t kStreak = 3;
  std::map<const void*, Watched> optimizers;
};

}  // namespace

std::vector<std::unique_ptr<Rule>> make_grad_rules() {
  std::vector<std::unique_ptr<Rule>> rules;
  rules.push_back(make_rule<BackwardInNoGrad>());
  rules.push_back(make_rule<RequiresGradInNoGrad>());
  rules.push_back(make_kept_graph_rule());
  rules.push_back(make_unused_graph_rule());
  rules.push_back(make_outside_no_grad_rule());
  rules.push_back(make_rule<InferenceTensorInTraining>());
  rules.push_back(make_not_finite_rule());
  rules.push_back(make_rule<GradsNeverCleared>());
  return rules;
}

}  // namespace deft::doctor
