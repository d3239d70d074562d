// Events for memory timelines: who makes, moves and frees the bytes of tensors. Costs nothing without an observer.
#pragma once

#include "base/site.h"
#include "runtime/device.h"
#include "runtime/memory.h"

namespace deft {

// Bytes that memory_acquired() counted, by the address of what owns them.
struct MemoryBlock {
  const void* owner;
  int64_t bytes;
  MemoryCategory category;
  Device device;
};

// Called after the counters changed, on the threads that change them, one call at a time. gone() may name blocks that
// were made before it was set.
class MemoryWatch {
 public:
  virtual ~MemoryWatch() = default;
  virtual void made(const MemoryBlock&) noexcept = 0;
  virtual void named(const void* owner, const char* maker, const Site&) noexcept = 0;  // who made it, after made()
  virtual void moved(const void* owner, MemoryCategory to) noexcept = 0;
  virtual void gone(const void* owner) noexcept = 0;
};

// nullptr removes it: it is not called any more once that returns.
void set_memory_watch(MemoryWatch* watch);

namespace detail {
// Out of line. Callers ask allocations_matter() first, or keep what notify_made() returned: whether a watch is set.
bool notify_made(const MemoryBlock& block) noexcept;
void notify_named(const void* owner, const char* maker, const Site& site) noexcept;
void notify_moved(const void* owner, MemoryCategory to) noexcept;
void notify_gone(const void* owner) noexcept;
}  // namespace detail

}  // namespace deft
