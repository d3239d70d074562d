#include "kernels/cuda/device/kernel_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "runtime/cache_file.h"
#include "runtime/config.h"

namespace deft::cuda {

namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "kernel";
constexpr int kFormat = 1;
constexpr size_t kMostBytes = 16 << 20;  // of one file

std::string key_of(const std::string& source, std::span<const SourceFile> headers, int capability) {
  uint64_t h = 0;
  for (const SourceFile& f : headers) h = h * 31 + checksum(f.name) * 7 + checksum(f.text);
  return fmt::format("deft {}, nvrtc {}, capability {}, headers {:016x}\n{}", kVersion, nvrtc_version(), capability, h,
                     source);
}

void touch(const std::string& path) {
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

void remove_oldest(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->path().extension() == ".kernel") files.emplace_back(it->last_write_time(gone), it->path());
  }
  if (files.size() <= kMostKernelFiles) return;
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i < files.size() - kMostKernelFiles; ++i) fs::remove(files[i].second, error);
}

}  // namespace

std::string kernel_folder() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/kernels";
}

CompiledSource kernel_image(const std::string& source, std::span<const SourceFile> headers, int capability,
                            const std::string& folder) {
  if (folder.empty()) return nvrtc_compile(source, headers, capability);
  // The whole key is in the file: a name that two sources share does no harm.
  const std::string key = key_of(source, headers, capability) + '\0';
  const std::string path = fmt::format("{}/{:016x}.kernel", folder, checksum(key));
  CacheFile file = read_cache_file(path, kKind, kFormat, kMostBytes);
  if (file.state == CacheFileState::good && file.body.starts_with(key)) {
    touch(path);
    return {file.body.substr(key.size()), ""};
  }
  CompiledSource made = nvrtc_compile(source, headers, capability);
  if (!made.image.empty() && write_cache_file(path, kKind, kFormat, key + made.image)) remove_oldest(folder);
  return made;
}

}  // namespace deft::cuda
