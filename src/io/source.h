// Where bytes come from, so that every error can say so.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"

namespace deft::io {

// The part of a format that an error is about: "header length", "shape of 'conv1.weight'". Put together only when
// needed.
struct Field {
  Field(const char* part_) : part(part_) {}
  Field(std::string_view part_, std::string_view owner_) : part(part_), owner(owner_) {}
  std::string text() const { return owner.data() ? fmt::format("{} of '{}'", part, owner) : std::string(part); }
  std::string_view part, owner;
};

struct Source {
  std::string format;  // "safetensors"
  std::string file;
  uint64_t base = 0;  // added to offsets: bytes in memory may be a part of the file

  template <class... Args>
  [[noreturn, gnu::cold, gnu::noinline]] void fail(Field field, uint64_t offset, fmt::format_string<Args...> text,
                                                   const Args&... args) const {
    throw LoadError(format, file, field.text(), base + offset, fmt::vformat(text, fmt::make_format_args(args...)));
  }
  // Valid, but nothing that Deft can hold.
  template <class... Args>
  [[noreturn, gnu::cold, gnu::noinline]] void unsupported(Field field, uint64_t offset,
                                                          fmt::format_string<Args...> text, const Args&... args) const {
    throw UnsupportedError(fmt::format("{}: {}: {} at byte {}: {}", format, file, field.text(), base + offset,
                                       fmt::vformat(text, fmt::make_format_args(args...))));
  }
};

}  // namespace deft::io
