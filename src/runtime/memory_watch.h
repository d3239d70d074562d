// Who makes, moves and frees the bytes of tensors: what memory timelines are made of. Costs nothing while nobody looks
// on.
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

// Told after the counters changed, on the threads that change them, one call at a time. Blocks that were made before it
// was set are not known to it: of those it may be told that they are gone.
class MemoryWatch {
 public:
  virtual ~MemoryWatch() = default;
  virtual void made(const MemoryBlock&) noexcept = 0;
  virtual void named(const void* owner, const char* maker, const Site&) noexcept = 0;  // who made it, told after made()
  virtual void moved(const void* owner, MemoryCategory to) noexcept = 0;
  virtual void gone(const void* owner) noexcept = 0;
};

// nullptr removes it: nothing is told any more once that returns.
void set_memory_watch(MemoryWatch* watch);

namespace detail {
// Out of line. Callers ask allocations_matter() first, or remember what tell_made() answered: whether somebody looks
// on.
bool tell_made(const MemoryBlock& block) noexcept;
void tell_named(const void* owner, const char* maker, const Site& site) noexcept;
void tell_moved(const void* owner, MemoryCategory to) noexcept;
void tell_gone(const void* owner) noexcept;
}  // namespace detail

}  // namespace deft
