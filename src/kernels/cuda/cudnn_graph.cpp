#ifndef DEFT_HAS_CUDNN
#define DEFT_HAS_CUDNN 1
#endif
#if DEFT_HAS_CUDNN

#include "kernels/cuda/cudnn_graph.h"

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
  bool is_virtual = id == kIdProduct;  // lives in registers only, not yet rounded
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

Descriptor make_addition(const Descriptor& rule, const Descriptor& a, const Descriptor& b, const Descriptor& sum) {
  Descriptor o(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b).set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, sum);
  return o;
}

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

GraphPtr make_graph(cudnnHandle_t handle, const ConvProblem& p, bool fused_bias) {
  auto g = std::make_shared<ConvGraph>();
  g->fused_bias = fused_bias;
  g->parts.reserve(9);  // references into it stay valid
  auto add = [&](Descriptor d) -> const Descriptor& {
    d.finalize();
    g->parts.push_back(std::move(d));
    return g->parts.back();
  };
  const Descriptor& x = add(make_tensor(p, kIdX, p.n, p.c_in, p.in, p.channels_last, p.align_x));
  const Descriptor& w = add(make_tensor(p, kIdW, p.c_out, p.c_in / p.groups, p.kernel, p.w_channels_last, p.align_w));
  const Descriptor& y = add(make_tensor(p, kIdY, p.n, p.c_out, p.out, p.channels_last, p.align_y));
  const Descriptor& convolution = add(make_convolution(p));
  cudnnBackendDescriptor_t operations[2];
  int64_t count = 1;
  if (fused_bias) {
    constexpr int64_t kOnes[] = {1, 1, 1};
    const Descriptor& bias = add(make_tensor(p, kIdBias, 1, p.c_out, kOnes, p.channels_last, p.align_bias));
    const Descriptor& product = add(make_tensor(p, kIdProduct, p.n, p.c_out, p.out, p.channels_last, 16));
    Descriptor rule(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    rule.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    rule.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    const Descriptor& addition = add(std::move(rule));
    operations[0] = add(make_operation(p, convolution, x, w, product)).raw();
    operations[1] = add(make_addition(addition, product, bias, y)).raw();
    count = 2;
  } else {
    operations[0] = add(make_operation(p, convolution, x, w, y)).raw();
  }
  for (const Descriptor& d : g->parts)
    if (!d.good()) return nullptr;
  g->graph = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  g->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
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
