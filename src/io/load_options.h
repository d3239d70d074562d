// What the loaders accept. All limits of all formats are here; docs/guide/files.md explains them.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/limits.h"

namespace deft::io {

inline constexpr uint64_t kDeepest = 1000;  // what the stack of any thread can take
inline constexpr uint64_t kFreelyUnpacked = uint64_t{256} << 20;

struct LoadLimits {
  // All formats
  uint64_t tensors = 100'000;  // each takes 700 bytes, also an empty one
  uint64_t rank = kMaxDims;    // larger values have no effect
  uint64_t dim = uint64_t{1} << 48;
  uint64_t name_bytes = 1024;
  uint64_t depth = 64;  // of nested JSON and pickle values; at most kDeepest has an effect
  // safetensors
  uint64_t header_bytes = 100'000'000;
  uint64_t metadata_entries = 100'000;
  // npy
  uint64_t npy_header_bytes = 10'000;
  // zip: npz and PyTorch files
  uint64_t zip_entries = 500'000;
  uint64_t zip_ratio = 1032;                         // unpacked to packed bytes of a member: DEFLATE reaches no more
  uint64_t zip_unpacked_bytes = uint64_t{16} << 30;  // all deflated members together
  uint64_t zip_unpacked_per_byte = 64;  // beyond kFreelyUnpacked bytes: all of them, to the bytes of the archive
  // pickle
  uint64_t pickle_bytes = 1 << 30;
  uint64_t pickle_values = 10'000'000;  // also held to what a tenth of the file and 48 MiB can hold
  uint64_t pickle_stack = 1'000'000;
  uint64_t pickle_memo = 1'000'000;
  uint64_t pickle_string_bytes = 1 << 20;
  // plans
  uint64_t plan_entries = 50'000;                  // buffers, values and instructions of a graph, each
  uint64_t plan_bytes = uint64_t{64} * (1 << 30);  // of the arena, the inputs and the results of a graph
};

struct LoadOptions {
  // Maps the file instead of reading it. Faster to open, but a file that is truncated meanwhile ends the program.
  bool mmap = false;
  // Of the whole file, as 64 hex digits; checked before anything is read from it. Empty: not checked.
  std::string sha256 = {};
  LoadLimits limits = {};
};

}  // namespace deft::io
