// The shared half of the small-block pool. Blocks are cut from 64 KiB slabs that are never given back: the pool is as
// large as the most small blocks that were ever in use at once, plus what the threads cache.
#include "runtime/small_pool.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "runtime/system_memory.h"

namespace deft::detail {

namespace {

constexpr size_t kSlabBytes = 64 * 1024;
constexpr int kBatch = 32;
constexpr size_t kClasses = kSmallBlockMax / kSmallBlockStep;

constexpr size_t block_bytes(size_t cls) { return (cls + 1) * kSmallBlockStep; }

// The uncut rest of a slab, described in its own first bytes.
struct Region {
  Region* next;
  size_t bytes;
};

struct Batch {
  FreeBlock* head = nullptr;
  uint16_t count = 0;
  void push(void* p) {
    auto* block = static_cast<FreeBlock*>(p);
    block->next = head;
    head = block;
    ++count;
  }
};

// Never destroyed: blocks may be freed after static destruction, and the sanitizer sees them as reachable.
struct CentralPool {
  std::mutex mutex;
  FreeBlock* lists[kClasses] = {};
  Region* regions = nullptr;

  void put(size_t cls, FreeBlock* first, FreeBlock* last) {
    last->next = lists[cls];
    lists[cls] = first;
  }
  Batch take(size_t cls, int want) {
    Batch batch;
    while (batch.count < want && lists[cls]) {
      FreeBlock* block = lists[cls];
      lists[cls] = block->next;
      batch.push(block);
    }
    if (!batch.head) cut(cls, want, batch);
    return batch;
  }
  void cut(size_t cls, int want, Batch& batch) {
    size_t size = block_bytes(cls);
    while (regions && batch.count < want) {
      char* start = reinterpret_cast<char*>(regions);
      Region rest = *regions;
      while (rest.bytes >= size && batch.count < want) {
        batch.push(start);
        start += size;
        rest.bytes -= size;
      }
      regions = rest.next;
      if (rest.bytes >= size) {
        regions = new (start) Region(rest);
      } else if (rest.bytes > 0) {  // a tail too short for this class is one block of a smaller class
        auto* tail = reinterpret_cast<FreeBlock*>(start);
        put(rest.bytes / kSmallBlockStep - 1, tail, tail);
      }
    }
  }
};
constinit CentralPool central;

[[maybe_unused]] const int fork_handlers =
    pthread_atfork([] { central.mutex.lock(); }, [] { central.mutex.unlock(); }, [] { central.mutex.unlock(); });

// It looks full and empty at once: both the first allocation and the first free of a thread go out of line.
constexpr SmallCache make_unarmed_cache() {
  SmallCache c{};
  for (auto& count : c.counts) count = kSmallCacheDepth;
  return c;
}
constinit SmallCache unarmed_cache = make_unarmed_cache();

enum class ThreadState : uint8_t { unarmed, armed, gone };
constinit thread_local ThreadState thread_state = ThreadState::unarmed;

void spill_list(SmallCache& cache, size_t cls) noexcept {
  FreeBlock* first = cache.lists[cls];
  if (!first) return;
  FreeBlock* last = first;
  while (last->next) last = last->next;
  cache.lists[cls] = nullptr;
  std::lock_guard lock(central.mutex);
  central.put(cls, first, last);
}

// Hands everything back when the thread ends. Frees that come later find an unarmed cache and the state `gone`.
struct ThreadExit {
  void arm() {
    SmallCache* own = new (std::nothrow) SmallCache{};
    if (!own) return;  // the next call tries again
    small_cache = own;
    thread_state = ThreadState::armed;
  }
  ~ThreadExit() {
    if (thread_state == ThreadState::armed) {
      for (size_t cls = 0; cls < kClasses; ++cls) spill_list(*small_cache, cls);
      delete small_cache;
    }
    small_cache = &unarmed_cache;
    thread_state = ThreadState::gone;
  }
};
thread_local ThreadExit thread_exit;

// False when the thread is past its end and must not cache any more.
bool may_cache() noexcept {
  if (thread_state == ThreadState::unarmed) [[unlikely]]
    thread_exit.arm();
  return thread_state == ThreadState::armed;
}

}  // namespace

constinit thread_local SmallCache* small_cache = &unarmed_cache;

void* small_refill(size_t cls) {
  bool caching = may_cache();
  int want = caching ? kBatch : 1;
  Batch batch;
  {
    std::unique_lock lock(central.mutex);
    batch = central.take(cls, want);
    if (!batch.head) {
      lock.unlock();  // the system call may be slow, and may fail
      void* slab = system_allocate(kSlabBytes, block_bytes(cls));
      lock.lock();
      central.regions = new (slab) Region{central.regions, kSlabBytes};
      batch = central.take(cls, want);
    }
  }
  FreeBlock* block = batch.head;
  if (caching) {
    small_cache->lists[cls] = block->next;
    small_cache->counts[cls] = static_cast<uint16_t>(batch.count - 1);
  }
  return block;
}

void small_spill(FreeBlock* block, size_t cls) noexcept {
  FreeBlock *first = block, *last = block;
  if (may_cache()) {
    SmallCache& cache = *small_cache;
    block->next = cache.lists[cls];
    cache.lists[cls] = block;
    if (++cache.counts[cls] <= kSmallCacheDepth) return;  // the first free of this thread
    for (int kept = 1; kept < kSmallCacheDepth / 2; ++kept) block = block->next;
    first = last = block->next;  // the colder half
    block->next = nullptr;
    while (last->next) last = last->next;
    cache.counts[cls] = kSmallCacheDepth / 2;
  }
  std::lock_guard lock(central.mutex);
  central.put(cls, first, last);
}

void flush_small_cache() noexcept {
  if (thread_state != ThreadState::armed) return;
  for (size_t cls = 0; cls < kClasses; ++cls) {
    spill_list(*small_cache, cls);
    small_cache->counts[cls] = 0;
  }
}

}  // namespace deft::detail
