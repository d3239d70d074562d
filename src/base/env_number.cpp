#include "base/env_number.h"

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace deft {

uint64_t number_from_env(const char* name, uint64_t otherwise, uint64_t most) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  const char* end = text + std::strlen(text);
  uint64_t number = 0;
  const auto [at, error] = std::from_chars(text, end, number);
  if (error == std::errc() && at == end && number <= most) return number;
  std::fprintf(stderr, "deft: %s=%s is not a whole number from 0 to %" PRIu64 "; %" PRIu64 " is used\n", name, text,
               most, otherwise);
  return otherwise;
}

}  // namespace deft
