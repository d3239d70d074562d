// Tensors in a safetensors file: an 8-byte length, a JSON header with names, types, shapes and offsets, then the bytes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "core/state.h"
#include "io/load_options.h"

namespace deft::io {

struct SafetensorsFile {
  NamedTensors tensors;  // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;
};

// LoadError with the field and the offset for anything that is not exactly a safetensors file, UnsupportedError for a
// type that Deft does not have.
SafetensorsFile load_safetensors(const std::string& path, const LoadOptions& options = {});
// The same from a file's bytes in memory; the tensors are copies. `name` stands for the file in errors.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                  const LoadOptions& options = {});
// All files of a checkpoint in parts, by its "model.safetensors.index.json".
SafetensorsFile load_safetensors_index(const std::string& path, const LoadOptions& options = {});

// Written beside and renamed, so that the file is whole or not there. Tensors may lie on any device and in any layout.
// ValueError for a name that is empty, used twice, longer than 1024 bytes or not printable; SaveError if writing fails.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace deft::io
