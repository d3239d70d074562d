// Scratch memory of kernels. Each thread keeps the blocks it gave back last, at most kScratchSlots of them and
// kScratchBytes together: threads that all begin at once do not queue for the shared cache of allocate_buffer(), and
// each finds its block in the cache of its own core.
#pragma once

#include <cstddef>

namespace deft {

inline constexpr int kScratchSlots = 4;
inline constexpr size_t kScratchBytes = size_t{4} << 20;

struct ScratchBlock {
  void* data = nullptr;  // 64-byte aligned
  size_t bytes = 0;      // at least what was asked for
};
ScratchBlock take_scratch(size_t bytes);  // throws OutOfMemoryError as allocate_buffer() does
void give_scratch(ScratchBlock block) noexcept;

namespace detail {
void flush_scratch() noexcept;  // what this thread keeps goes to the shared cache
}

}  // namespace deft
