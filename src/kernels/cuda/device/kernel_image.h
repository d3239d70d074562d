// Sources compiled while the program runs, and kept in files for the next one.
#pragma once

#include "kernels/cuda/device/nvrtc.h"

namespace deft::cuda {

// A source's image: from a file in `folder` that an earlier process left there, else from NVRTC, which also writes that
// file. The name of a file says which source, capability, NVRTC and Deft it belongs to; files that are damaged or not
// ours are made anew. The folder is bounded: files not used for the longest time go first. Empty folder: no files.
CompiledSource kernel_image(const std::string& source, std::span<const SourceFile> headers, int capability,
                            const std::string& folder);
// "kernels" in the folder of caches.
std::string kernel_folder();
inline constexpr size_t kMostKernelFiles = 512;

}  // namespace deft::cuda
