#include "core/capture_hook.h"

#include "base/check.h"

namespace deft {

namespace {

constinit thread_local CaptureHook* current = nullptr;

}  // namespace

CaptureScope::CaptureScope(CaptureHook& hook) {
  DEFT_CHECK(!current, ValueError, "capture: this thread is capturing already; call the inner function uncompiled");
  current = &hook;
  context().bits |= kCapture;
}
CaptureScope::~CaptureScope() {
  current = nullptr;
  context().bits &= ~static_cast<uint32_t>(kCapture);
}

CaptureHook* active_capture() { return context().bits & kCapture ? current : nullptr; }

}  // namespace deft
