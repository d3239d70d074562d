// The large-block allocator: size classes over the system allocator, with a bounded cache of freed blocks.
#include "runtime/memory.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <mutex>

#include "base/check.h"
#include "base/env_number.h"
#include "runtime/profile_hook.h"
#include "runtime/scratch.h"
#include "runtime/system_memory.h"

namespace deft {

namespace {

#if defined(DEFT_ASAN)
constexpr bool kCacheBuffers = false;  // let the sanitizer see every block and its exact size
#else
constexpr bool kCacheBuffers = true;
#endif

constexpr size_t kAlignment = 64;
constexpr size_t kMaxBytes = size_t{1} << 47;  // more than the address space of a process holds
constexpr size_t kDefaultLimit = size_t{1} << 30;
constexpr int kClassCount = 312;

struct SizeClass {
  int index;
  size_t bytes;
};
// Multiples of 64 up to 1 KiB, then eight steps per power of two.
constexpr SizeClass class_of(size_t bytes) {
  size_t units = bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment;
  if (units <= 8) return {static_cast<int>(units) - 1, units * kAlignment};
  int shift = std::bit_width(units - 1) - 4;
  size_t step = ((units - 1) >> shift) + 1;  // 9..16
  return {8 + shift * 8 + static_cast<int>(step) - 9, (step << shift) * kAlignment};
}
static_assert(class_of(kMaxBytes).index == kClassCount - 1 && class_of(kMaxBytes).bytes == kMaxBytes);

// A freed block, linked through its own memory.
struct CachedBlock {
  CachedBlock *next, *prev;    // same size class, the one freed last in front
  CachedBlock *older, *newer;  // all blocks by time of freeing
  SizeClass size;
};
static_assert(sizeof(CachedBlock) <= kAlignment);

// Trivially destructible, so that frees during static destruction still find it.
struct BufferCache {
  std::mutex mutex;
  CachedBlock* lists[kClassCount] = {};
  CachedBlock *oldest = nullptr, *newest = nullptr;
  size_t bytes = 0;
  size_t limit = 0;
  bool limit_known = false;

