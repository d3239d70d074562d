#include "bench/heap_counter.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "runtime/memory.h"

namespace {

constinit thread_local int64_t new_calls = 0;

void* counted(void* p) {
  ++new_calls;
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

// The nothrow forms of the standard library call these.
void* operator new(std::size_t bytes) { return counted(std::malloc(std::max<std::size_t>(bytes, 1))); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  auto a = static_cast<std::size_t>(align);
  return counted(std::aligned_alloc(a, std::max((bytes + a - 1) / a * a, a)));
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, std::align_val_t align) { return operator new(bytes, align); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace deft::bench {

int64_t heap_allocations() { return new_calls + system_allocations(); }

}  // namespace deft::bench
