// The CUDA implementation of runtime/backend.h.
#include "runtime/backend.h"

#include <fmt/format.h>

#include "base/check.h"
#include "kernels/cuda/conv/cudnn_plan.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/nothing.h"
#include "kernels/cuda/gemm/cublas.h"
#include "runtime/stream.h"

namespace deft {

namespace cuda {

namespace {

std::string version_text(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

class CudaBackend final : public Backend {
 public:
  int device_count() override { return gpu_count(); }

  DeviceProperties properties(int index) override {
    const cudaDeviceProp& p = gpu(index).properties;
    return {p.name, static_cast<int64_t>(p.totalGlobalMem), p.multiProcessorCount, p.major, p.minor, p.l2CacheSize};
  }
  std::vector<std::pair<std::string, std::string>> versions() override {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    return {{"driver", driver ? version_text(driver) : "none"},
            {"runtime", version_text(runtime)},
            {"cublaslt", cublas_version()},
            {"cudnn", cudnn_version()}};
  }

  DeviceMemory* allocate(Device device, size_t bytes, uint8_t stream) override {
    return gpu(device.index).allocator.allocate(bytes, stream);
  }
  DeviceMemory* allocate_pinned(size_t bytes) override {
    poll_held();
    return pinned_allocator().allocate(bytes);
  }
  void free(DeviceMemory* memory) noexcept override {
    if (in_forked_child()) return;
    auto* block = static_cast<Block*>(memory);
    if (block->device.is_cpu())
      pinned_allocator().free(block);
    else
      gpu(block->device.index).allocator.free(block);
  }
  DeviceMemoryUse memory_use(Device device) override { return gpu(device.index).allocator.use(); }
  void reset_peak(Device device) override { gpu(device.index).allocator.reset_peak(); }
  void set_memory_limit(Device device, size_t bytes) override { gpu(device.index).allocator.set_limit(bytes); }
  size_t trim(Device device) override {
    poll_held();
    return device.is_cpu() ? pinned_allocator().trim() : gpu(device.index).allocator.trim();
  }
  void set_guard_words(bool on) override {
    for (int i = 0; i < gpu_count(); ++i) gpu(i).allocator.set_guard_words(on);
  }
  int64_t check_guard_words() override {
    int64_t broken = 0;
    for (int i = 0; i < gpu_count(); ++i) broken += gpu(i).allocator.check_guard_words();
    return broken;
  }

  uint8_t create_stream(Device device, bool high_priority) override {
    Gpu& g = gpu(device.index);
    // Numbers from 1 on; after the last one they are used again.
    uint8_t n = g.next_stream.load();
    uint8_t next;
    do {
      next = static_cast<uint8_t>(n + 1 < kMaxStreams ? n + 1 : 1);
    } while (!g.next_stream.compare_exchange_weak(n, next));
    if (high_priority && !g.streams[n].load()) create_high_priority(g, n);
    g.stream(n);
    return n;
  }
  void* native_stream(Device device, uint8_t stream) override { return gpu(device.index).stream(stream); }
  void synchronize_stream(Device device, uint8_t stream) override {
    check(cudaStreamSynchronize(gpu(device.index).stream(stream)), "synchronize", "waiting for a stream");
  }
  bool query_stream(Device device, uint8_t stream) override {
    return is_ready(cudaStreamQuery(gpu(device.index).stream(stream)));
  }
  void synchronize(Device device) override {
    gpu(device.index);
    use_gpu(device.index);
    check(cudaDeviceSynchronize(), "synchronize", "waiting for the device");
  }

  void* create_event(Device device, bool timed) override {
    gpu(device.index);
    use_gpu(device.index);
    cudaEvent_t e;
    check(cudaEventCreateWithFlags(&e, timed ? cudaEventDefault : cudaEventDisableTiming), "event", "making an event");
    return e;
  }
  void destroy_event(Device, void* event) noexcept override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
  void record_event(Device device, void* event, uint8_t stream) override {
    use_gpu(device.index);
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), gpu(device.index).stream(stream)), "event",
          "recording an event");
  }
  bool query_event(Device, void* event) override { return is_ready(cudaEventQuery(static_cast<cudaEvent_t>(event))); }
  void synchronize_event(Device, void* event) override {
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "event", "waiting for an event");
  }
  void stream_wait(Device device, uint8_t stream, void* event) override {
    use_gpu(device.index);
    check(cudaStreamWaitEvent(gpu(device.index).stream(stream), static_cast<cudaEvent_t>(event)), "event",
          "making a stream wait");
  }
  double elapsed_ms(void* begin, void* end) override {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)), "event",
          "reading the time between two events");
    return ms;
  }

  void launch_nothing(Device device, uint8_t stream) override {
    use_gpu(device.index);
    check(cuda::launch_nothing(gpu(device.index).stream(stream)), "nothing", "a kernel launch");
  }
  void copy(void* to, const void* from, size_t bytes, Device on, uint8_t stream, const char* op) override {
    Encoder e(on, stream, op);
    if (bytes) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, e.stream()), op, "a copy");
  }

  void check_faults(Device device) override { cuda::check_faults(gpu(device.index)); }

 private:
  static bool is_ready(cudaError_t status) {
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // or the next launch check takes it for its own
      return false;
    }
    check(status, "event", "asking a stream");
    return true;
  }
  static void create_high_priority(Gpu& g, uint8_t n) {
    use_gpu(g.index);
    int least = 0, greatest = 0;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaStream_t s;
    check(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest), "Stream", "creating a stream");
    cudaStream_t none = nullptr;
    if (!g.streams[n].compare_exchange_strong(none, s)) cudaStreamDestroy(s);
  }
};

}  // namespace

}  // namespace cuda

namespace detail {

Backend* cuda_backend() {
  static auto* backend = new cuda::CudaBackend;  // never destroyed: tensors may outlive static destruction
  return backend;
}

}  // namespace detail

}  // namespace deft
