// Any bytes as a checkpoint whose checksum is right, and as one of the values in a checkpoint: without that, all that a
// fuzzer finds is the check itself.
#include "io/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz.h"
#include "io/checksum.h"
#include "io/json_reader.h"
#include "io/safetensors.h"

namespace {

using deft::io::Metadata;

constexpr const char* kOwnKey = "deft.crc32";

// The file with the checksum that its contents have.
std::string repaired(std::string file, const deft::io::LoadOptions& options) {
  const std::string entry = std::string("\"") + kOwnKey + "\":\"";
  const size_t at = file.find(entry);
  if (at == file.npos) return file;
  try {
    auto parsed = deft::io::parse_safetensors(std::as_bytes(std::span(file)), "input", options);
    const std::string sum = deft::io::checksum(parsed.metadata, parsed.tensors, kOwnKey);
    if (parsed.metadata[kOwnKey].size() == sum.size()) file.replace(at + entry.size(), sum.size(), sum);
  } catch (const deft::Error&) {  // no file of this format: load_checkpoint() says so
  }
  return file;
}

// A checkpoint without tensors that holds one value, given as it is stored.
std::string with_value(const std::string& text) {
  Metadata metadata{{"deft.checkpoint", "1"}, {"deft.step", "3"}, {"deft.config", "c"}, {"value.x", text}};
  metadata[kOwnKey] = deft::io::checksum(metadata, {}, kOwnKey);
  std::string header = "{\"__metadata__\":{";
  for (const auto& [key, value] : metadata)
    header += (header.back() == '{' ? "" : ",") + deft::io::json_string(key) + ":" + deft::io::json_string(value);
  header += "}}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
}

// Checkpoints are read from files: this one lies in memory.
class File {
 public:
  explicit File(const std::string& bytes) : fd_(memfd_create("checkpoint", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) __builtin_trap();
  }
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

int run(const std::string& bytes) {
  return deft::io::fuzz(nullptr, 0, [&](auto, const auto& options) {
    const File file(repaired(bytes, options));
    return deft::io::load_checkpoint(file.path(), options).state.tensors;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  run(bytes);
  if (deft::io::valid_utf8(bytes) == bytes.size()) run(with_value(bytes));
  return 0;
}
