#include "write_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "io/atomic_file.h"

namespace deft::cli {

void write_file(const std::string& path, const std::string& text) {
  io::AtomicFile file(path, text.size());
  file.write(text.data(), text.size());
  file.commit();
}

void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  std::error_code none;
  const fs::path parent = fs::path(path).parent_path(), folder = parent.empty() ? "." : parent;
  DEFT_CHECK(!fs::is_directory(path, none), SaveError, "save: {}: this is a folder; name a file", path);
  DEFT_CHECK(fs::is_directory(folder, none), SaveError, "save: {}: there is no folder {}; make it first", path,
             folder.string());
  DEFT_CHECK(access(folder.c_str(), W_OK | X_OK) == 0, SaveError, "save: {}: files cannot be made in {} ({})", path,
             folder.string(), std::strerror(errno));
}

}  // namespace deft::cli
