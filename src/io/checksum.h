// One number for the whole content of a file: a damaged file has another one.
#pragma once

#include <map>
#include <string>

#include "core/state.h"

namespace deft::io {

using Metadata = std::map<std::string, std::string>;

// CRC-32 over metadata, without the entry `own_key` that holds it, and over names, types, shapes and bytes of the
// tensors, whatever their order. Eight hexadecimal digits.
std::string checksum(const Metadata& metadata, const NamedTensors& tensors, const char* own_key);

}  // namespace deft::io
