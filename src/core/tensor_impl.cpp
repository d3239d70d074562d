#include "core/tensor_impl.h"

#include <memory>
#include <new>

#include "base/check.h"
#include "core/derived_cache.h"
#include "core/graph_stats.h"
#include "core/leaf_state.h"
#include "core/node.h"
#include "runtime/context.h"
#include "runtime/small_pool.h"
#include "runtime/stream.h"

namespace deft {

namespace {

constexpr size_t kAlign = 64;
constexpr size_t round_up(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

struct HeaderAndStorage {
  TensorImpl impl;
  Storage storage;
};
constexpr size_t kHeaderBytes = round_up(sizeof(HeaderAndStorage));

TensorImpl* place_header(void* block, size_t block_bytes, StoragePlace place, void* data, size_t nbytes,
                         const Meta& meta) {
  auto* pair = static_cast<HeaderAndStorage*>(block);
  Storage& s = *new (&pair->storage) Storage;
  s.place.store(place, std::memory_order_relaxed);
  s.device = meta.device;
  s.block = block;
  s.block_bytes = static_cast<int32_t>(block_bytes);
  s.data = data;
  s.nbytes = nbytes;
  TensorImpl& t = *new (&pair->impl) TensorImpl(meta);
  static_assert(uint32_t{kInference} == uint32_t{kInferenceTensor});
  t.flags = kOwnsBlock | static_cast<uint8_t>(detail::exec_context.bits & kInference);  // no thread begins in it
  t.data = data;
  t.storage = &s;
  memory_acquired(nbytes, MemoryCategory::other);
  return &t;
}

[[gnu::cold, gnu::noinline]] void watch(Storage& s) noexcept {
  const MemoryBlock block{&s, static_cast<int64_t>(s.nbytes), s.category.load(std::memory_order_relaxed), s.device};
  if (detail::notify_made(block)) s.block_bytes = -s.block_bytes;
}

// A header with its bytes elsewhere. Takes over `memory`.
ImplPtr place_device_header(DeviceMemory* memory, size_t nbytes, const Meta& meta) {
  void* block;
  try {
    block = allocate_small(kHeaderBytes);
  } catch (...) {
    backend(DeviceType::cuda)->free(memory);
    throw;
  }
  TensorImpl* t = place_header(block, kHeaderBytes, StoragePlace::device, memory->data, nbytes, meta);
  t->storage->memory = memory;
  if (!meta.device.is_cpu()) device_memory_changed(static_cast<int64_t>(nbytes), MemoryCategory::other);
  if (detail::allocations_matter()) [[unlikely]]
    watch(*t->storage);
  return ImplPtr::adopt(t);
}

[[gnu::noinline]] ImplPtr make_device_tensor(const Meta& meta) {
  detail::check_fuse();
  size_t nbytes = static_cast<size_t>(meta.numel) * size_of(meta.dtype);
  auto index = static_cast<size_t>(meta.device.index);
  DeviceMemory* memory = require_backend(meta.device, "empty").allocate(meta.device, nbytes, context().streams[index]);
  return place_device_header(memory, nbytes, meta);
}

}  // namespace

ImplPtr make_pinned(const Meta& meta) {
  detail::check_fuse();
  size_t nbytes = static_cast<size_t>(meta.numel) * size_of(meta.dtype);
  return place_device_header(require_backend(kCUDA, "pin_memory").allocate_pinned(nbytes), nbytes, meta);
}

namespace {

// On the CPU. The fuse was looked at.
[[gnu::always_inline]] inline TensorImpl* place_tensor(const Meta& meta) {
  size_t nbytes = static_cast<size_t>(meta.numel) * size_of(meta.dtype);
  size_t together = kHeaderBytes + nbytes;
  if (together <= kSmallBlockMax) [[likely]] {
    char* block = static_cast<char*>(detail::allocate_small_unchecked(together));
    return place_header(block, together, StoragePlace::with_header, block + kHeaderBytes, nbytes, meta);
  }
  void* block = detail::allocate_small_unchecked(kHeaderBytes);
  void* data;
  try {
    data = allocate_buffer(nbytes);
  } catch (...) {
    free_small(block, kHeaderBytes);
    throw;
  }
  return place_header(block, kHeaderBytes, StoragePlace::buffer, data, nbytes, meta);
}

[[gnu::cold, gnu::noinline]] ImplPtr make_watched(const Meta& meta) {
  detail::burn_fuse();
  TensorImpl* t = place_tensor(meta);
  watch(*t->storage);
  return ImplPtr::adopt(t);
}

}  // namespace

ImplPtr make_tensor(const Meta& meta) {
  if (!meta.device.is_cpu()) [[unlikely]]
    return make_device_tensor(meta);
  if (detail::allocations_matter()) [[unlikely]]
    return make_watched(meta);
  return ImplPtr::adopt(place_tensor(meta));
}

ImplPtr make_alias(const TensorImpl& source, const Meta& meta, int64_t offset) {
  auto* t = new (allocate_small(sizeof(TensorImpl))) TensorImpl(meta);
  t->block_bytes = sizeof(TensorImpl);
  t->flags = source.flags & kInferenceTensor;
  source.storage->retain();
  t->storage = source.storage;
  t->data = static_cast<char*>(source.data) + offset * static_cast<int64_t>(size_of(source.meta.dtype));
  return ImplPtr::adopt(t);
}

ImplPtr make_external(void* data, const Meta& meta, std::function<void()> on_free) {
  auto hook = on_free ? std::make_unique<std::function<void()>>(std::move(on_free)) : nullptr;
  void* block = allocate_small(kHeaderBytes);
  size_t nbytes = static_cast<size_t>(meta.span()) * size_of(meta.dtype);
  auto t = ImplPtr::adopt(place_header(block, kHeaderBytes, StoragePlace::external, data, nbytes, meta));
  t->storage->on_free = hook.release();
  if (!meta.device.is_cpu()) {
    device_memory_changed(static_cast<int64_t>(nbytes), MemoryCategory::other);
    t->storage->memory = new DeviceMemory;
    t->storage->memory->data = data;
    t->storage->memory->bytes = nbytes;
    t->storage->memory->device = meta.device;
    t->storage->memory->owner = context().streams[static_cast<size_t>(meta.device.index)];
    t->storage->memory->writer = t->storage->memory->owner;
  }
  if (detail::allocations_matter()) [[unlikely]]
    watch(*t->storage);
  return t;
}

void TensorImpl::destroy() noexcept {
  if (grad_fn) grad_fn->release();
  if (LeafState* state = leaf.load(std::memory_order_acquire)) delete_leaf_state(state);
  TensorImpl* viewed = base;
  Storage* bytes = storage;
  // A header that shares its storage's block is freed with it; its destructor has nothing left to do.
  static_assert(std::is_trivially_destructible_v<Meta>);
  if (!has(kOwnsBlock)) free_small(this, block_bytes);
  bytes->release();
  if (viewed) viewed->release();
}

namespace {

[[gnu::cold, gnu::noinline]] void move_slowly(const Storage& s, MemoryCategory from, MemoryCategory to) noexcept {
  memory_moved(s.nbytes, from, to);
  if (!s.device.is_cpu()) {
    device_memory_changed(-static_cast<int64_t>(s.nbytes), from);
    device_memory_changed(static_cast<int64_t>(s.nbytes), to);
  }
  if (s.watched()) detail::notify_moved(&s, to);
}

[[gnu::always_inline]] inline void move_bytes(const Storage& s, MemoryCategory from, MemoryCategory to) noexcept {
  if (s.device.is_cpu() && !s.watched()) [[likely]]
    return memory_moved(s.nbytes, from, to);
  move_slowly(s, from, to);
}

}  // namespace

namespace {

void give_back(void* hook) {
  auto* on_free = static_cast<std::function<void()>*>(hook);
  (*on_free)();
  delete on_free;
}

// External memory on a device goes back to its owner when our streams are done with it.
void release_external(Storage& s) noexcept try {
  if (s.memory) {
    uint8_t stream = s.memory->owner;
    order_write(*s.memory, stream);
    if (s.on_free) {
      Event done(s.device);
      done.record(Stream::numbered(s.device, stream));
      hold_until(done, s.on_free, give_back);
    }
    delete s.memory;
  } else if (s.on_free) {
    give_back(s.on_free);
  }
} catch (...) {  // the device has failed: its memory is lost with it
}

// Bytes that lie elsewhere than in the header's block, if there are any.
[[gnu::noinline]] void release_bytes(Storage& s) noexcept {
  StoragePlace place = s.place.load(std::memory_order_relaxed);
  if (place == StoragePlace::with_header) return;
  if (place == StoragePlace::known_buffer) forget_derived(s);
  if (place == StoragePlace::known_buffer || place == StoragePlace::shared_buffer)
    place = s.memory ? StoragePlace::device : StoragePlace::buffer;
  if (place == StoragePlace::buffer && s.on_free) place = StoragePlace::external;  // trust_versions()
  if (place == StoragePlace::buffer) return free_buffer(s.data, s.nbytes);
  if (!s.device.is_cpu())
    device_memory_changed(-static_cast<int64_t>(s.nbytes), s.category.load(std::memory_order_relaxed));
  if (place == StoragePlace::device)
    backend(DeviceType::cuda)->free(s.memory);
  else
    release_external(s);
}

// Returns the size of the block.
[[gnu::cold, gnu::noinline]] int32_t release_watched(Storage& s) noexcept {
  release_bytes(s);
  detail::notify_gone(&s);
  return -s.block_bytes;
}

}  // namespace

void Storage::destroy() noexcept {
  memory_released(nbytes, category.load(std::memory_order_relaxed));
  int32_t bytes = block_bytes;
  if (bytes <= static_cast<int32_t>(kHeaderBytes)) {  // a block without bytes, or a watched one: one test
    if (bytes < 0) [[unlikely]]
      bytes = release_watched(*this);
    else
      release_bytes(*this);
  }
  free_small(block, static_cast<uint32_t>(bytes));
}

void Storage::set_category(MemoryCategory to) noexcept {
  MemoryCategory from = category.exchange(to, std::memory_order_relaxed);
  if (from != to) move_bytes(*this, from, to);
}

bool Storage::add_saved() noexcept {
  if (category.load(std::memory_order_relaxed) == MemoryCategory::parameter) return false;
  if (saved_refs.fetch_add(1, std::memory_order_relaxed) == 0) {
    count_saved_bytes(static_cast<int64_t>(nbytes));  // first: observers of the move read it
    auto expected = MemoryCategory::other;
    if (category.compare_exchange_strong(expected, MemoryCategory::saved, std::memory_order_relaxed))
      move_bytes(*this, MemoryCategory::other, MemoryCategory::saved);
  }
  return true;
}

void Storage::drop_saved() noexcept {
  if (saved_refs.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  auto expected = MemoryCategory::saved;
  if (category.compare_exchange_strong(expected, MemoryCategory::other, std::memory_order_relaxed))
    move_bytes(*this, MemoryCategory::saved, MemoryCategory::other);
  count_saved_bytes(-static_cast<int64_t>(nbytes));
}

}  // namespace deft
