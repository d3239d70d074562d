// Small text files of the system.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace deft {

// The whole file, or "" where it cannot be read.
inline std::string read_text(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace deft
