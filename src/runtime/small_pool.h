// Thread-cached free lists for headers, small tensors and graph nodes: no system call and no lock in steady state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/memory.h"

namespace deft {

inline constexpr size_t kSmallBlockStep = 64;
inline constexpr size_t kSmallBlockMax = 2048;  // larger requests go to allocate_buffer()

namespace detail {

struct FreeBlock {
  FreeBlock* next;
};
struct SmallCache {
  FreeBlock* lists[kSmallBlockMax / kSmallBlockStep];
  uint16_t counts[kSmallBlockMax / kSmallBlockStep];
};
#if defined(DEFT_ASAN)
inline constexpr bool kPoolSmallBlocks = false;  // let the sanitizer see every block
#else
inline constexpr bool kPoolSmallBlocks = true;
#endif
// Blocks kept per thread and size class before half of them go to the shared list.
inline constexpr uint16_t kSmallCacheDepth = 64;

// The thread's own, or one that is shared by all threads without: it looks full and empty at once and is never written.
extern constinit thread_local SmallCache* small_cache __attribute__((tls_model("initial-exec")));
void* small_refill(size_t cls);
void small_spill(FreeBlock* block, size_t cls) noexcept;

// allocate_small() without failure injection.
inline void* allocate_small_unchecked(size_t bytes) {
  size_t cls = (bytes - 1) / kSmallBlockStep;
  if (kPoolSmallBlocks && cls < kSmallBlockMax / kSmallBlockStep) [[likely]] {
    SmallCache& cache = *small_cache;
    if (FreeBlock* block = cache.lists[cls]) [[likely]] {
      cache.lists[cls] = block->next;
      --cache.counts[cls];
      return block;
    }
    return small_refill(cls);
  }
  return allocate_buffer_unchecked(bytes);
}

}  // namespace detail

// 64-byte aligned. Throws OutOfMemoryError.
inline void* allocate_small(size_t bytes) {
  detail::check_fuse();
  return detail::allocate_small_unchecked(bytes);
}

inline void free_small(void* p, size_t bytes) noexcept {
  size_t cls = (bytes - 1) / kSmallBlockStep;
  if (detail::kPoolSmallBlocks && cls < kSmallBlockMax / kSmallBlockStep) [[likely]] {
    detail::SmallCache& cache = *detail::small_cache;
    auto* block = static_cast<detail::FreeBlock*>(p);
    if (cache.counts[cls] >= detail::kSmallCacheDepth) [[unlikely]]
      return detail::small_spill(block, cls);
    block->next = cache.lists[cls];
    cache.lists[cls] = block;
    ++cache.counts[cls];
    return;
  }
  free_buffer(p, bytes);
}

}  // namespace deft
