// Any bytes: an archive of which every member unpacks, or a typed error.
#include "io/zip.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return deft::io::fuzz(data, size, [](auto bytes, const auto& options) {
    deft::io::InputFile file(bytes, "input", "zip", options);
    deft::io::ZipArchive zip(file);
    for (const deft::io::ZipEntry& e : zip.entries()) {
      std::vector<std::byte> out(e.size);
      zip.read(e, out.data());
    }
    return deft::NamedTensors{};
  });
}
