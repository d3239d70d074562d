// What passes over many tensors share: optimizer steps (optimizer_update.cpp), norms and scaling (tensor_lists.cpp).
#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"
#include "core/tensor.h"
#include "ops/operand.h"
#include "runtime/context.h"
#include "runtime/profile_hook.h"
#include "runtime/stream.h"

namespace deft::detail {

// Neither recorded nor autocast; tensors made inside are ordinary ones even within inference mode.
inline ExecContext plain_context() {
  ExecContext c = context();
  c.bits = (c.bits | kGradOff) & ~(kInference | kAutocast);
  return c;
}

// These run over memory without ops: optimizers, clipping and averages notify a capture themselves.
inline void refuse_capture(const char* name, const Site& site) {
  DEFT_CHECK(!(context().bits & kCapture), CaptureError,
             "capture: {} ({}) is not seen by compile(); call step() of an optimizer, clip_grad_norm_() or update() of "
             "an average instead, or leave it outside the compiled function",
             name, to_string(effective_site(site)));
}

// What each of them begins with.
class ListCall {
 public:
  ListCall(const char* name, const Site& site)
      : zone_(name, Bucket::optimizer, site), scope_(site), user_(effective_site(site)), guard_(plain_context()) {
    refuse_capture(name, site);
  }
  const Site& user() const { return user_; }

 private:
  Zone zone_;
  SiteScope scope_;
  Site user_;
  ContextGuard guard_;
};

inline bool same_layout(const Meta& a, const Meta& b) {
  if (a.contiguous && b.contiguous) return true;
  for (int i = 0; i < a.rank(); ++i)
    if (a.sizes[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}
// Dense f32 or bf16 on the CPU.
inline bool is_kernel_data(const Tensor& t) {
  return t.device().is_cpu() && (t.dtype() == DType::f32 || t.dtype() == DType::bf16) && t.meta().is_dense();
}

// f(device) for the GPUs that any of the tensors is on.
template <class List, class DeviceOf, class F>
void for_each_gpu(const List& list, DeviceOf device_of, F f) {
  static_assert(kMaxDevices <= 32);
  uint32_t found = 0;
  for (const auto& t : list)
    if (Device d = device_of(t); !d.is_cpu()) found |= 1u << d.index;
  for (; found; found &= found - 1) f(Device{DeviceType::cuda, static_cast<int8_t>(std::countr_zero(found))});
}

inline uint8_t stream_of(Device device) { return context().streams[static_cast<size_t>(device.index)]; }
inline void order_read(const Tensor& t) { deft::order_read(*t.impl()->storage->memory, stream_of(t.device())); }
inline void order_write(const Tensor& t) { deft::order_write(*t.impl()->storage->memory, stream_of(t.device())); }

}  // namespace deft::detail
