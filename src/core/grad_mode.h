// The switches: no_grad, enable_grad, set_grad_enabled, inference_mode. See docs/guide/grad_modes.md.
#pragma once

#include <utility>

#include "runtime/context.h"

namespace deft {

inline bool is_grad_enabled() { return !(context().bits & kGradOff); }
inline bool is_inference_mode_enabled() { return context().bits & kInference; }
// Sticky for this thread, until changed again or an enclosing guard ends.
void set_grad_enabled(bool enabled, Site site = Site::current());

namespace detail {
// Restores mode bits and the site that goes with them. Not copyable or movable: guards nest strictly.
class ModeGuard {
 public:
  ModeGuard() : bits_(context().bits), site_(context().grad_site) {}
  ~ModeGuard() {
    constexpr uint32_t mask = kGradOff | kInference;
    ExecContext& c = context();
    c.bits = (c.bits & ~mask) | (bits_ & mask);
    c.grad_site = site_;
  }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  uint32_t bits_;
  Site site_;
};
}  // namespace detail

// No graph is recorded and nothing is saved; results may be used later as constants.
class [[nodiscard]] NoGradGuard : detail::ModeGuard {
 public:
  explicit NoGradGuard(Site site = Site::current()) { set_grad_enabled(false, site); }
};
class [[nodiscard]] EnableGradGuard : detail::ModeGuard {
 public:
  explicit EnableGradGuard(Site site = Site::current()) { set_grad_enabled(true, site); }
};
class [[nodiscard]] GradModeGuard : detail::ModeGuard {
 public:
  explicit GradModeGuard(bool enabled, Site site = Site::current()) { set_grad_enabled(enabled, site); }
};
// Besides no_grad: tensors made inside carry no version and no view tracking, and can never be used in training.
// InferenceModeGuard(false) leaves inference mode and, as in PyTorch, turns grad mode on.
class [[nodiscard]] InferenceModeGuard : detail::ModeGuard {
 public:
  explicit InferenceModeGuard(bool enabled = true, Site site = Site::current());
};

// Function forms: the mode holds while `f` runs, and only then.
template <class F>
decltype(auto) no_grad(F&& f, Site site = Site::current()) {
  NoGradGuard guard(site);
  return std::forward<F>(f)();
}
template <class F>
decltype(auto) enable_grad(F&& f, Site site = Site::current()) {
  EnableGradGuard guard(site);
  return std::forward<F>(f)();
}
template <class F>
decltype(auto) inference_mode(F&& f, Site site = Site::current()) {
  InferenceModeGuard guard(true, site);
  return std::forward<F>(f)();
}
template <class F>
decltype(auto) inference_mode(bool enabled, F&& f, Site site = Site::current()) {
  InferenceModeGuard guard(enabled, site);
  return std::forward<F>(f)();
}

// Checks gradients for NaN and names the forward line of the op that made the first one; also checks forward results.
class [[nodiscard]] AnomalyGuard {
 public:
  explicit AnomalyGuard(bool enabled = true) : outer_(context().bits & kAnomaly) { set(enabled); }
  ~AnomalyGuard() { set(outer_); }
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

 private:
  static void set(bool on) { context().bits = on ? context().bits | kAnomaly : context().bits & ~kAnomaly; }
  bool outer_;
};

}  // namespace deft
