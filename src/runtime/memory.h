// Where tensor bytes live and who they belong to. Counters are always on and exact.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace deft {

enum class MemoryCategory : uint8_t { parameter, gradient, optimizer, saved, workspace, data, other };
inline constexpr int kMemoryCategoryCount = 7;
const char* name_of(MemoryCategory category);

// Large blocks: 64-byte aligned, size classes at most 1/8 apart, cached after free up to a cap.
// Throws OutOfMemoryError after freeing its cache and trying once more. Thread safe.
void* allocate_buffer(size_t bytes);
void free_buffer(void* p, size_t bytes) noexcept;
void set_buffer_cache_limit(size_t bytes);  // default 1 GiB or DEFT_CACHE_MB
size_t buffer_cache_limit();
// Gives cached large blocks back to the system and this thread's small blocks to the shared pool; returns the bytes
// given back to the system.
size_t trim_memory();

// Every tensor storage reports its exact byte count here. O(1).
void memory_acquired(size_t bytes, MemoryCategory category) noexcept;
void memory_released(size_t bytes, MemoryCategory category) noexcept;
void memory_moved(size_t bytes, MemoryCategory from, MemoryCategory to) noexcept;

struct MemoryUse {
  int64_t total = 0;
  std::array<int64_t, kMemoryCategoryCount> by_category{};
  int64_t operator[](MemoryCategory c) const { return by_category[static_cast<int>(c)]; }
};
MemoryUse memory_live();
// The part of it on devices other than the CPU. Reported besides memory_acquired() and the others.
MemoryUse device_memory_live();
void device_memory_changed(int64_t bytes, MemoryCategory category) noexcept;
// Storages created since the process started, and calls made to the system allocator by Deft.
int64_t storage_allocations();
int64_t system_allocations();
int64_t buffer_cache_bytes();

// Peak use while the scope is alive, exact to the byte. Scopes nest and may overlap across threads:
// each sees the process-wide high-water mark of its own lifetime.
class MemoryScope {
 public:
  MemoryScope();
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  int64_t start_bytes() const;               // live when the scope began
  int64_t peak_bytes() const;                // high-water mark of the total
  int64_t peak_bytes(MemoryCategory) const;  // high-water mark of one category
  int64_t peak_growth() const { return peak_bytes() - start_bytes(); }
  struct State;

 private:
  State* state_;
};

// Failure injection for tests: the n-th allocation from now (0 = the next one) by this process throws
// OutOfMemoryError, once. Negative turns it off. Counts storages, nodes and buffers alike.
void fail_allocation_after(int64_t n);

namespace detail {
// < 0: nobody cares about allocations, so that each tests this one number. fail_allocation_after() and a memory watch
// (runtime/memory_watch.h) set it to 0 or more.
extern std::atomic<int64_t> allocation_fuse;
inline bool allocations_matter() { return allocation_fuse.load(std::memory_order_relaxed) >= 0; }
void burn_fuse();                   // out of line: counts down and throws at zero
void set_allocations_matter(bool);  // without a fuse too
inline void check_fuse() {
  if (allocations_matter()) [[unlikely]]
    burn_fuse();
}
void* allocate_buffer_unchecked(size_t bytes);  // allocate_buffer() without the fuse
void give_back_first(void (*release)());        // called before the system is asked a second time
}  // namespace detail

}  // namespace deft
