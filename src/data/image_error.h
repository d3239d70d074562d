// How decoders say what is wrong with an image.
#pragma once

#include "base/check.h"
#include "data/encoded_image.h"

namespace deft::data {

template <class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const EncodedImage& image, const char* format, const char* field,
                                                 uint64_t offset, fmt::format_string<Args...> text,
                                                 const Args&... args) {
  throw LoadError(format, std::string(image.name), field, offset, fmt::vformat(text, fmt::make_format_args(args...)));
}

}  // namespace deft::data
