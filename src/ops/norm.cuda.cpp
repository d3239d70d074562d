#include "kernels/cuda/norm/layer_norm.h"

#include "ops/norm_common.h"

namespace deft {

namespace {

using ForwardFn = void (*)(cuda::Encoder&, const cuda::NormCall&);
using BackwardFn = void (*)(cuda::Encoder&, const cuda::NormBackwardCall&);

void forward(KernelCall& c, const LayerNorm::Params& p, bool layer, ForwardFn kernel) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  norms::run_forward<cuda::NormCall>(c, p, layer, [&](const cuda::NormCall& call) { kernel(e, call); });
}
void backward(KernelCall& c, const LayerNormBackward::Params& p, bool layer, BackwardFn kernel) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  norms::run_backward<cuda::NormBackwardCall>(c, p, layer,
                                              [&](const cuda::NormBackwardCall& call) { kernel(e, call); });
}

}  // namespace

void LayerNorm::cuda(KernelCall& c) { forward(c, c.params<LayerNorm>(), true, cuda::layer_norm); }
void RmsNorm::cuda(KernelCall& c) { forward(c, c.params<RmsNorm>(), false, cuda::rms_norm); }
void LayerNormBackward::cuda(KernelCall& c) {
  backward(c, c.params<LayerNormBackward>(), true, cuda::layer_norm_backward);
}
void RmsNormBackward::cuda(KernelCall& c) { backward(c, c.params<RmsNormBackward>(), false, cuda::rms_norm_backward); }

}  // namespace deft
