#include "nn/masking.h"

#include "base/check.h"
#include "core/describe.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace deft::nn {

namespace {

void check_mask(const Tensor& x, const Tensor& mask, const char* name) {
  DEFT_CHECK(x.defined() && mask.defined(), ValueError, "{}: the tensor or its mask is undefined", name);
  DEFT_CHECK(mask.dtype() == DType::boolean && mask.dim() == 2, ShapeError,
             "{}: the mask is {}, expected bool [n, length]", name, deft::describe(mask.meta()));
  DEFT_CHECK(x.dim() >= 2 && x.size(0) == mask.size(0) && x.size(1) == mask.size(1), ShapeError,
             "{}: a mask of shape {} does not fit a tensor of shape {}, expected [{}, {}, ...]", name,
             to_string(mask.sizes()), to_string(x.sizes()), mask.size(0), mask.size(1));
}

// The mask with as many dimensions as x.
Tensor widened(const Tensor& mask, const Tensor& x) {
  Shape sizes = mask.sizes();
  sizes.resize(x.dim(), 1);
  return mask.view(sizes);
}

Tensor token_places(const Tensor& mask) { return nonzero(mask.reshape({-1})).view({-1}); }

// [count, ...] from the sizes of x, whose first `dims` dimensions are gone.
Shape sizes_after(const Tensor& x, int dims, IntList first) {
  Shape sizes(first);
  for (int i = dims; i < x.dim(); ++i) sizes.push_back(x.size(i));
  return sizes;
}

}  // namespace

Tensor mask_padding(const Tensor& x, const Tensor& mask, Site site) {
  SiteScope scope(site);
  check_mask(x, mask, "mask_padding");
  return x.masked_fill(logical_not(widened(mask, x)), 0);
}

Tensor masked_mean(const Tensor& x, const Tensor& mask, Site site) {
  SiteScope scope(site);
  Tensor sum = mask_padding(x, mask).sum({1});
  Tensor count = mask.to(sum.dtype()).sum({1}).clamp(1, {});
  return sum / widened(count, sum);
}

Tensor take_tokens(const Tensor& x, const Tensor& mask, Site site) {
  SiteScope scope(site);
  check_mask(x, mask, "take_tokens");
  return index_select(x.reshape(sizes_after(x, 2, {mask.numel()})), 0, token_places(mask));
}

Tensor put_tokens(const Tensor& tokens, const Tensor& mask, Site site) {
  SiteScope scope(site);
  DEFT_CHECK(tokens.defined() && tokens.dim() >= 1 && mask.defined() && mask.dtype() == DType::boolean, ValueError,
             "put_tokens: takes tokens [tokens, ...] and a bool mask");
  Tensor places = token_places(mask);
  DEFT_CHECK(places.numel() == tokens.size(0), ShapeError, "put_tokens: {} tokens for a mask with room for {}",
             tokens.size(0), places.numel());
  Tensor rows = zeros(sizes_after(tokens, 1, {mask.numel()}), {tokens.dtype(), tokens.device()});
  return index_add(rows, 0, places, tokens).view(sizes_after(tokens, 1, mask.sizes()));
}

int64_t count_tokens(const Tensor& targets, int64_t ignore_index) {
  return static_cast<int64_t>(ne(targets, ignore_index).sum().item());
}

Tensor token_cross_entropy(const Tensor& logits, const Tensor& targets, int64_t tokens, int64_t ignore_index,
                           Site site) {
  SiteScope scope(site);
  DEFT_CHECK(tokens > 0, ValueError,
             "token_cross_entropy: the step has {} tokens, expected some; skip steps without targets", tokens);
  DEFT_CHECK(
      logits.defined() && targets.defined() && logits.dim() >= 1 && logits.numel() == targets.numel() * logits.size(-1),
      ShapeError, "token_cross_entropy: takes logits [..., classes] and targets [...]");
  Tensor sum = cross_entropy(logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}),
                             {.ignore_index = ignore_index, .reduction = Reduction::sum});
  return sum / static_cast<double>(tokens);
}

}  // namespace deft::nn
