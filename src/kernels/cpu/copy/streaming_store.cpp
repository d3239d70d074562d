#include "kernels/cpu/copy/streaming_store.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/env_number.h"
#include "runtime/cpu_isa.h"
#include "runtime/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deft::cpu {

namespace {

int64_t four_second_caches() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  const int64_t second = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  const int64_t second = 0;
#endif
  return 4 * std::max<int64_t>(second, 1 << 20);
}

std::atomic<int64_t>& limit() {
  static std::atomic<int64_t> bytes = static_cast<int64_t>(
      number_from_env("DEFT_STREAM_BYTES", static_cast<uint64_t>(four_second_caches()), INT64_MAX));
  return bytes;
}

}  // namespace

int64_t stream_bytes_per_thread() { return limit().load(std::memory_order_relaxed); }
void set_stream_bytes_per_thread(int64_t bytes) { limit().store(bytes, std::memory_order_relaxed); }

bool detail::is_beyond_caches(int64_t bytes) {
  const int64_t each = stream_bytes_per_thread();
  return each > 0 && bytes / num_threads() >= each;
}

#if defined(__x86_64__)

namespace {

[[gnu::target("avx512f")]] void copy_lines_512(char* to, const char* from, size_t lines) {
  for (; lines > 0; --lines, to += 64, from += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}
void copy_lines_128(char* to, const char* from, size_t lines) {
  for (size_t parts = 4 * lines; parts > 0; --parts, to += 16, from += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

}  // namespace

void stream_copy(void* to, const void* from, size_t bytes) {
  static const bool wide = cpu_has("avx512f");
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
  const size_t first = std::min(bytes, -reinterpret_cast<uintptr_t>(t) % 64), lines = (bytes - first) / 64;
  std::memcpy(t, f, first);
  wide ? copy_lines_512(t + first, f + first, lines) : copy_lines_128(t + first, f + first, lines);
  const size_t done = first + 64 * lines;
  std::memcpy(t + done, f + done, bytes - done);
}
void end_stream() { _mm_sfence(); }

#else

void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void end_stream() {}

#endif

}  // namespace deft::cpu
