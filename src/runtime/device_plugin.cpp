#include "runtime/device_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "runtime/plugin_file.h"

namespace deft {

namespace {

constexpr const char* kFile = "libdeft_cuda.so";

constinit std::mutex loading;
constinit std::atomic<const DevicePlugin*> plugin{nullptr};
constinit std::atomic<bool> tried{false};

// What the attempt gave; written before `tried`. Never destroyed: programs may ask while they end.
PluginReport& outcome() {
  static auto* report = new PluginReport;
  return *report;
}

// The file this code was loaded from: libdeft.so, or a program that it was linked into.
std::filesystem::path own_file() {
  Dl_info info{};
  dladdr(&loading, &info);
  return info.dli_fname ? info.dli_fname : "";
}

std::string plugin_path() {
  const char* given = secure_getenv("DEFT_CUDA_PLUGIN");
  return std::filesystem::absolute(given && *given ? given : own_file().parent_path() / kFile).string();
}

// From what dlerror() says: "libcublasLt.so.13: cannot open shared object file: No such file or directory".
std::string why_not_loaded(const std::string& error) {
  const size_t end = error.find(": cannot open shared object file: No such file or directory");
  if (end == error.npos) return "the system's loader refused it: " + error;
  return fmt::format(
      "it needs {}, which is not where the loader looks; install NVIDIA's libraries, or add their folder to "
      "LD_LIBRARY_PATH",
      error.substr(0, end));
}

// Half a sentence that says why it could not be loaded, or "".
std::string load(const std::string& path, const DevicePlugin*& loaded) {
  if (!own_file().filename().string().starts_with("libdeft.so"))
    return "plug-ins need the shared library, and this program has Deft linked into it; link it to libdeft.so";
  std::string wrong = what_is_wrong_with_plugin(path);
  if (!wrong.empty()) return wrong;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return why_not_loaded(dlerror());
  auto* entry = reinterpret_cast<decltype(&deft_cuda_plugin)>(dlsym(library, "deft_cuda_plugin"));
  if (!entry) return "it lacks the function deft_cuda_plugin; install deft-cuda again";
  loaded = entry();
  return "";
}

[[gnu::cold, gnu::noinline]] const DevicePlugin* load_once() {
  // A fork waits until the plug-in is there, so that no child finds half of it.
  static const int registered =
      pthread_atfork([] { loading.lock(); }, [] { loading.unlock(); }, [] { loading.unlock(); });
  (void)registered;
  std::lock_guard lock(loading);
  if (tried.load(std::memory_order_acquire)) return plugin.load(std::memory_order_acquire);
  PluginReport& report = outcome();
  report.identity = build_identity();
  report.path = plugin_path();
  const DevicePlugin* loaded = nullptr;
  report.why_not = load(report.path, loaded);
  report.loaded = loaded != nullptr;
  plugin.store(loaded, std::memory_order_release);
  tried.store(true, std::memory_order_release);
  return loaded;
}

}  // namespace

const DevicePlugin* cuda_plugin() {
  const DevicePlugin* p = plugin.load(std::memory_order_acquire);
  if (p || tried.load(std::memory_order_acquire)) [[likely]]
    return p;
  return load_once();
}

const DevicePlugin* cuda_plugin_if_loaded() { return plugin.load(std::memory_order_acquire); }

PluginReport cuda_plugin_report() {
  cuda_plugin();
  return outcome();
}

void detail::use_linked_plugin(const DevicePlugin* linked) {
  std::lock_guard lock(loading);
  outcome() = {.loaded = true, .path = own_file().string(), .why_not = "", .identity = build_identity()};
  plugin.store(linked, std::memory_order_release);
  tried.store(true, std::memory_order_release);
}

}  // namespace deft
