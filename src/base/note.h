// Lines on stderr that never end the program: where stderr is closed or lies on a full disk, they are lost.
// (fmt::print() throws there, which ends a program before main() or in a handler.)
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace deft {

template <class... T>
void print_note(fmt::format_string<T...> text, T&&... values) noexcept {
  try {
    std::fputs(fmt::format(text, std::forward<T>(values)...).c_str(), stderr);
  } catch (...) {  // no memory
  }
}

}  // namespace deft
