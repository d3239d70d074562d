// cuDNN's backend descriptors, the operation graph of a convolution, and the engines cuDNN offers for it.
#pragma once

#include <cudnn.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/conv/conv.h"

namespace deft::cuda {

// Everything a plan depends on; compared as bytes. Arrays hold three dims, ones in front.
struct ConvProblem {
  int64_t n, c_in, c_out, groups;
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], post_pad[3], dilation[3];
  int64_t workspace_limit;
  uint8_t kind, dtype, dims;  // dims: 2 or 3, the last ones of the arrays
  uint8_t channels_last, w_channels_last;
  uint8_t bias, accumulate, deterministic, tf32, benchmark;
  uint8_t align_x, align_w, align_y, align_bias, align_residual;  // align_residual 0: no residual
  uint8_t activation;

  DType type() const { return static_cast<DType>(dtype); }
  ConvKind conv_kind() const { return static_cast<ConvKind>(kind); }
  bool is_16bit() const { return size_of(type()) == 2; }
  bool has_epilogue() const { return bias || align_residual || activation; }
};

// A backend descriptor. The first failure sticks; later calls do nothing. Refusals are ordinary here: cuDNN refuses
// problems that an engine does not support.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) : status_(cudnnBackendCreateDescriptor(type, &raw_)) {}
  ~Descriptor() {
    if (raw_) cudnnBackendDestroyDescriptor(raw_);
  }
  Descriptor(Descriptor&& o) noexcept : raw_(std::exchange(o.raw_, nullptr)), status_(o.status_) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(raw_, o.raw_);
    std::swap(status_, o.status_);
    return *this;
  }

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values) {
    if (good()) status_ = cudnnBackendSetAttribute(raw_, name, type, count, values);
    return *this;
  }
  template <class V>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    if (good() && !part.good()) status_ = part.status_;
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part.raw_);
  }
  Descriptor& finalize() {
    if (good()) status_ = cudnnBackendFinalize(raw_);
    return *this;
  }
  // How many values there are, at most `count`; 0 on failure.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, void* values) const {
    int64_t got = 0;
    if (!good() || cudnnBackendGetAttribute(raw_, name, type, count, &got, values) != CUDNN_STATUS_SUCCESS) return 0;
    return got;
  }
  bool good() const { return status_ == CUDNN_STATUS_SUCCESS && raw_; }
  cudnnStatus_t status() const { return status_; }
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_NOT_INITIALIZED;
};

// Ids of the tensors in a variant pack.
enum TensorId : int64_t { kIdX = 1, kIdW, kIdY, kIdBias, kIdResidual, kIdProduct, kIdSum, kIdAllSums };

struct ConvGraph {
  std::vector<Descriptor> parts;  // tensors, convolution, operations
  Descriptor graph;
  bool fused = false;  // bias, residual and activation are part of it
};
using GraphPtr = std::shared_ptr<ConvGraph>;

// nullptr where cuDNN refuses the problem itself.
GraphPtr make_graph(cudnnHandle_t handle, const ConvProblem& problem, bool fused);

// Engine configurations for the graph, best first.
std::vector<Descriptor> engine_configs(const ConvGraph& graph, cudnnBackendHeurMode_t mode);

// False for engines that compute less exactly than the problem asks for. `strict` also leaves out those that round
// partial sums of 16-bit results.
bool is_exact_enough(const Descriptor& config, const ConvProblem& problem, bool strict);

}  // namespace deft::cuda
