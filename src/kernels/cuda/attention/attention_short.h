// Gradients of attention over short sequences. Internal to attention_backward.cu, which prepares the call.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace deft::cuda {

// A head's queries and keys, all of them.
bool fits_one_block(const AttentionCall& c);
void short_attention_backward(Encoder& e, const AttentionCall& c, const AttentionGrads& grads);

}  // namespace deft::cuda
