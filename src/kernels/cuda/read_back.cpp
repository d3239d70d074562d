#include "kernels/cuda/read_back.h"

namespace deft::cuda {

int64_t read_back(const Encoder& e, const int64_t* device_value) {
  int64_t value = 0;
  check(cudaMemcpyAsync(&value, device_value, sizeof(value), cudaMemcpyDeviceToHost, e.stream()), e.op(),
        "read a count back");
  check(cudaStreamSynchronize(e.stream()), e.op(), "wait for a count");
  return value;
}

}  // namespace deft::cuda
