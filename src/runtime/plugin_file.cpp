#include "runtime/plugin_file.h"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace deft {

namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : in_(path, std::ios::binary) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    if (error) size_ = 0;
  }

  bool is_library_for_this_machine() {
    return read(0, &header_, sizeof header_) && std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
           header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_ident[EI_DATA] == ELFDATA2LSB &&
           header_.e_type == ET_DYN && header_.e_machine == kMachine && header_.e_phentsize == sizeof(Elf64_Phdr);
  }
  // After is_library_for_this_machine().
  bool is_whole() {
    segments_.resize(header_.e_phnum);
    if (!read(header_.e_phoff, segments_.data(), segments_.size() * sizeof(Elf64_Phdr))) return false;
    for (const Elf64_Phdr& s : segments_)
      if (!has(s.p_offset, s.p_filesz)) return false;
    return has(header_.e_shoff, uint64_t{header_.e_shnum} * header_.e_shentsize);
  }
  // After is_whole(). "" if there is none.
  std::string identity() {
    for (const Elf64_Phdr& s : segments_) {
      if (s.p_type != PT_NOTE) continue;
      for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= s.p_filesz;) {
        Elf64_Nhdr note;
        if (!read(s.p_offset + at, &note, sizeof note)) return "";
        const uint64_t name = at + sizeof note, text = name + padded(note.n_namesz);
        if (is_ours(note, s.p_offset + name)) return text_at(s.p_offset + text, note.n_descsz);
        at = text + padded(note.n_descsz);
      }
    }
    return "";
  }

 private:
  static uint64_t padded(uint32_t bytes) { return (uint64_t{bytes} + 3) / 4 * 4; }
  bool has(uint64_t at, uint64_t bytes) const { return at <= size_ && bytes <= size_ - at; }
  bool read(uint64_t at, void* to, uint64_t bytes) {
    if (!has(at, bytes)) return false;
    in_.clear();
    in_.seekg(static_cast<std::streamoff>(at));
    return static_cast<bool>(in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
  }
  bool is_ours(const Elf64_Nhdr& note, uint64_t name_at) {
    char name[sizeof IdentityNote::kName];
    return note.n_type == IdentityNote::kType && note.n_namesz == sizeof name && read(name_at, name, sizeof name) &&
           std::memcmp(name, IdentityNote::kName, sizeof name) == 0;
  }
  std::string text_at(uint64_t at, uint32_t bytes) {
    char text[sizeof IdentityNote::identity + 1] = {};
    if (bytes > sizeof IdentityNote::identity || !read(at, text, bytes)) return "";
    return text;
  }

  std::ifstream in_;
  uint64_t size_ = 0;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
};

}  // namespace

std::string what_is_wrong_with_plugin(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return "it is not there; install deft-cuda, or set DEFT_CUDA_PLUGIN to the path of libdeft_cuda.so";
  constexpr const char* kAgain = "install deft-cuda again";
  ElfFile file(path);
  if (!file.is_library_for_this_machine())
    return fmt::format("the file is no shared library for this machine; {}", kAgain);
  if (!file.is_whole()) return fmt::format("the file was cut off; {}", kAgain);
  const std::string identity = file.identity();
  if (identity.empty()) return fmt::format("the file is no plug-in of Deft; {}", kAgain);
  if (identity != build_identity())
    return fmt::format("it was made for deft {}, this is deft {}; install deft and deft-cuda of one version", identity,
                       build_identity());
  return "";
}

}  // namespace deft
