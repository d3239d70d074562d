#include "kernels/cuda/device/runtime_kernel.h"

#include <cuda.h>
#include <dlfcn.h>

#include "base/check.h"

namespace deft::cuda {

namespace {

// The driver, which is there wherever a GPU is.
struct Driver {
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleGetFunction) get = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
};
const Driver& driver() {
  static const Driver d = [] {
    Driver found;
    if (void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
      found.load = reinterpret_cast<decltype(found.load)>(dlsym(library, "cuModuleLoadData"));
      found.get = reinterpret_cast<decltype(found.get)>(dlsym(library, "cuModuleGetFunction"));
      found.launch = reinterpret_cast<decltype(found.launch)>(dlsym(library, "cuLaunchKernel"));
    }
    return found;
  }();
  DEFT_CHECK(d.load && d.get && d.launch, DeviceError, "cuda: libcuda.so.1 was not found; install the driver");
  return d;
}
// The driver's error codes are the runtime's.
void check_driver(CUresult status, const char* op, const char* what) {
  check(static_cast<cudaError_t>(status), op, what);
}

// Loading code is no work of a stream: it may be done while one is captured.
class WhileCapturing {
 public:
  WhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~WhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  WhileCapturing(const WhileCapturing&) = delete;
  WhileCapturing& operator=(const WhileCapturing&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

RuntimeKernel::RuntimeKernel(const std::string& image, const char* name) {
  WhileCapturing relaxed;
  CUmodule module = nullptr;
  check_driver(driver().load(&module, image.data()), name, "loading a kernel");
  check_driver(driver().get(&function_, module, name), name, "loading a kernel");
}

void RuntimeKernel::launch(Encoder& e, unsigned blocks, unsigned threads, void* argument) const {
  void* arguments[] = {argument};
  check_driver(driver().launch(function_, blocks, 1, 1, threads, 1, 1, 0, e.stream(), arguments, nullptr), e.op(),
               "a kernel launch");
  e.note_launch();
}

}  // namespace deft::cuda
