#include "io/file_format.h"

#include <algorithm>
#include <cstring>

#include "io/input_file.h"

namespace deft::io {

namespace {

const char* describe(FileFormat f) {
  constexpr const char* texts[] = {"a safetensors file",
                                   "an npy file",
                                   "a zip archive (npz or PyTorch)",
                                   "a PyTorch file from before version 1.6",
                                   "JSON text",
                                   "of unknown format"};
  return texts[static_cast<int>(f)];
}

}  // namespace

FileFormat detect_format(const InputFile& file) {
  char start[512] = {};
  uint64_t n = std::min<uint64_t>(sizeof(start), file.size());
  file.read(0, start, n, "file");
  std::string_view s(start, n);
  using namespace std::string_view_literals;
  if (s.starts_with("\x93NUMPY")) return FileFormat::npy;
  if (s.starts_with("PK\3\4") || s.starts_with("PK\5\6")) return FileFormat::zip;
  if (s.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv) ||
      s.substr(std::min<size_t>(n, 257)).starts_with("ustar"))
    return FileFormat::legacy_pt;
  uint64_t header = 0;
  if (n > 8) {
    std::memcpy(&header, start, 8);
    if (header && header <= file.size() - 8 && s.substr(8).find_first_not_of(" \t\r\n") != s.npos &&
        s.substr(8)[s.substr(8).find_first_not_of(" \t\r\n")] == '{')
      return FileFormat::safetensors;
  }
  size_t text = s.find_first_not_of(" \t\r\n");
  return text != s.npos && s[text] == '{' ? FileFormat::json : FileFormat::unknown;
}

void check_format(const InputFile& file, FileFormat wanted) {
  FileFormat found = detect_format(file);
  if (found == wanted || found == FileFormat::unknown) return;
  file.source().fail("file", 0, "this is {}, expected {}", describe(found), describe(wanted));
}

}  // namespace deft::io
