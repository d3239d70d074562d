// The bytes behind one or more tensors, with the version counter that all of them share.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "base/site.h"
#include "runtime/backend.h"
#include "runtime/device.h"
#include "runtime/memory_watch.h"

namespace deft {

enum class StoragePlace : uint8_t {
  with_header,    // in the same pooled block as the tensor header that created it
  buffer,         // header in a pooled block, bytes from allocate_buffer()
  external,       // bytes belong to the caller (from_blob)
  device,         // bytes on a device, or pinned bytes of the host: `memory`
  known_buffer,   // a buffer, or bytes on a device, that core/derived_cache.h knows
  shared_buffer,  // the same that another library may write
};

struct Storage {
  std::atomic<uint32_t> refs{1};
  std::atomic<uint32_t> version{0};
  std::atomic<int32_t> saved_refs{0};  // live graph nodes that keep these bytes for backward
  std::atomic<StoragePlace> place;     // only core/derived_cache.cpp changes it
  std::atomic<MemoryCategory> category{MemoryCategory::other};
  Device device;
  int32_t block_bytes;  // of the pooled block this header lies in; negative: runtime/memory_watch.h watches this one
  std::atomic<uint32_t> exposed{0};  // times that data<T>() gave out a pointer for writing
  void* block;                       // start of that block
  void* data;
  size_t nbytes;
  // Atomic since threads may write disjoint views of the same bytes.
  std::atomic<Site> last_write_site{};
  std::atomic<const char*> last_write_op{nullptr};
  std::function<void()>* on_free = nullptr;  // external only
  DeviceMemory* memory = nullptr;  // owned by this storage; StoragePlace::device only, external CUDA memory too

  void retain() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs.load(std::memory_order_acquire) == 1 || refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  void bump_version(const char* op, const Site& site) noexcept {
    version.fetch_add(1, std::memory_order_release);
    last_write_op.store(op, std::memory_order_relaxed);
    last_write_site.store(site, std::memory_order_relaxed);
  }
  uint32_t current_version() const noexcept { return version.load(std::memory_order_acquire); }
  // Another one wherever the bytes may have changed: by ops, and through pointers that data<T>() gave out.
  uint64_t stamp() const noexcept {
    return uint64_t{exposed.load(std::memory_order_acquire)} << 32 | current_version();
  }
  bool watched() const noexcept { return block_bytes < 0; }
  // Tells who made it, where that is no op.
  void name_maker(const char* maker, const Site& site) const noexcept {
    if (watched()) [[unlikely]]
      detail::notify_named(this, maker, site);
  }
  // Moves the live bytes to another category.
  void set_category(MemoryCategory to) noexcept;
  // Counting what the graph keeps alive; parameters are alive anyway and are not counted. Returns whether it counted.
  bool add_saved() noexcept;
  void drop_saved() noexcept;

 private:
  void destroy() noexcept;
};

}  // namespace deft
