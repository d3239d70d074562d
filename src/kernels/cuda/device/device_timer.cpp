#include "kernels/cuda/device/device_timer.h"

#include "runtime/context.h"

namespace deft::cuda {

bool can_wait(const Encoder& e) {
  if (context().sync == SyncPolicy::forbid) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(e.stream(), &status), e.op(), "looking at the stream");
  return status == cudaStreamCaptureStatusNone;
}

DeviceTimer::DeviceTimer(const Encoder& e) : e_(e) {
  check(cudaEventCreate(&begin_), e.op(), "making an event");
  if (cudaError_t status = cudaEventCreate(&end_); status != cudaSuccess) {
    cudaEventDestroy(begin_);
    check(status, e.op(), "making an event");
  }
}

DeviceTimer::~DeviceTimer() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void DeviceTimer::start() { check(cudaEventRecord(begin_, e_.stream()), e_.op(), "timing kernels"); }

double DeviceTimer::stop() {
  check(cudaEventRecord(end_, e_.stream()), e_.op(), "timing kernels");
  check(cudaEventSynchronize(end_), e_.op(), "timing kernels");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin_, end_), e_.op(), "timing kernels");
  return ms;
}

}  // namespace deft::cuda