  CachedBlock* take(int cls) {
    CachedBlock* block = lists[cls];
    if (block) unlink(block);
    return block;
  }
  void put(CachedBlock* block, SizeClass size) {
    *block = {lists[size.index], nullptr, newest, nullptr, size};
    if (block->next) block->next->prev = block;
    lists[size.index] = block;
    (newest ? newest->newer : oldest) = block;
    newest = block;
    bytes += size.bytes;
  }
  void unlink(CachedBlock* b) {
    (b->prev ? b->prev->next : lists[b->size.index]) = b->next;
    if (b->next) b->next->prev = b->prev;
    (b->older ? b->older->newer : oldest) = b->newer;
    (b->newer ? b->newer->older : newest) = b->older;
    bytes -= b->size.bytes;
  }
  // Unlinks the oldest blocks until at most `keep` bytes stay; returns them chained by `next`.
  CachedBlock* evict(size_t keep) {
    CachedBlock* out = nullptr;
    while (bytes > keep) {
      CachedBlock* block = oldest;
      unlink(block);
      block->next = out;
      out = block;
    }
    return out;
  }
};
constinit BufferCache cache;
constinit std::atomic<int64_t> system_calls{0};
constinit std::atomic<void (*)()> release_more{nullptr};
constinit std::atomic<size_t> request_limit{0};  // of tests

// A child made by fork() must not inherit a lock that another thread held.
[[maybe_unused]] const int fork_handlers =
    pthread_atfork([] { cache.mutex.lock(); }, [] { cache.mutex.unlock(); }, [] { cache.mutex.unlock(); });

size_t current_limit(BufferCache& c) {  // the lock is held
  if (!c.limit_known) {
    c.limit = number_from_env("DEFT_CACHE_MB", kDefaultLimit >> 20, kMaxBytes >> 20) << 20;
    c.limit_known = true;
  }
  return c.limit;
}

// Outside the lock: giving pages back is slow.
size_t free_chain(CachedBlock* block) noexcept {
  size_t bytes = 0;
  while (block) {
    CachedBlock* next = block->next;
    bytes += block->size.bytes;
    detail::system_free(block);
    block = next;
  }
  return bytes;
}
size_t drop_cache() noexcept {
  CachedBlock* blocks;
  {
    std::lock_guard lock(cache.mutex);
    blocks = cache.evict(0);
  }
  return free_chain(blocks);
}

// Sanitizers abort on sizes they find absurd instead of refusing them.
size_t largest_sane_request() {
  if (const size_t limit = request_limit.load(std::memory_order_relaxed)) return limit;
#if defined(DEFT_ASAN) || defined(DEFT_TSAN) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
#else
  return kMaxBytes;
#endif
}

[[noreturn, gnu::cold]] void fail_out_of_memory(size_t bytes) {
  MemoryUse use = memory_live();
  std::string live;
  for (int i = 0; i < kMemoryCategoryCount; ++i)
    live += fmt::format("{}{} {}", i ? ", " : "", name_of(static_cast<MemoryCategory>(i)), use.by_category[i]);
  DEFT_FAIL(OutOfMemoryError,
            "allocate: the system has no {} bytes to give while {} bytes are live ({}); "
            "use a smaller batch, a narrower dtype or activation checkpointing",
            bytes, use.total, live);
}

// Large blocks ask for huge pages where the system gives them on request: a page of 4 KB every 4 KB costs a walk of the
// page table, and stops the hardware's prefetching.
constexpr size_t kHugePage = size_t{2} << 20, kLargeBlock = 2 * kHugePage;

void* try_system(size_t bytes) noexcept {
  system_calls.fetch_add(1, std::memory_order_relaxed);
  const bool large = bytes >= kLargeBlock;
  void* p = nullptr;
  if (posix_memalign(&p, large ? kHugePage : kAlignment, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (large) madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a hint: its result does not matter
#endif
  return p;
}

}  // namespace

namespace detail {

void* system_allocate(size_t bytes, size_t requested) {
  const bool sane = bytes <= largest_sane_request();
  if (void* p = sane ? try_system(bytes) : nullptr) return p;
  if (auto* release = release_more.load(std::memory_order_acquire)) release();
  drop_cache();
  if (void* p = sane ? try_system(bytes) : nullptr) return p;
  fail_out_of_memory(requested);
}
void give_back_first(void (*release)()) { release_more.store(release, std::memory_order_release); }
void system_free(void* p) noexcept { std::free(p); }
void refuse_requests_above(size_t bytes) noexcept { request_limit.store(bytes, std::memory_order_relaxed); }

void* allocate_buffer_unchecked(size_t bytes) {
  if (bytes > kMaxBytes) [[unlikely]]
    fail_out_of_memory(bytes);
  if constexpr (!kCacheBuffers) return system_allocate(bytes ? bytes : 1, bytes);
  SizeClass size = class_of(bytes);
  {
    std::lock_guard lock(cache.mutex);
    if (CachedBlock* block = cache.take(size.index)) return block;
  }
  Zone zone("allocate from system", Bucket::allocation, Site());
  return system_allocate(size.bytes, bytes);
}

}  // namespace detail

void* allocate_buffer(size_t bytes) {
  detail::check_fuse();
  return detail::allocate_buffer_unchecked(bytes);
}

void free_buffer(void* p, size_t bytes) noexcept {
  if (!p) return;
  if constexpr (!kCacheBuffers) return detail::system_free(p);
  SizeClass size = class_of(bytes);
  CachedBlock* evicted = nullptr;
  {
    std::lock_guard lock(cache.mutex);
    size_t limit = current_limit(cache);
    if (size.bytes <= limit) {
      evicted = cache.evict(limit - size.bytes);
      cache.put(static_cast<CachedBlock*>(p), size);
      p = nullptr;
    }
  }
  if (!evicted && !p) return;
  Zone zone("give back to system", Bucket::allocation, Site());
  free_chain(evicted);
  detail::system_free(p);
}

void set_buffer_cache_limit(size_t bytes) {
  CachedBlock* evicted;
  {
    std::lock_guard lock(cache.mutex);
    cache.limit = bytes;
    cache.limit_known = true;
    evicted = cache.evict(bytes);
  }
  free_chain(evicted);
}
size_t buffer_cache_limit() {
  std::lock_guard lock(cache.mutex);
  return current_limit(cache);
}
int64_t buffer_cache_bytes() {
  std::lock_guard lock(cache.mutex);
  return static_cast<int64_t>(cache.bytes);
}
int64_t system_allocations() { return system_calls.load(std::memory_order_relaxed); }

size_t trim_memory() {
  detail::flush_small_cache();
  detail::flush_scratch();
  size_t bytes = drop_cache();
#if defined(__GLIBC__)
  malloc_trim(0);  // free() alone keeps pages below its mmap threshold
#endif
  return bytes;
}

}  // namespace deft
