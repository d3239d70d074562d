#include "kernels/cuda/device/nvrtc.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "base/check.h"

namespace deft::cuda {

namespace {

std::atomic<int> compilations{0};

// The few functions used, declared here so that the toolkit's header need not be there. 0 is success.
struct Nvrtc {
  using Program = struct OpaqueProgram*;
  int (*version)(int* major, int* minor);
  int (*supported_count)(int* count);
  int (*supported)(int* capabilities);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*compile)(Program, int count, const char* const* options);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*destroy)(Program*);
  std::string text;  // of the version; empty: not there
  std::vector<int> capabilities;
};

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

// First where the other libraries of the toolkit are, then the loader's search path.
std::vector<std::string> folders() {
  std::vector<std::string> all;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&cublasLtCreate), &info) && info.dli_fname) {
    const std::string path = info.dli_fname;
    if (auto cut = path.rfind('/'); cut != path.npos) all.push_back(path.substr(0, cut + 1));
  }
  all.emplace_back("");
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(name)) all.push_back(fmt::format("{}/lib64/", root));
  all.emplace_back("/usr/local/cuda/lib64/");
  return all;
}

// The version this build was made with comes first: its functions have the bits of the other kernels.
void* open_library() {
  std::vector<std::string> names = {fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000), "libnvrtc.so.13",
                                    "libnvrtc.so.12", "libnvrtc.so"};
  for (const std::string& name : names)
    for (const std::string& folder : folders())
      if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Nvrtc load() {
  Nvrtc n{};
  void* library = open_library();
  bool found = library && find(library, "nvrtcVersion", n.version) &&
               find(library, "nvrtcGetNumSupportedArchs", n.supported_count) &&
               find(library, "nvrtcGetSupportedArchs", n.supported) && find(library, "nvrtcCreateProgram", n.create) &&
               find(library, "nvrtcCompileProgram", n.compile) && find(library, "nvrtcGetProgramLogSize", n.log_size) &&
               find(library, "nvrtcGetProgramLog", n.log) && find(library, "nvrtcGetPTXSize", n.ptx_size) &&
               find(library, "nvrtcGetPTX", n.ptx) && find(library, "nvrtcGetCUBINSize", n.cubin_size) &&
               find(library, "nvrtcGetCUBIN", n.cubin) && find(library, "nvrtcDestroyProgram", n.destroy);
  int major = 0, minor = 0, count = 0;
  if (!found || n.version(&major, &minor) != 0 || major < 12 || n.supported_count(&count) != 0) return n;
  n.capabilities.resize(static_cast<size_t>(count));
  if (count == 0 || n.supported(n.capabilities.data()) != 0) return n;
  n.text = fmt::format("{}.{}", major, minor);
  return n;
}
const Nvrtc& nvrtc() {
  static const auto* n = new Nvrtc(load());
  return *n;
}

// The newest known capability that code for `wanted` can be made from.
int best_capability(const std::vector<int>& known, int wanted) {
  int best = 0;
  for (int c : known)
    if (c <= wanted) best = std::max(best, c);
  return best;
}

using GetSize = int (*)(Nvrtc::Program, size_t*);
using GetBytes = int (*)(Nvrtc::Program, char*);
std::string read(Nvrtc::Program p, GetSize size, GetBytes get) {
  size_t n = 0;
  if (size(p, &n) != 0) return "";
  std::string bytes(n, '\0');
  return get(p, bytes.data()) == 0 ? bytes : "";
}

}  // namespace

const std::string& nvrtc_version() { return nvrtc().text; }
int nvrtc_compilations() { return compilations.load(std::memory_order_relaxed); }

CompiledSource nvrtc_compile(const std::string& source, std::span<const SourceFile> headers, int capability) {
  const Nvrtc& n = nvrtc();
  DEFT_CHECK(!n.text.empty(), UnsupportedError, "nvrtc: the library is not there");
  ++compilations;
  const int target = best_capability(n.capabilities, capability);
  if (target == 0) return {"", fmt::format("NVRTC {} cannot make code for capability {}", n.text, capability)};
  std::vector<const char*> texts, names;
  for (const SourceFile& f : headers) {
    texts.push_back(f.text);
    names.push_back(f.name);
  }
  Nvrtc::Program program = nullptr;
  const int count = static_cast<int>(headers.size());
  if (n.create(&program, source.c_str(), "deft.cu", count, texts.data(), names.data()) != 0)
    return {"", "the program could not be made"};
  // Contraction and division as in the kernels that nvcc compiles, whose defaults these are.
  const bool exact = target == capability;
  const std::string arch = fmt::format("--gpu-architecture={}{}", exact ? "sm_" : "compute_", target);
  const char* options[] = {arch.c_str(), "--std=c++20", "--device-as-default-execution-space", "-w"};
  const bool good = n.compile(program, std::size(options), options) == 0;
  CompiledSource result{"", read(program, n.log_size, n.log)};
  if (good) result.image = exact ? read(program, n.cubin_size, n.cubin) : read(program, n.ptx_size, n.ptx);
  n.destroy(&program);
  return result;
}

}  // namespace deft::cuda
