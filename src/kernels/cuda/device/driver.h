// The GPUs of this machine: their streams, allocators and fault records.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <mutex>

#include "kernels/cuda/device/allocator.h"
#include "kernels/cuda/device/fault.h"

namespace deft::cuda {

struct Gpu {
  int index;
  cudaDeviceProp properties;
  int max_shared_bytes;  // per block, after opting in
  Allocator allocator;
  std::array<std::atomic<cudaStream_t>, kMaxStreams> streams{};
  std::atomic<uint8_t> next_stream{1};
  FaultRecord* faults;  // host memory that kernels can write
  unsigned* fault_taken;
  std::atomic<const char*> recent_ops[8] = {};  // names of ops launched last, for errors that come out later
  std::atomic<unsigned> launches{0};
  std::mutex fault_mutex;

  explicit Gpu(int i);
  cudaStream_t stream(uint8_t id);
};

int gpu_count();
Gpu& gpu(int index);  // made at its first use; never destroyed
Gpu* gpu_if_made(int index);
// CUDA cannot be used after fork(): such a process has no GPUs, and what it frees of its parent's is left alone.
bool in_forked_child();
// Throws what a kernel reported; see fault.h.
void check_faults(Gpu& g);
// Makes the GPU the calling thread's current one.
void use_gpu(int index);
// True with DEFT_CUDA_BLOCKING=1: every launch is waited for, so that errors name the op they belong to.
bool blocking_launches();
PinnedAllocator& pinned_allocator();

}  // namespace deft::cuda
