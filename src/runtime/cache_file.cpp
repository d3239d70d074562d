#include "runtime/cache_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace deft {

namespace {

std::string first_line(std::string_view kind, int format, std::string_view body) {
  return fmt::format("deft {} {} {:016x}", kind, format, checksum(body));
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

std::string cache_folder() {
  const auto folder = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  if (const char* own = std::getenv("DEFT_CACHE_DIR")) return own;
  if (std::string caches = folder("XDG_CACHE_HOME"); !caches.empty()) return caches + "/deft";
  if (std::string home = folder("HOME"); !home.empty()) return home + "/.cache/deft";
  return "";
}

uint64_t checksum(std::string_view bytes) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

CacheFile read_cache_file(const std::string& path, std::string_view kind, int format, size_t most_bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {CacheFileState::absent, ""};
  std::string text(most_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty()) return {CacheFileState::damaged, ""};
  if (text.size() > most_bytes || !text.starts_with(fmt::format("deft {} ", kind)))
    return {CacheFileState::foreign, ""};
  const size_t end = text.find('\n');
  std::string body = end == text.npos ? "" : text.substr(end + 1);
  if (text.substr(0, end) != first_line(kind, format, body)) return {CacheFileState::damaged, ""};
  return {CacheFileState::good, std::move(body)};
}

bool write_cache_file(const std::string& path, std::string_view kind, int format, std::string_view body) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::string temporary = path + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return false;
  const bool written = write_all(fd, first_line(kind, format, body) + '\n') && write_all(fd, body);
  close(fd);
  if (written && rename(temporary.c_str(), path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

}  // namespace deft
