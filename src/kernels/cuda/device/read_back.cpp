#include "kernels/cuda/device/read_back.h"

#include "kernels/cuda/device/driver.h"
#include "runtime/profile_hook.h"

namespace deft::cuda {

int64_t read_back(const Encoder& e, const int64_t* device_value) {
  int64_t value = 0;
  Zone zone("read back", Bucket::sync, Site());
  check(cudaMemcpyAsync(&value, device_value, sizeof(value), cudaMemcpyDeviceToHost, e.stream()), e.op(),
        "read a count back");
  check(cudaStreamSynchronize(e.stream()), e.op(), "wait for a count");
  check_faults(gpu(e.device().index));
  return value;
}

}  // namespace deft::cuda
