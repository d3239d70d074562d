#include "ops/prepack.h"

#include "core/derived_cache.h"
#include "core/tensor_impl.h"
#include "kernels/cpu/conv/conv.h"
#include "kernels/cpu/gemm/gemm.h"
#include "ops/conv_common.h"
#include "ops/matmul.h"
#include "ops/matmul_common.h"
#include "ops/packed_linear.h"

namespace deft {

namespace {

bool is_convolution(const OpDef& def) { return &def == &op_def<Convolution> || &def == &op_def<FusedConvolution>; }

// Of this shape; its memory is never looked at.
Tensor shape_only(const Meta& m, const Tensor& anywhere) { return Tensor(make_external(anywhere.data_ptr(), m, {})); }

cpu::ConvCall conv_of(const OpDef& def, const Meta& x, const Tensor& weight, const Meta& out, const void* params) {
  ConvGeometry p = &def == &op_def<Convolution> ? *static_cast<const ConvGeometry*>(params)
                                                : static_cast<const FusedConvolution::Params*>(params)->geometry;
  return conv_call<cpu::ConvCall>(p, x, out, weight.sizes().data() + 2);
}

cpu::GemmCall gemm_of(const OpDef& def, const Meta& x, const Tensor& weight, const Meta& out) {
  const Tensor left = shape_only(x, weight), result = shape_only(out, weight);
  Batches batches;
  auto g = &def == &op_def<Matmul> ? matmul_call<cpu::GemmCall>(left, weight, result, batches)
                                   : linear_call<cpu::GemmCall>(left, weight, Tensor(), result, batches);
  fold(batches, g);
  return g;
}

int64_t bytes_of(const cpu::PackedMatrix& m) { return m.bytes(); }
int64_t bytes_of(const cpu::ConvWeight& w) { return w.bytes(); }

// The first lookup registers the tensor, the second one packs it.
template <class F>
Prepacked keep(F look) {
  auto packed = look();
  if (!packed) packed = look();
  if (!packed) return {0, "the kernel reads it as it lies, or the limit of kept forms is reached"};
  return {bytes_of(*packed), nullptr};
}

}  // namespace

bool has_weight(const OpDef& def) {
  return is_convolution(def) || &def == &op_def<Linear> || &def == &op_def<FusedLinear> || &def == &op_def<Matmul>;
}

Prepacked prepack(const OpDef& def, std::span<const Meta* const> inputs, const Tensor& weight, const Meta& out,
                  const void* params) {
  if (out.numel == 0 || weight.numel() == 0) return {0, "it is empty"};
  if (!weight.device().is_cpu()) return {0, "it is not on the CPU"};
  if (weight.is_inference()) return {0, "it was made in inference mode, so that writes to it are not noticed"};
  if (derived_cache_limit() == 0) return {0, "keeping is switched off"};
  if (is_convolution(def)) {
    const cpu::ConvCall call = conv_of(def, *inputs[0], weight, out, params);
    return keep([&] { return kept_conv_weight(weight, call); });
  }
  const cpu::GemmCall call = gemm_of(def, *inputs[0], weight, out);
  return keep([&] { return kept_right(weight, call); });
}

}  // namespace deft
