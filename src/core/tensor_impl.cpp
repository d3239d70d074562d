#include "core/tensor_impl.h"

#include <memory>
#include <new>

#include "base/check.h"
#include "core/graph_stats.h"
#include "core/leaf_state.h"
#include "core/node.h"
#include "runtime/context.h"
#include "runtime/small_pool.h"

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
  s.place = place;
  s.device = meta.device;
  s.block = block;
  s.block_bytes = static_cast<uint32_t>(block_bytes);
  s.data = data;
  s.nbytes = nbytes;
  TensorImpl& t = *new (&pair->impl) TensorImpl(meta);
  t.flags = context().bits & kInference ? kOwnsBlock | kInferenceTensor : kOwnsBlock;
  t.data = data;
  t.storage = &s;
  memory_acquired(nbytes, MemoryCategory::other);
  return &t;
}

}  // namespace

ImplPtr make_tensor(const Meta& meta) {
  DEFT_ASSERT(meta.device.is_cpu());
  size_t nbytes = static_cast<size_t>(meta.numel) * size_of(meta.dtype);
  size_t together = kHeaderBytes + nbytes;
  if (together <= kSmallBlockMax) [[likely]] {
    char* block = static_cast<char*>(allocate_small(together));
    return ImplPtr::adopt(place_header(block, together, StoragePlace::with_header, block + kHeaderBytes, nbytes, meta));
  }
  void* block = allocate_small(kHeaderBytes);
  void* data;
  try {
    data = allocate_buffer(nbytes);
  } catch (...) {
    free_small(block, kHeaderBytes);
    throw;
  }
  return ImplPtr::adopt(place_header(block, kHeaderBytes, StoragePlace::buffer, data, nbytes, meta));
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

void Storage::destroy() noexcept {
  memory_released(nbytes, category.load(std::memory_order_relaxed));
  if (place == StoragePlace::buffer) {
    free_buffer(data, nbytes);
  } else if (place == StoragePlace::external && on_free) {
    (*on_free)();
    delete on_free;
  }
  free_small(block, block_bytes);
}

void Storage::set_category(MemoryCategory to) noexcept {
  MemoryCategory from = category.exchange(to, std::memory_order_relaxed);
  if (from != to) memory_moved(nbytes, from, to);
}

bool Storage::add_saved() noexcept {
  if (category.load(std::memory_order_relaxed) == MemoryCategory::parameter) return false;
  if (saved_refs.fetch_add(1, std::memory_order_relaxed) == 0) {
    auto expected = MemoryCategory::other;
    if (category.compare_exchange_strong(expected, MemoryCategory::saved, std::memory_order_relaxed))
      memory_moved(nbytes, MemoryCategory::other, MemoryCategory::saved);
    count_saved_bytes(static_cast<int64_t>(nbytes));
  }
  return true;
}

void Storage::drop_saved() noexcept {
  if (saved_refs.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  auto expected = MemoryCategory::saved;
  if (category.compare_exchange_strong(expected, MemoryCategory::other, std::memory_order_relaxed))
    memory_moved(nbytes, MemoryCategory::saved, MemoryCategory::other);
  count_saved_bytes(-static_cast<int64_t>(nbytes));
}

}  // namespace deft
