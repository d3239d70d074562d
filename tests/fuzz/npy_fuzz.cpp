// Any bytes: an npy file, an npz archive or a typed error.
#include "io/npy.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size && data[0] == 'P')
    return deft::io::fuzz(data, size,
                          [](auto bytes, const auto& options) { return deft::io::parse_npz(bytes, "input", options); });
  return deft::io::fuzz(data, size, [](auto bytes, const auto& options) {
    return deft::NamedTensors{{"array", deft::io::parse_npy(bytes, "input", options)}};
  });
}
