// D021: the first NaN, by samples of every result on the CPU.
//
// Note [Sampled values]
// Small results whole, larger ones at eight places of a cache line each. A NaN is traced to the op whose inputs had
// none: only then are inputs read whole. Infinities alone are no mistake (masks are made of them), so the first op that
// made one is only remembered, and named when a NaN or a loss that is not finite comes up. Results on a device are not
// read, since that would make the host wait: there only a loss that is read shows it.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "core/engine.h"
#include "doctor/grad_rules.h"
#include "runtime/dtype.h"

namespace deft::doctor {

namespace {

constexpr int64_t kWhole = 64;  // elements
constexpr int64_t kPlaces = 8, kAtPlace = 4;
constexpr int64_t kTraced = 64;  // results with infinities whose inputs are read

struct Bad {
  bool nan = false, inf = false;
  bool any() const { return nan || inf; }
};

bool can_read(const Tensor& t) {
  return t.defined() && t.numel() > 0 && t.device().is_cpu() && is_floating(t.dtype()) && !t.impl()->storage->memory;
}

template <class T>
void look(const T* p, int64_t n, Bad& bad) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(p[i]);
    if (std::isfinite(v)) continue;
    std::isnan(v) ? bad.nan = true : bad.inf = true;
  }
}

// Layouts with holes are read at their first element only.
Bad look(const Tensor& t, bool whole) {
  Bad bad;
  if (!can_read(t)) return bad;
  dispatch_floating(t.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(t.impl()->data);
    const int64_t n = t.meta().is_dense() ? t.numel() : 1;
    if (whole || n <= kWhole) return look(p, n, bad);
    for (int64_t i = 0; i < kPlaces; ++i) look(p + i * (n - kAtPlace) / (kPlaces - 1), kAtPlace, bad);
  });
  return bad;
}

// Infinities come from the caller here.
bool is_given(const char* op) {
  for (const char* name : {"fill_", "masked_fill", "where", "pad", "clamp", "copy_", "clone", "to"})
    if (std::strcmp(op, name) == 0) return true;
  return false;
}

struct NotFinite : Rule {
  struct Origin {
    const char* op;
    Site site;
    bool backward;
  };
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool,
              const Site& site) override {
    if (found || def.info.cost == Cost::metadata) return;
    if (outputs.empty()) return;
    // Of several results the first is the op's; others may be parts of which only some are filled.
    const Bad out = look(outputs[0], false);
    if (out.any()) [[unlikely]]
      trace(def, inputs, outputs[0], out, site);
  }
  void optimizer_begins(const OptimizerStep& step) override {
    if (!in_gradient || found) return;
    for (const Tensor& p : step.params)
      if (look(p.grad(), true).nan) return name(*in_gradient, false);
  }
  void host_read(const Tensor& t, double value, const Site& site) override {
    if (found || std::isfinite(value) || !is_floating(t.dtype())) return;
    blame("the value that is read here", std::isnan(value), site);
  }
  void backward_begins(std::span<const Tensor> roots, const BackwardOptions&, const Site& site) override {
    for (const Tensor& root : roots) {
      if (found) return;
      if (const Bad bad = look(root, false); bad.any()) blame("the loss that is run backward here", bad.nan, site);
    }
  }
  void report(std::vector<Finding>& findings) override {
    if (found) findings.push_back(*found);
  }

 private:
  void trace(const OpDef& def, std::span<const Tensor* const> inputs, const Tensor& result, Bad out, const Site& site) {
    if (!out.nan && (first_inf || is_given(def.info.name) || ++traced > kTraced)) return;
    Bad in;
    for (const Tensor* t : inputs) {
      // What was written in place is not there any more; what was in it before is not known.
      if (!t->defined() || t->impl()->storage == result.impl()->storage) continue;
      const Bad bad = look(*t, true);
      in.nan |= bad.nan;
      in.inf |= bad.inf;
    }
    const Origin origin{def.info.name, site, in_backward()};
    if (!out.nan) {
      if (!in.any()) first_inf = origin;
    } else if (origin.backward) {
      if (!in.nan && !in_gradient) in_gradient = origin;
    } else if (!in.nan) {
      name(origin, in.inf);
    } else if (in_gradient) {
      name(*in_gradient, false);
    }
  }
  static std::string describe(const Origin& o) {
    return std::string(o.backward ? "backward through this line, " : "") + o.op;
  }

  void name(const Origin& o, bool from_inf) {
    std::string text = describe(o) + " gives NaN here from inputs without NaN";
    if (from_inf)
      text += first_inf ? fmt::format(", but with infinities: the first came from {} at {}", describe(*first_inf),
                                      to_string(first_inf->site))
                        : ", but with infinities";
    found = finding("D021", o.site, text + ".");
  }
  void blame(const char* what, bool nan, const Site& site) {
    if (in_gradient) return name(*in_gradient, false);
    const char* value = nan ? "NaN" : "infinite";
    if (first_inf)
      found = finding("D021", first_inf->site,
                      fmt::format("{} gives an infinity here from finite inputs; {} ({}) is {}.", describe(*first_inf),
                                  what, to_string(site), value));
    else
      found = finding("D021", site, fmt::format("{} is {}; no op was seen to make it.", what, value));
  }

  std::optional<Finding> found;
  std::optional<Origin> first_inf;
  std::optional<Origin> in_gradient;  // no mistake as long as a GradScaler drops the step: named when it is used
  int64_t traced = 0;
};

}  // namespace

std::unique_ptr<Rule> make_not_finite_rule() { return make_rule<NotFinite>(); }

}  // namespace deft::doctor
