// DEFT_CHECK: user check, throws the named error. DEFT_ASSERT: internal invariant, throws InternalError.
// DEFT_DEBUG_ASSERT: costs nothing in release. Formatting is out of line so that a passing check is one branch.
#pragma once

#include <fmt/format.h>

#include "base/error.h"

namespace deft::detail {

template <class E, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void fail(fmt::format_string<Args...> text, const Args&... args) {
  throw E(fmt::vformat(text, fmt::make_format_args(args...)));
}
[[noreturn, gnu::cold]] void fail_internal(const char* condition, const char* file, int line);

}  // namespace deft::detail

#define DEFT_CHECK(condition, ErrorType, ...)               \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::deft::detail::fail<::deft::ErrorType>(__VA_ARGS__); \
  } while (0)

#define DEFT_FAIL(ErrorType, ...) ::deft::detail::fail<::deft::ErrorType>(__VA_ARGS__)

#define DEFT_ASSERT(condition)                                       \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::deft::detail::fail_internal(#condition, __FILE__, __LINE__); \
  } while (0)

#ifdef NDEBUG
#define DEFT_DEBUG_ASSERT(condition) ((void)0)
#else
#define DEFT_DEBUG_ASSERT(condition) DEFT_ASSERT(condition)
#endif
