// Files that keep work for the next process: results of tuning, compiled kernels. Any of them may be deleted, damaged
// or written by another version; none of that is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deft {

// $DEFT_CACHE_DIR, $XDG_CACHE_HOME/deft or ~/.cache/deft; empty where none of them is set, or where the first is set to
// nothing: then nothing is read or kept.
std::string cache_folder();

uint64_t checksum(std::string_view bytes);

// A first line with the kind of file, the version of its format and a checksum of the rest.
enum class CacheFileState : uint8_t { absent, good, damaged, foreign };
struct CacheFile {
  CacheFileState state;
  std::string body;  // of a good one
};
CacheFile read_cache_file(const std::string& path, std::string_view kind, int format, size_t most_bytes);
// Readers see the old file or the new one. Of several writers the last one wins. False where it cannot be written.
bool write_cache_file(const std::string& path, std::string_view kind, int format, std::string_view body);

}  // namespace deft
