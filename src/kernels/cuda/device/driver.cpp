#include "kernels/cuda/device/driver.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "kernels/cuda/device/encoder.h"

namespace deft::cuda {

namespace {

constinit std::mutex making;
constinit std::atomic<Gpu*> gpus[kMaxDevices];
constinit std::atomic<bool> forked{false};

}  // namespace

int gpu_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {  // no driver, or one too old for this build
      cudaGetLastError();
      return 0;
    }
    if (n > 0) pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return n < kMaxDevices ? n : kMaxDevices;
  }();
  return forked.load(std::memory_order_relaxed) ? 0 : count;
}

void use_gpu(int index) {
  int now = -1;  // queried every time: other libraries change it too
  if (cudaGetDevice(&now) == cudaSuccess && now == index) [[likely]]
    return;
  check(cudaSetDevice(index), "cuda", "choosing the device");
}

bool blocking_launches() {
  static const bool on = [] {
    const char* text = std::getenv("DEFT_CUDA_BLOCKING");
    return text && std::strcmp(text, "1") == 0;
  }();
  return on;
}

Gpu::Gpu(int i) : index(i), allocator(i) {
  use_gpu(i);
  check(cudaGetDeviceProperties(&properties, i), "cuda", "reading the device's properties");
  check(cudaDeviceGetAttribute(&max_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, i), "cuda",
        "reading the device's properties");
  void* host = nullptr;
  check(cudaHostAlloc(&host, sizeof(FaultRecord), cudaHostAllocMapped | cudaHostAllocPortable), "cuda",
        "allocating the fault record");
  std::memset(host, 0, sizeof(FaultRecord));
  faults = static_cast<FaultRecord*>(host);
  check(cudaMalloc(&fault_taken, sizeof(unsigned)), "cuda", "allocating the fault record");
  check(cudaMemset(fault_taken, 0, sizeof(unsigned)), "cuda", "allocating the fault record");
  check(cudaDeviceSynchronize(), "cuda", "allocating the fault record");
  stream(0);
}

cudaStream_t Gpu::stream(uint8_t id) {
  cudaStream_t s = streams[id].load(std::memory_order_acquire);
  if (s) [[likely]]
    return s;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  s = streams[id].load(std::memory_order_acquire);
  if (s) return s;
  use_gpu(index);
  check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cuda", "creating a stream");
  streams[id].store(s, std::memory_order_release);
  return s;
}

Gpu& gpu(int index) {
  Gpu* g = gpus[index].load(std::memory_order_acquire);
  if (g) [[likely]]
    return *g;
  std::lock_guard lock(making);
  g = gpus[index].load(std::memory_order_acquire);
  if (g) return *g;
  g = new Gpu(index);  // never destroyed: tensors may outlive static destruction
  gpus[index].store(g, std::memory_order_release);
  return *g;
}

bool in_forked_child() { return forked.load(std::memory_order_relaxed); }
Gpu* gpu_if_made(int index) { return gpus[index].load(std::memory_order_acquire); }

PinnedAllocator& pinned_allocator() {
  static auto* allocator = new PinnedAllocator;  // never destroyed: tensors may outlive static destruction
  return *allocator;
}

}  // namespace deft::cuda
