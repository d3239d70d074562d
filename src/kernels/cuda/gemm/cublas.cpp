#include "kernels/cuda/gemm/cublas.h"

#include <atomic>
#include <mutex>

#include "base/check.h"
#include "runtime/limits.h"

namespace deft::cuda {

std::string cublas_version() {
  size_t v = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

cublasLtHandle_t cublas_handle(Device device, const char* op) {
  struct Slot {
    std::mutex mutex;
    std::atomic<cublasLtHandle_t> handle{nullptr};
  };
  // Never destroyed: tensors may still be used while static objects go.
  static Slot* const slots = new Slot[kMaxDevices];
  Slot& slot = slots[device.index];
  if (cublasLtHandle_t made = slot.handle.load(std::memory_order_acquire)) return made;
  std::lock_guard guard(slot.mutex);
  if (cublasLtHandle_t made = slot.handle.load(std::memory_order_relaxed)) return made;
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), op, "start cuBLASLt");
  slot.handle.store(handle, std::memory_order_release);
  return handle;
}

void check(cublasStatus_t status, const char* op, const char* what) {
  DEFT_CHECK(status == CUBLAS_STATUS_SUCCESS, DeviceError, "{}: cuBLASLt could not {}: {} ({})", op, what,
             cublasLtGetStatusString(status), cublasLtGetStatusName(status));
}

}  // namespace deft::cuda
