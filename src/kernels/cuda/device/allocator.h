// The caching allocator of one GPU. Blocks are allocated and freed in the order of a stream, so that freed memory
// is reused at once on the stream it belongs to; memory that other streams still work on waits for their events.
#pragma once

#include <cuda_runtime.h>

#include <mutex>
#include <vector>

#include "kernels/cuda/device/size_class.h"
#include "runtime/backend.h"

namespace deft::cuda {

struct Segment;  // memory taken from the driver at once

struct Block : DeviceMemory {
  int size_class = 0;
  size_t requested = 0;
  Segment* segment = nullptr;
  Block* next = nullptr;  // in a free list
  bool guarded = false;
};

class Allocator {
 public:
  explicit Allocator(int device);
  Block* allocate(size_t bytes, uint8_t stream);
  void free(Block* block) noexcept;
  size_t trim();
  void set_limit(size_t bytes);
  DeviceMemoryUse use();
  void reset_peak();
  void set_guard_words(bool on);
  int64_t check_guard_words();
  // Until end_keeping(), what is freed of the stream's blocks is handed out to that stream again and to no other;
  // then it is the caller's. For recordings: their addresses are written down.
  void begin_keeping(uint8_t stream);
  std::vector<Block*> end_keeping();

 private:
  struct Pending {
    Block* block;
    std::vector<cudaEvent_t> events;  // the last uses on other streams
  };

  Block* take(int size_class, uint8_t stream);
  Block* take_larger(int size_class, uint8_t stream);
  Block* take_kept(int size_class, uint8_t stream);
  Block* carve(int size_class, uint8_t stream, size_t requested);
  bool reserve(Segment& segment, size_t bytes);
  void put(Block* block);
  void free_later(Block* block, uint64_t streams);
  void poll_pending(bool wait);
  size_t release_cached();
  cudaEvent_t take_event();
  void place_guard(Block* block);
  void check_guard(Block* block);
  [[noreturn]] void fail(size_t bytes);

  const int device_;
  std::mutex mutex_;
  Block* lists_[kMaxStreams][kSizeClasses] = {};
  std::vector<Pending> pending_;
  std::vector<cudaEvent_t> events_;
  std::vector<Segment*> segments_;
  DeviceMemoryUse use_;
  size_t limit_ = 0;
  bool keeping_ = false;
  uint8_t keeping_for_ = 0;
  std::vector<Block*> kept_;
  bool guards_ = false;
  int64_t broken_guards_ = 0;
  std::vector<Block*> guarded_;  // live ones
};

// Pinned host memory: the same size classes, cached up to a cap (DEFT_PINNED_CACHE_MB, default 256).
class PinnedAllocator {
 public:
  Block* allocate(size_t bytes);
  void free(Block* block) noexcept;
  size_t trim();

 private:
  std::mutex mutex_;
  Block* lists_[kSizeClasses] = {};
  size_t cached_ = 0;
};

}  // namespace deft::cuda
