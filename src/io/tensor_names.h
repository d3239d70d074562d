// Which names tensors in files may have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deft::io {

// Why this cannot be the name of a tensor ("is empty"), or nullptr.
const char* name_fault(std::string_view name, uint64_t max_bytes);
// For errors: control characters, bytes that are not UTF-8 and what exceeds 64 bytes are replaced.
std::string printable(std::string_view text);

}  // namespace deft::io
