// Every call Deft makes to the system allocator goes through here and is counted.
#pragma once

#include <cstddef>

namespace deft::detail {

// 64-byte aligned. When the system refuses, empties the buffer cache and tries once more, then throws
// OutOfMemoryError. `requested` is what the caller asked for and goes into the message.
void* system_allocate(size_t bytes, size_t requested);
void system_free(void* p) noexcept;

// Moves the calling thread's small blocks to the shared pool.
void flush_small_cache() noexcept;

}  // namespace deft::detail
