#pragma once

#include <string>

namespace deft::cli {

// Whole or not at all; SaveError where it cannot be written.
void write_file(const std::string& path, const std::string& text);
// SaveError where write_file() would fail, so that the error comes before minutes of measuring. "" is no file.
void check_writable(const std::string& path);

}  // namespace deft::cli
