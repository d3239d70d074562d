#include "runtime/scratch.h"

#include <new>
#include <utility>

#include "runtime/memory.h"

namespace deft {

namespace {

#if defined(DEFT_ASAN)
constexpr size_t kMostBytes = 0;  // let the sanitizer see every block and its exact size
#else
constexpr size_t kMostBytes = kScratchBytes;
#endif

void drop(ScratchBlock block) noexcept { free_buffer(block.data, block.bytes); }

struct Slots {
  ScratchBlock blocks[kScratchSlots];  // the one given back last in front
  size_t bytes = 0;

  ScratchBlock take(size_t wanted) {
    for (int i = 0; i < kScratchSlots; ++i) {
      const ScratchBlock found = blocks[i];
      if (found.bytes < wanted || found.bytes / 4 > wanted) continue;  // a much larger one is kept for larger requests
      for (int j = i; j + 1 < kScratchSlots; ++j) blocks[j] = blocks[j + 1];
      blocks[kScratchSlots - 1] = {};
      bytes -= found.bytes;
      return found;
    }
    return {};
  }
  void put(ScratchBlock block) noexcept {
    bytes += block.bytes;
    for (ScratchBlock& b : blocks) std::swap(b, block);
    bytes -= block.bytes;
    drop(block);  // the oldest
    for (int i = kScratchSlots - 1; bytes > kMostBytes; --i) {
      bytes -= blocks[i].bytes;
      drop(std::exchange(blocks[i], {}));
    }
  }
  void clear() noexcept {
    for (ScratchBlock& b : blocks) drop(std::exchange(b, {}));
    bytes = 0;
  }
};
// On the heap: thread-local room is scarce in a library that is loaded late.
constinit thread_local Slots* slots = nullptr;
constinit thread_local bool gone = false;  // the thread ends; calls may still come

struct ThreadExit {
  Slots* arm() { return slots = new (std::nothrow) Slots; }
  ~ThreadExit() {
    if (slots) slots->clear();
    delete std::exchange(slots, nullptr);
    gone = true;
  }
};
thread_local ThreadExit thread_exit;

}  // namespace

ScratchBlock take_scratch(size_t bytes) {
  if (bytes == 0) return {};
  detail::check_fuse();
  const ScratchBlock kept = slots ? slots->take(bytes) : ScratchBlock{};
  return kept.data ? kept : ScratchBlock{detail::allocate_buffer_unchecked(bytes), bytes};
}

void give_scratch(ScratchBlock block) noexcept {
  if (!block.data) return;
  if (block.bytes > kMostBytes || gone || (!slots && !thread_exit.arm())) return drop(block);
  slots->put(block);
}

namespace detail {
void flush_scratch() noexcept {
  if (slots) slots->clear();
}
}  // namespace detail

}  // namespace deft
