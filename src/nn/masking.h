// Padded sequences in layers and losses: values in places without a token have no influence.
// Masks are bool [n, length], true where there is a token: data::padding_mask().
#pragma once

#include "core/tensor.h"

namespace deft::nn {

// x [n, length, ...] with zeros where there is no token, in the result and in the gradient. NaN in a padded input must
// be stopped here, before the first layer: the gradient of a weight adds up 0 * NaN.
Tensor mask_padding(const Tensor& x, const Tensor& mask, Site site = Site::current());

// Mean over the tokens of each row: [n, length, ...] -> [n, ...]. Zeros for a row without tokens.
Tensor masked_mean(const Tensor& x, const Tensor& mask, Site site = Site::current());

// The tokens of all rows, one after the other: [n, length, ...] -> [tokens, ...], and back with zeros between them.
// Layers that combine several tokens, for example BatchNorm1d, are right on packed tokens.
Tensor take_tokens(const Tensor& x, const Tensor& mask, Site site = Site::current());
Tensor put_tokens(const Tensor& tokens, const Tensor& mask, Site site = Site::current());

// How many targets (i64) count.
int64_t count_tokens(const Tensor& targets, int64_t ignore_index = -100);

// Cross entropy of logits [..., classes] and targets [...]: the sum over the targets that count, divided by `tokens`.
// With the count of all micro-batches of a step, their gradients add up to those of the whole batch; a mean of their
// means would not, since they differ in tokens.
Tensor token_cross_entropy(const Tensor& logits, const Tensor& targets, int64_t tokens, int64_t ignore_index = -100,
                           Site site = Site::current());

}  // namespace deft::nn
