#ifndef DEFT_HAS_CUDNN
#define DEFT_HAS_CUDNN 1
#endif
#if DEFT_HAS_CUDNN

#include "kernels/cuda/conv/cudnn_graph.h"

#include <algorithm>

namespace deft::cuda {

namespace {

constexpr int kMaxRank = 5;

cudnnDataType_t library_type(DType t) {
  switch (t) {
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// Strides follow from the order alone, so that dims of size 1 never hide it.
Descriptor make_tensor(const ConvProblem& p, int64_t id, int64_t outer, int64_t channels, const int64_t* sizes,
                       bool channels_last, int64_t alignment) {
  int64_t dims[kMaxRank] = {outer, channels}, strides[kMaxRank];
  int rank = p.dims + 2;
  for (int d = 0; d < p.dims; ++d) dims[2 + d] = sizes[3 - p.dims + d];
  int64_t step = channels_last ? channels : 1;
  for (int d = rank - 1; d >= 2; --d) strides[d] = step, step *= dims[d];
  strides[1] = channels_last ? 1 : step;
  strides[0] = channels_last ? step : step * channels;
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  bool is_virtual = id >= kIdProduct;  // lives in registers only, not yet rounded
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, is_virtual ? CUDNN_DATA_FLOAT : library_type(p.type()));
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (is_virtual) t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  return t;
}

Descriptor make_convolution(const ConvProblem& p) {
  int64_t count = p.dims;
  int first = 3 - p.dims;
  Descriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
        p.type() == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, count);
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, count, p.dilation + first);
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, count, p.stride + first);
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, count, p.pad + first);
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, count, p.post_pad + first);
  return c;
}

// The names of one kind of convolution's attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};
constexpr OperationNames kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

Descriptor make_operation(const ConvProblem& p, const Descriptor& convolution, const Descriptor& x, const Descriptor& w,
                          const Descriptor& y) {
  const OperationNames& names = kNames[p.kind];
  Descriptor o(names.type);
  o.set(names.convolution, convolution).set(names.x, x).set(names.w, w).set(names.y, y);
  if (p.type() == DType::f64) {
    o.set(names.alpha, CUDNN_TYPE_DOUBLE, 1.0).set(names.beta, CUDNN_TYPE_DOUBLE, p.accumulate ? 1.0 : 0.0);
  } else {
    o.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f).set(names.beta, CUDNN_TYPE_FLOAT, p.accumulate ? 1.0f : 0.0f);
  }
  return o;
}

cudnnPointwiseMode_t library_mode(Activation a) {
  switch (a) {
    case Activation::relu:
      return CUDNN_POINTWISE_RELU_FWD;
    case Activation::gelu:
      return CUDNN_POINTWISE_GELU_FWD;
    case Activation::gelu_tanh:
      return CUDNN_POINTWISE_GELU_APPROX_TANH_FWD;
    case Activation::silu:
      return CUDNN_POINTWISE_SWISH_FWD;
    case Activation::sigmoid:
      return CUDNN_POINTWISE_SIGMOID_FWD;
    case Activation::tanh:
      return CUDNN_POINTWISE_TANH_FWD;
    default:
      return CUDNN_POINTWISE_IDENTITY;
  }
}

// Tensors and operations of one graph. Those of the epilogue come in the order that cuDNN's own kernels know: residual,
// bias, activation.
class Builder {
 public:
  Builder(const ConvProblem& p, ConvGraph& g) : p_(p), g_(g) { g.parts.reserve(kMostParts); }

