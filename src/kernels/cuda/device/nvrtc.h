// NVIDIA's compiler at run time, where it is installed: the library is loaded at run time and never linked.
#pragma once

#include <span>
#include <string>

namespace deft::cuda {

// What a source may include, by the name it is included under. NVRTC reads no files.
struct SourceFile {
  const char* name;
  const char* text;
};

// "13.0"; empty where there is no NVRTC 12 or newer.
const std::string& nvrtc_version();

struct CompiledSource {
  std::string image;  // for the driver; empty: the source is wrong, and the log says why
  std::string log;
};
// `capability` is 90 for compute capability 9.0: machine code for it, or PTX where this NVRTC does not know it yet.
CompiledSource nvrtc_compile(const std::string& source, std::span<const SourceFile> headers, int capability);
// How often it was called in this process.
int nvrtc_compilations();

}  // namespace deft::cuda
