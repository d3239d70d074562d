// The execution context: one thread-local word of mode bits and what belongs to it. Captured when work is
// submitted and restored in every pool thread, backward pass and worker, so that a mode follows the work.
#pragma once

#include <array>
#include <cstdint>

#include "base/site.h"
#include "runtime/dtype.h"
#include "runtime/limits.h"
#include "runtime/sync.h"

namespace deft {

class Generator;

enum ModeBits : uint32_t {
  kGradOff = 1u << 0,
  kInference = 1u << 1,
  kAnomaly = 1u << 2,
  kDeterministic = 1u << 3,
  kAutocast = 1u << 4,
  kCapture = 1u << 5,
  kProfile = 1u << 6,
  kFresh = 1u << 31,  // this thread has not taken over the process default yet
  // Any of these sends an op down the out-of-line path.
  kSlowPath = kAutocast | kCapture | kProfile | kFresh,
};

struct ExecContext {
  uint32_t bits = kFresh;
  DType autocast_dtype = DType::f32;
  Site grad_site;   // who turned grad mode off
  Site outer_site;  // the user's line, while a composite op or a backward formula runs inner ops
  bool has_outer_site = false;
  Generator* rng = nullptr;  // nullptr: the process-wide generator
  const char* profile_scope = nullptr;
  SyncPolicy sync = SyncPolicy::allow;
  std::array<uint8_t, kMaxDevices> streams{};  // the current stream of each CUDA device
};

namespace detail {
extern constinit thread_local ExecContext exec_context __attribute__((tls_model("initial-exec")));
void take_process_default(ExecContext& c);
}  // namespace detail

inline ExecContext& context() {
  ExecContext& c = detail::exec_context;
  if (c.bits & kFresh) [[unlikely]]
    detail::take_process_default(c);
  return c;
}

// Installs a captured context for the lifetime of the guard.
class ContextGuard {
 public:
  explicit ContextGuard(const ExecContext& c) : saved_(context()) { context() = c; }
  ~ContextGuard() { context() = saved_; }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  ExecContext saved_;
};

// Grad mode a thread starts with, when it is not one of Deft's own. Also sets the calling thread's mode.
void set_default_grad_mode(bool enabled, Site site = Site::current());

// Ops called inside belong to the user's line `site`.
class SiteScope {
 public:
  explicit SiteScope(const Site& site) {
    ExecContext& c = context();
    had_ = c.has_outer_site;
    outer_ = c.outer_site;
    if (!had_) {  // the outermost call is the user's
      c.outer_site = site;
      c.has_outer_site = true;
    }
  }
  ~SiteScope() {
    ExecContext& c = context();
    c.has_outer_site = had_;
    c.outer_site = outer_;
  }
  SiteScope(const SiteScope&) = delete;
  SiteScope& operator=(const SiteScope&) = delete;

 private:
  Site outer_;
  bool had_;
};
inline Site effective_site(const Site& site) {
  const ExecContext& c = context();
  return c.has_outer_site ? c.outer_site : site;
}

}  // namespace deft
