#include "kernels/cuda/device/encoder.h"

#include "base/check.h"
#include "kernels/cuda/device/driver.h"
#include "runtime/context.h"

namespace deft::cuda {

namespace {

// Errors of a kernel come out at a later call; these are of that kind.
bool may_be_older(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

// "add, mul and softmax": the ops launched last, oldest first.
std::string recent_ops() {
  std::string names;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kMaxDevices || !gpu_if_made(device)) return names;
  Gpu& g = *gpu_if_made(device);
  unsigned n = g.launches.load(std::memory_order_relaxed);
  for (unsigned i = n > 8 ? n - 8 : 0; i < n; ++i) {
    const char* name = g.recent_ops[i % 8].load(std::memory_order_relaxed);
    if (name) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

[[noreturn, gnu::cold]] void fail(cudaError_t status, const char* op, const char* what) {
  cudaGetLastError();
  DEFT_CHECK(status != cudaErrorMemoryAllocation, OutOfMemoryError,
             "{}: {} failed for want of device memory; free tensors or call trim_device_memory()", op, what);
  if (may_be_older(status))
    DEFT_FAIL(DeviceError,
              "{}: {} failed: {} ({}), from this op or one launched before (last: {}); run with DEFT_CUDA_BLOCKING=1 "
              "to find which, and start the process anew: the device's state is lost",
              op, what, cudaGetErrorString(status), cudaGetErrorName(status), recent_ops());
  DEFT_FAIL(DeviceError, "{}: {} failed: {} ({})", op, what, cudaGetErrorString(status), cudaGetErrorName(status));
}

[[gnu::cold, gnu::noinline]] void throw_fault(Gpu& g) {
  std::lock_guard lock(g.fault_mutex);
  if (!g.faults->ready) return;  // another thread was first, and throws it
  std::atomic_thread_fence(std::memory_order_acquire);
  FaultRecord r;
  __builtin_memcpy(&r, g.faults, sizeof r);
  // Everything that could still report runs before the record is opened again.
  use_gpu(g.index);
  cudaDeviceSynchronize();
  g.faults->ready = 0;
  cudaMemset(g.fault_taken, 0, sizeof(unsigned));
  cudaDeviceSynchronize();
  std::string text = fmt::format(fmt::runtime(r.text), r.op, r.values[0], r.values[1], r.values[2], r.values[3]);
  std::string_view file(r.file ? r.file : "");
  if (auto cut = file.rfind('/'); cut != file.npos) file.remove_prefix(cut + 1);
  if (!file.empty()) text += fmt::format(" (found on the device; launched at {}:{})", file, r.line);
  if (r.kind == FaultKind::index) throw IndexError(text);
  throw ValueError(text);
}

}  // namespace

void check(cudaError_t status, const char* op, const char* what) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, op, what);
}

void check_faults(Gpu& g) {
  if (g.faults->ready) [[unlikely]]
    throw_fault(g);
}

Encoder::Encoder(Device device, const char* op)
    : Encoder(device, context().streams[static_cast<size_t>(device.index)], op) {}
Encoder::Encoder(Device device, uint8_t stream, const char* op) : device_(device), id_(stream), op_(op) {
  Gpu& g = gpu(device.index);
  check_faults(g);
  use_gpu(device.index);
  stream_ = g.stream(stream);
}

int Encoder::multiprocessors() const { return gpu(device_.index).properties.multiProcessorCount; }
size_t Encoder::max_shared_bytes() const { return static_cast<size_t>(gpu(device_.index).max_shared_bytes); }

void Encoder::enqueue(const void* kernel, dim3 blocks, dim3 threads, size_t shared, void** args) {
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared > kWithoutAsking) [[unlikely]]
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), op_,
          "asking for shared memory");
  check(cudaLaunchKernel(kernel, blocks, threads, args, shared, stream_), op_, "a kernel launch");
  note_launch();
}

void Encoder::note_launch() const {
  Gpu& g = gpu(device_.index);
  unsigned n = g.launches.fetch_add(1, std::memory_order_relaxed);
  g.recent_ops[n % 8].store(op_, std::memory_order_relaxed);
  if (blocking_launches()) [[unlikely]]
    wait_for_kernel();
}

void Encoder::copy(void* to, const void* from, size_t bytes) {
  if (bytes) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), op_, "a copy");
}
void Encoder::zero(void* p, size_t bytes) {
  if (bytes) check(cudaMemsetAsync(p, 0, bytes, stream_), op_, "a fill");
}

void Encoder::wait_for_kernel() const {
  check(cudaStreamSynchronize(stream_), op_, "a kernel");
  check_faults(gpu(device_.index));
}

FaultSite Encoder::fault_site(FaultKind kind, const char* text) const {
  Gpu& g = gpu(device_.index);
  const ExecContext& c = context();
  Site site = c.has_outer_site ? c.outer_site : Site();
  return {g.faults,
          g.fault_taken,
          kind,
          op_,
          text,
          site.line() ? site.file_name() : nullptr,
          static_cast<int32_t>(site.line())};
}

Workspace::Workspace(const Encoder& e, size_t bytes)
    : memory_(gpu(e.device().index).allocator.allocate(bytes, e.stream_id())) {}
Workspace::~Workspace() { gpu(memory_->device.index).allocator.free(static_cast<Block*>(memory_)); }

}  // namespace deft::cuda
