// Sequences of different lengths side by side: filled up to one length, with masks that say where their tokens are.
#pragma once

#include <span>
#include <vector>

#include "core/tensor.h"

namespace deft::data {

// The longest, rounded up to a multiple; 0 without any.
int64_t padded_length(std::span<const int64_t> lengths, int64_t multiple = 1);

// bool [n, length], true where there is a token; length 0 is that of the longest. models::Bert takes it as it is.
Tensor padding_mask(std::span<const int64_t> lengths, int64_t length = 0);
Tensor padding_mask(const Tensor& lengths, int64_t length = 0);  // Batch::lengths(); on their device
// The same for scaled_dot_product_attention: [n, 1, 1, length], true where a key takes part.
Tensor attention_mask(const Tensor& mask);
// The same for nn::MultiheadAttention, whose key_padding_mask is true where a key is hidden.
Tensor hidden_keys(const Tensor& mask);

struct PadOptions {
  double pad = 0;
  int64_t multiple = 1;  // of the length
  int64_t length = 0;    // 0: of the longest
};
struct PaddedBatch {
  Tensor values;  // [n, length, ...]
  Tensor mask;    // padding_mask(lengths, length)
  std::vector<int64_t> lengths;
};
// Sequences [length, ...] that agree in all sizes but the first, in type and device.
PaddedBatch pad_sequences(const std::vector<Tensor>& sequences, const PadOptions& options = {},
                          Site site = Site::current());
// A batch [n, length, ...] filled up to a longer one.
Tensor pad_to(const Tensor& batch, int64_t length, double pad = 0, Site site = Site::current());

}  // namespace deft::data
