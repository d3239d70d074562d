#include "image_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return deft::data::fuzz_image(data, size, deft::data::ImageFormat::png);
}
