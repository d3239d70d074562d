// Attention on CUDA devices: 16-bit floats.
#include "kernels/cuda/attention/attention.h"

#include "ops/attention_common.h"

namespace deft {

void ScaledDotProductAttention::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  heads::run<cuda::AttentionCall>(c, [&](const cuda::AttentionCall& call) { cuda::attention_forward(e, call); });
}
void ScaledDotProductAttentionBackward::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  heads::run_backward<cuda::AttentionCall, cuda::AttentionGrads>(
      c, [&](const cuda::AttentionCall& call, const cuda::AttentionGrads& grads) {
        cuda::attention_backward(e, call, grads);
      });
}

}  // namespace deft
