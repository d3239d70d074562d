// Writing past the caches.
//
// A plain store to a line that is in no cache reads the line from memory first. A result larger than the caches is
// evicted before it is read, so x86 writes it without that read. (Arm's cores detect that whole lines are written.)
// Measured on a Sapphire Rapids core, three passes over tensors that each read what the one before wrote:
// results of 4 MB, twice its L2, take as long either way; 8 MB 0.86 of the time, 16 MB 0.71, 64 MB 0.63. Without a
// prefetch of what is read, half of that gain is lost.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deft::cpu {

#if defined(__x86_64__)
inline constexpr bool kHasStreams = true;
#else
inline constexpr bool kHasStreams = false;
#endif

// Bytes per block that is computed in L1 and then written. While larger blocks are written, nothing is computed: on
// 64 MB, gelu takes 7.6 ms with 384, 8.1 with 768 and 8.6 with 1536, which are whole steps of three vectors, and 8.4
// with 512, which is not; an addition 8.4, 9.2, 9.7 and 8.7, a copy 5.4.
inline constexpr int64_t kStreamBlock = 384;
inline constexpr int64_t kStreamAhead = 4096;  // bytes between what is read and what is prefetched

namespace detail {
bool is_beyond_caches(int64_t bytes);
}

// Whether a result of `bytes` bytes, computed by all threads together, is written past the caches.
inline bool streams(int64_t bytes) {
  return kHasStreams && bytes >= 512 * kStreamBlock && detail::is_beyond_caches(bytes);
}

// Four times the L2 of each thread, or DEFT_STREAM_BYTES; 0: never.
int64_t stream_bytes_per_thread();
void set_stream_bytes_per_thread(int64_t bytes);

// Copies data that is in L1 past the caches. Other threads may read it after an end_stream() of this one.
void stream_copy(void* to, const void* from, size_t bytes);
void end_stream();

inline void prefetch_range(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

}  // namespace deft::cpu
