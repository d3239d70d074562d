// NumPy's files: one array (npy, versions 1 to 3) or a zip archive of them (npz). Pickled objects are never read.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/state.h"
#include "io/load_options.h"

namespace deft::io {

// Big-endian data is converted; Fortran order becomes strides. LoadError for what breaks the format, also for bytes
// after the array; UnsupportedError for types that Deft does not have: strings, records, objects, complex numbers,
// int16...
Tensor load_npy(const std::string& path, const LoadOptions& options = {});
// The same from a file's bytes in memory; the tensor is a copy. `name` stands for the file in errors.
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options = {});
// In the order of the archive, by the names of the members without ".npy".
NamedTensors load_npz(const std::string& path, const LoadOptions& options = {});
NamedTensors parse_npz(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options = {});

// Written beside and renamed. bf16, which NumPy does not have, is saved as float32. Arrays in an npz are not packed.
void save_npy(const std::string& path, const Tensor& tensor);
void save_npz(const std::string& path, const NamedTensors& tensors);

}  // namespace deft::io
