// Every call Deft makes to the system allocator goes through here and is counted.
#pragma once

#include <cstddef>

namespace deft::detail {

// 64-byte aligned. When the system refuses, empties the buffer cache and tries once more, then throws
// OutOfMemoryError. `requested` is what the caller asked for and goes into the message.
void* system_allocate(size_t bytes, size_t requested);
void system_free(void* p) noexcept;
// For tests: requests above this are refused as by a system without memory, so that none of them takes any. 0: no
// limit.
void refuse_requests_above(size_t bytes) noexcept;

// Moves the calling thread's small blocks to the shared pool.
void flush_small_cache() noexcept;

}  // namespace deft::detail
