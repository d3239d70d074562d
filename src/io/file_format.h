// What a file is, by its first bytes.
#pragma once

#include <cstdint>

namespace deft::io {

class InputFile;

enum class FileFormat : uint8_t { safetensors, npy, zip, legacy_pt, json, unknown };
FileFormat detect_format(const InputFile& file);
// LoadError if the file is clearly of another format than this one.
void check_format(const InputFile& file, FileFormat wanted);

}  // namespace deft::io
