#pragma once

#include <string>

namespace deft::cli {

// Whole or not at all; SaveError where it cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace deft::cli
