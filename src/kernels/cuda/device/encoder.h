// Enqueues work on a GPU. Everything Deft enqueues goes through an Encoder: it knows the stream and the name of the
// op, so that launches can be captured and errors can be named in one place.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/fault.h"
#include "runtime/backend.h"

namespace deft::cuda {

// DeviceError "op: what was tried: CUDA's text". The message says so when the error may belong to an earlier op.
void check(cudaError_t status, const char* op, const char* what);

class Encoder {
 public:
  // On the current stream of `device` for this thread. Throws what kernels of earlier ops reported.
  Encoder(Device device, const char* op);
  Encoder(Device device, uint8_t stream, const char* op);

  cudaStream_t stream() const { return stream_; }
  uint8_t stream_id() const { return id_; }
  Device device() const { return device_; }
  const char* op() const { return op_; }
  int multiprocessors() const;
  size_t max_shared_bytes() const;  // per block, after opting in

  // kernel<<<blocks, threads, shared>>>(args...). Arguments are converted to the kernel's parameter types.
  template <class... P, class... A>
  void launch(void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared, const A&... args) {
    static_assert(sizeof...(P) == sizeof...(A));
    auto with = [&](P... p) {
      void* list[] = {static_cast<void*>(&p)..., nullptr};
      enqueue(reinterpret_cast<const void*>(kernel), blocks, threads, shared, list);
    };
    with(static_cast<P>(args)...);
  }
  void enqueue(const void* kernel, dim3 blocks, dim3 threads, size_t shared, void** args);
  // After work given to the stream by a library: errors that come out later can name this op too.
  void note_launch() const;
  // One thread per item, 256 in a block; the kernel checks its index, or loops with a grid stride past `max_blocks`.
  static unsigned blocks_for(int64_t items, int threads = 256, int64_t max_blocks = 0x7fffffff) {
    int64_t blocks = (items + threads - 1) / threads;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks < max_blocks ? blocks : max_blocks);
  }
  void copy(void* to, const void* from, size_t bytes);  // within the device
  void zero(void* p, size_t bytes);
  // Where a kernel reports a bad value; `text` must be a literal. See kernels/cuda/device/fault.h.
  FaultSite fault_site(FaultKind kind, const char* text) const;

 private:
  void wait_for_kernel() const;
  Device device_;
  uint8_t id_;
  cudaStream_t stream_;
  const char* op_;
};

// Device bytes for the time of one op: handed back in stream order when it goes. 256-byte aligned.
class Workspace {
 public:
  Workspace(const Encoder& e, size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  template <class T = void>
  T* as() const {
    return static_cast<T*>(memory_->data);
  }

 private:
  DeviceMemory* memory_;
};

}  // namespace deft::cuda
