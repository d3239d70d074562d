#include "kernels/cuda/device/allocator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/env_number.h"
#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/encoder.h"
#include "runtime/memory.h"
#include "runtime/profile_hook.h"

namespace deft::cuda {

struct Segment {
  void* base = nullptr;
  size_t bytes = 0;
  int size_class = 0;
  int blocks = 0, free_blocks = 0;
};

namespace {

constexpr size_t kSlabBytes = size_t{2} << 20;  // blocks up to half of this are carved out of slabs
constexpr size_t kGuardBytes = 256;
constexpr unsigned char kGuardByte = 0xa5;
constexpr int kLargerClasses = 2;  // a miss may take a block up to a quarter larger

size_t megabytes_from_env(const char* name, size_t otherwise) {
  return number_from_env(name, otherwise >> 20, kMaxBlock >> 20) << 20;
}

}  // namespace

Allocator::Allocator(int device) : device_(device), limit_(megabytes_from_env("DEFT_CUDA_MEMORY_MB", 0)) {}

Block* Allocator::take(int size_class, uint8_t stream) {
  Block*& head = lists_[stream][size_class];
  Block* block = head;
  if (block) head = block->next;
  return block;
}

Block* Allocator::take_larger(int size_class, uint8_t stream) {
  if (size_class_bytes(size_class) <= kSlabBytes / 2) return nullptr;
  for (int c = size_class + 1; c <= size_class + kLargerClasses && c < kSizeClasses; ++c)
    if (Block* block = take(c, stream)) return block;
  return nullptr;
}

Block* Allocator::take_kept(int size_class, uint8_t stream) {
  if (!keeping_ || stream != keeping_for_) return nullptr;
  for (size_t i = kept_.size(); i-- > 0;) {
    Block* block = kept_[i];
    if (block->size_class < size_class || block->size_class > size_class + kLargerClasses) continue;
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    return block;
  }
  return nullptr;
}

void Allocator::begin_keeping(uint8_t stream) {
  std::lock_guard lock(mutex_);
  keeping_ = true;
  keeping_for_ = stream;
}
std::vector<Block*> Allocator::end_keeping() {
  std::lock_guard lock(mutex_);
  keeping_ = false;
  return std::exchange(kept_, {});
}

bool Allocator::reserve(Segment& segment, size_t bytes) {
  if (limit_ && static_cast<size_t>(use_.reserved_bytes) + bytes > limit_) return false;
  ++use_.driver_calls;
  Zone zone("allocate from system", Bucket::allocation, Site());
  if (cudaMalloc(&segment.base, bytes) != cudaSuccess) {
    cudaGetLastError();  // the failure is handled; later calls must not see it
    return false;
  }
  segment.bytes = bytes;
  use_.reserved_bytes += static_cast<int64_t>(bytes);
  return true;
}

// New memory from the driver, cut into blocks of the class; one is returned, the others are cached.
Block* Allocator::carve(int size_class, uint8_t stream, size_t requested) {
  size_t bytes = size_class_bytes(size_class);
  size_t slab = bytes <= kSlabBytes / 2 ? kSlabBytes : bytes;
  auto segment = std::make_unique<Segment>();
  use_gpu(device_);
  if (!reserve(*segment, slab)) {
    poll_pending(true);
    if (Block* block = take(size_class, stream)) return block;
    release_cached();
    if (!reserve(*segment, slab)) fail(requested);
  }
  segment->size_class = size_class;
  segment->blocks = segment->free_blocks = static_cast<int>(slab / bytes);
  Segment* owned = segment.release();
  segments_.push_back(owned);
  for (int i = owned->blocks - 1; i >= 0; --i) {
    auto* block = new Block;
    block->data = static_cast<char*>(owned->base) + static_cast<size_t>(i) * bytes;
    block->bytes = bytes;
    block->device = {DeviceType::cuda, static_cast<int8_t>(device_)};
    block->size_class = size_class;
    block->segment = owned;
    block->owner = stream;
    block->next = lists_[stream][size_class];
    lists_[stream][size_class] = block;
    use_.cached_bytes += static_cast<int64_t>(bytes);
  }
  return take(size_class, stream);
}

Block* Allocator::allocate(size_t bytes, uint8_t stream) {
  size_t wanted = guards_ ? bytes + kGuardBytes : bytes;
  if (wanted > kMaxBlock) fail(bytes);
  int size_class = size_class_of(wanted).index;
  std::lock_guard lock(mutex_);
  if (!pending_.empty()) [[unlikely]]
    poll_pending(false);
  Block* block = take_kept(size_class, stream);
  if (!block) {
    block = take(size_class, stream);
    if (!block) block = take_larger(size_class, stream);
    if (!block) block = carve(size_class, stream, bytes);
    --block->segment->free_blocks;
    use_.cached_bytes -= static_cast<int64_t>(block->bytes);
    use_.live_bytes += static_cast<int64_t>(block->bytes);
    use_.peak_bytes = std::max(use_.peak_bytes, use_.live_bytes);
  }
  block->requested = bytes;
  block->owner = stream;
  block->writer.store(stream, std::memory_order_relaxed);
  block->ordered.store(0, std::memory_order_relaxed);
  block->readers.store(0, std::memory_order_relaxed);
  block->used_on.store(0, std::memory_order_relaxed);
  if (guards_) [[unlikely]]
    place_guard(block);
  return block;
}

void Allocator::put(Block* block) {
  block->next = lists_[block->owner][block->size_class];
  lists_[block->owner][block->size_class] = block;
  ++block->segment->free_blocks;
  use_.cached_bytes += static_cast<int64_t>(block->bytes);
}

void Allocator::free(Block* block) noexcept {
  std::lock_guard lock(mutex_);
  if (block->in_flight.load(std::memory_order_relaxed)) {
    block->copies.clear();
    block->written = {};
    block->in_flight.store(false, std::memory_order_relaxed);
  }
  if (block->guarded) [[unlikely]]
    check_guard(block);
  uint64_t others = block->used_on.load(std::memory_order_relaxed);
  if (keeping_ && block->owner == keeping_for_ && !others) [[unlikely]]
    return kept_.push_back(block);
  use_.live_bytes -= static_cast<int64_t>(block->bytes);
  if (others) [[unlikely]]
    free_later(block, others);
  else
    put(block);
}

cudaEvent_t Allocator::take_event() {
  if (!events_.empty()) {
    cudaEvent_t e = events_.back();
    events_.pop_back();
    return e;
  }
  cudaEvent_t e = nullptr;
  cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  return e;
}

void Allocator::free_later(Block* block, uint64_t streams) {
  cudaSetDevice(device_);  // an error here is one that has been reported: freeing must not throw
  Pending p{block, {}};
  for (; streams; streams &= streams - 1) {
    cudaEvent_t e = take_event();
    if (!e) {
      cudaDeviceSynchronize();
      break;
    }
    cudaEventRecord(e, gpu(device_).stream(static_cast<uint8_t>(std::countr_zero(streams))));
    p.events.push_back(e);
  }
  pending_.push_back(std::move(p));
}

void Allocator::poll_pending(bool wait) {
  std::erase_if(pending_, [&](Pending& p) {
    while (!p.events.empty()) {
      cudaEvent_t e = p.events.back();
      if (wait) cudaEventSynchronize(e);
      if (cudaEventQuery(e) == cudaErrorNotReady) {
        cudaGetLastError();  // or the next launch check takes it for its own
        return false;
      }
      events_.push_back(e);
      p.events.pop_back();
    }
    put(p.block);
    return true;
  });
}

// Gives segments back whose blocks are all free.
size_t Allocator::release_cached() {
  size_t released = 0;
  cudaDeviceSynchronize();  // freed blocks may still be read by work of their own stream
  for (auto& of_stream : lists_)
    for (Block*& head : of_stream) {
      Block** link = &head;
      while (Block* block = *link) {
        if (block->segment->free_blocks < block->segment->blocks) {
          link = &block->next;
          continue;
        }
        *link = block->next;
        use_.cached_bytes -= static_cast<int64_t>(block->bytes);
        delete block;
      }
    }
  std::erase_if(segments_, [&](Segment* s) {
    if (s->free_blocks < s->blocks) return false;
    cudaFree(s->base);
    released += s->bytes;
    use_.reserved_bytes -= static_cast<int64_t>(s->bytes);
    delete s;
    return true;
  });
  return released;
}

size_t Allocator::trim() {
  std::lock_guard lock(mutex_);
  use_gpu(device_);
  poll_pending(true);
  return release_cached();
}
void Allocator::set_limit(size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}
DeviceMemoryUse Allocator::use() {
  std::lock_guard lock(mutex_);
  return use_;
}
void Allocator::reset_peak() {
  std::lock_guard lock(mutex_);
  use_.peak_bytes = use_.live_bytes;
}

void Allocator::fail(size_t bytes) {
  MemoryUse live = device_memory_live();
  std::string parts;
  for (int i = 0; i < kMemoryCategoryCount; ++i)
    parts += fmt::format("{}{} {}", i ? ", " : "", name_of(static_cast<MemoryCategory>(i)), live.by_category[i]);
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  DEFT_FAIL(
      OutOfMemoryError,
      "allocate: cuda:{} has no {} bytes to give: {} of {} bytes are free on the device, {} reserved{} and {} live "
      "in tensors ({}); use a smaller batch, a narrower dtype or activation checkpointing",
      device_, bytes, free_bytes, total, use_.reserved_bytes, limit_ ? fmt::format(" of a cap of {}", limit_) : "",
      live.total, parts);
}

// --- Guard words -----------------------------------------------------------------------------------------------

void Allocator::set_guard_words(bool on) {
  std::lock_guard lock(mutex_);
  guards_ = on;
}

void Allocator::place_guard(Block* block) {
  block->guarded = true;
  guarded_.push_back(block);
  cudaMemsetAsync(static_cast<char*>(block->data) + block->requested, kGuardByte, kGuardBytes,
                  gpu(device_).stream(block->owner));
}

void Allocator::check_guard(Block* block) {
  block->guarded = false;
  std::erase(guarded_, block);
  unsigned char found[kGuardBytes];
  cudaDeviceSynchronize();
  cudaMemcpy(found, static_cast<char*>(block->data) + block->requested, kGuardBytes, cudaMemcpyDeviceToHost);
  broken_guards_ += std::any_of(found, found + kGuardBytes, [](unsigned char c) { return c != kGuardByte; });
}

int64_t Allocator::check_guard_words() {
  std::lock_guard lock(mutex_);
  std::vector<Block*> live = guarded_;
  for (Block* b : live) {
    check_guard(b);
    place_guard(b);
  }
  return broken_guards_;
}

// --- Pinned memory ---------------------------------------------------------------------------------------------

Block* PinnedAllocator::allocate(size_t bytes) {
  DEFT_CHECK(bytes <= kMaxBlock, OutOfMemoryError, "pin_memory: {} bytes are more than a system holds", bytes);
  SizeClass size = size_class_of(bytes);
  {
    std::lock_guard lock(mutex_);
    if (Block* block = lists_[size.index]) {
      lists_[size.index] = block->next;
      cached_ -= block->bytes;
      return block;
    }
  }
  void* data = nullptr;
  if (cudaHostAlloc(&data, size.bytes, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();
    trim();
    cudaError_t status = cudaHostAlloc(&data, size.bytes, cudaHostAllocPortable);
    if (status != cudaSuccess) cudaGetLastError();
    DEFT_CHECK(status == cudaSuccess, OutOfMemoryError,
               "pin_memory: the system has no {} bytes of pinned memory to give ({}); use pageable memory or smaller "
               "buffers",
               bytes, cudaGetErrorString(status));
  }
  auto* block = new Block;
  block->data = data;
  block->bytes = size.bytes;
  block->size_class = size.index;
  return block;
}

void PinnedAllocator::free(Block* block) noexcept {
  static const size_t cap = megabytes_from_env("DEFT_PINNED_CACHE_MB", size_t{256} << 20);
  block->copies.clear();
  block->written = {};
  block->in_flight.store(false, std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);
    if (cached_ + block->bytes <= cap || !lists_[block->size_class]) {  // at least one: pinning is slow
      block->next = lists_[block->size_class];
      lists_[block->size_class] = block;
      cached_ += block->bytes;
      return;
    }
  }
  cudaFreeHost(block->data);
  delete block;
}

size_t PinnedAllocator::trim() {
  std::lock_guard lock(mutex_);
  size_t released = cached_;
  for (Block*& head : lists_)
    while (Block* block = head) {
      head = block->next;
      cudaFreeHost(block->data);
      delete block;
    }
  cached_ = 0;
  return released;
}

}  // namespace deft::cuda