  void build(bool fused) {
    if (fused) left_ = (p_.align_residual != 0) + (p_.bias != 0) + (p_.activation != 0);
    const Descriptor& x = add(make_tensor(p_, kIdX, p_.n, p_.c_in, p_.in, p_.channels_last, p_.align_x));
    const Descriptor& w =
        add(make_tensor(p_, kIdW, p_.c_out, p_.c_in / p_.groups, p_.kernel, p_.w_channels_last, p_.align_w));
    const Descriptor& convolution = add(make_convolution(p_));
    const Descriptor* at = &result(kIdProduct);
    add_operation(make_operation(p_, convolution, x, w, *at));
    if (!fused) return;
    if (p_.align_residual) at = &sum(*at, add(like_y(kIdResidual, p_.align_residual)), kIdSum);
    if (p_.bias) {
      constexpr int64_t kOnes[] = {1, 1, 1};
      at = &sum(*at, add(make_tensor(p_, kIdBias, 1, p_.c_out, kOnes, p_.channels_last, p_.align_bias)), kIdAllSums);
    }
    if (p_.activation) pointwise(library_mode(static_cast<Activation>(p_.activation)), *at, nullptr, kIdAllSums);
  }
  const std::vector<cudnnBackendDescriptor_t>& operations() const { return operations_; }

 private:
  static constexpr size_t kMostParts = 20;  // references into the list stay valid

  const Descriptor& add(Descriptor d) {
    d.finalize();
    g_.parts.push_back(std::move(d));
    return g_.parts.back();
  }
  void add_operation(Descriptor d) { operations_.push_back(add(std::move(d)).raw()); }
  Descriptor like_y(int64_t id, int64_t alignment) const {
    return make_tensor(p_, id, p_.n, p_.c_out, p_.out, p_.channels_last, alignment);
  }
  // What the next operation writes: y itself if it is the last.
  const Descriptor& result(int64_t id) { return add(left_-- == 0 ? like_y(kIdY, p_.align_y) : like_y(id, 16)); }

  const Descriptor& sum(const Descriptor& a, const Descriptor& b, int64_t id) {
    return pointwise(CUDNN_POINTWISE_ADD, a, &b, id);
  }
  const Descriptor& pointwise(cudnnPointwiseMode_t mode, const Descriptor& a, const Descriptor* b, int64_t id) {
    Descriptor rule(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    rule.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    rule.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_RELU_FWD) keep_nan(rule);
    const Descriptor &added = add(std::move(rule)), &y = result(id);
    Descriptor o(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, added).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    if (b) o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    o.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(std::move(o));
    return y;
  }

  // relu of NaN is NaN, as everywhere. Deprecated, and still what its kernels go by.
  static void keep_nan(Descriptor& rule) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    rule.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
#pragma GCC diagnostic pop
  }

  const ConvProblem& p_;
  ConvGraph& g_;
  int left_ = 0;  // operations after the next one
  std::vector<cudnnBackendDescriptor_t> operations_;
};

bool allows(const ConvProblem& p, cudnnBackendNumericalNote_t note, bool strict) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return p.type() != DType::f32 || p.tf32;
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      return !p.deterministic;
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      return p.is_16bit() && !strict;
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      return true;
    default:  // inputs rounded, FFT, Winograd
      return false;
  }
}

}  // namespace

GraphPtr make_graph(cudnnHandle_t handle, const ConvProblem& p, bool fused) {
  auto g = std::make_shared<ConvGraph>();
  g->fused = fused;
  Builder builder(p, *g);
  builder.build(fused);
  for (const Descriptor& d : g->parts)
    if (!d.good()) return nullptr;
  const std::vector<cudnnBackendDescriptor_t>& operations = builder.operations();
  g->graph = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  g->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(operations.size()),
               operations.data());
  g->graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  return g->graph.finalize().good() ? g : nullptr;
}

std::vector<Descriptor> engine_configs(const ConvGraph& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  heuristic.finalize();
  int64_t count = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().raw());
  }
  int64_t got =
      count ? heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data()) : 0;
  configs.resize(static_cast<size_t>(std::min(got, count)));
  return configs;
}

bool is_exact_enough(const Descriptor& config, const ConvProblem& p, bool strict) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  if (!engine.good() || !config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw)) return false;
  constexpr int64_t kMost = CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
  cudnnBackendNumericalNote_t notes[kMost];
  int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, kMost, notes);
  return std::all_of(notes, notes + std::min(count, kMost), [&](auto note) { return allows(p, note, strict); });
}

}  // namespace deft::cuda

#endif  // DEFT_HAS_CUDNN
