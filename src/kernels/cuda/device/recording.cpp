#include "runtime/recording.h"

#include <vector>

#include "kernels/cuda/device/driver.h"
#include "kernels/cuda/device/encoder.h"

namespace deft {

namespace cuda {

namespace {

class CudaRecording : public Recording {
 public:
  CudaRecording(Gpu& gpu, uint8_t stream, cudaGraphExec_t graph, std::vector<Block*> memory)
      : gpu_(gpu), stream_(stream), graph_(graph), memory_(std::move(memory)) {}
  ~CudaRecording() override {
    if (in_forked_child()) return;
    cudaSetDevice(gpu_.index);
    cudaGraphExecDestroy(graph_);  // a launch under way goes on; its memory is only reused behind it on the stream
    for (Block* block : memory_) gpu_.allocator.free(block);
  }
  void launch() override {
    use_gpu(gpu_.index);
    check_faults(gpu_);
    check(cudaGraphLaunch(graph_, gpu_.stream(stream_)), "compile", "launching a recorded plan");
  }

 private:
  Gpu& gpu_;
  uint8_t stream_;
  cudaGraphExec_t graph_;
  std::vector<Block*> memory_;
};

// From construction to finish() the stream is captured. Destroyed without finish(), the capture is discarded.
class Capture {
 public:
  Capture(Gpu& gpu, uint8_t stream) : gpu_(gpu), id_(stream), stream_(gpu.stream(stream)) {
    use_gpu(gpu.index);
    gpu_.allocator.begin_keeping(id_);
    cudaError_t status = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
    if (status == cudaSuccess) return;
    release();
    check(status, "compile", "recording a plan");
  }
  ~Capture() {
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph) cudaGraphDestroy(graph);
    cudaGetLastError();  // the error of work that could not be recorded has been reported
    release();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<Recording> finish() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    if (status == cudaSuccess) status = cudaGraphInstantiate(&ready, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (status != cudaSuccess) {
      cudaGetLastError();
      release();
      check(status, "compile", "recording a plan");
    }
    return std::make_unique<CudaRecording>(gpu_, id_, ready, gpu_.allocator.end_keeping());
  }

 private:
  void release() {
    for (Block* block : gpu_.allocator.end_keeping()) gpu_.allocator.free(block);
  }
  Gpu& gpu_;
  uint8_t id_;
  cudaStream_t stream_;
  bool ended_ = false;
};

}  // namespace

}  // namespace cuda

std::unique_ptr<Recording> detail::record_cuda(Device device, uint8_t stream, FunctionRef<void()> enqueue) {
  cuda::Capture capture(cuda::gpu(device.index), stream);
  enqueue();
  return capture.finish();
}

}  // namespace deft
