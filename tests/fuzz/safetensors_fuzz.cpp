// Any bytes: a safetensors file or a typed error.
#include "fuzz.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return deft::io::fuzz(data, size, [](auto bytes, const auto& options) {
    deft::io::SafetensorsFile f = deft::io::parse_safetensors(bytes, "input", options);
    return f.tensors;
  });
}
