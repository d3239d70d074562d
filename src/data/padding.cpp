#include "data/padding.h"

#include <algorithm>

#include "base/check.h"
#include "core/observer.h"
#include "ops/creation.h"
#include "ops/unary.h"

namespace deft::data {

int64_t padded_length(std::span<const int64_t> lengths, int64_t multiple) {
  DEFT_CHECK(multiple > 0, ValueError, "padded_length: lengths cannot be multiples of {}", multiple);
  int64_t longest = 0;
  for (int64_t length : lengths) longest = std::max(longest, length);
  return (longest + multiple - 1) / multiple * multiple;
}

Tensor padding_mask(std::span<const int64_t> lengths, int64_t length) {
  int64_t longest = padded_length(lengths), columns = length > 0 ? length : longest;
  DEFT_CHECK(longest <= columns, ValueError, "padding_mask: a sequence has {} tokens, which is more than {}", longest,
             columns);
  Tensor mask = zeros({static_cast<int64_t>(lengths.size()), columns}, DType::boolean);
  bool* row = mask.data<bool>();
  for (int64_t n : lengths) {
    DEFT_CHECK(n >= 0, ValueError, "padding_mask: a sequence has {} tokens", n);
    std::fill_n(row, n, true);
    row += columns;
  }
  return mask;
}

Tensor padding_mask(const Tensor& lengths, int64_t length) {
  DEFT_CHECK(lengths.defined() && lengths.dim() == 1 && lengths.dtype() == DType::i64, ValueError,
             "padding_mask: takes lengths as i64 [n]");
  return padding_mask(lengths.to_vector<int64_t>(), length).to(lengths.device());
}

Tensor attention_mask(const Tensor& mask) { return mask.unsqueeze(1).unsqueeze(1); }
Tensor hidden_keys(const Tensor& mask) { return logical_not(mask); }

PaddedBatch pad_sequences(const std::vector<Tensor>& sequences, const PadOptions& options, Site site) {
  SiteScope scope(site);
  DEFT_CHECK(!sequences.empty(), ValueError, "pad_sequences: there is no sequence to fill up");
  PaddedBatch out;
  for (const Tensor& s : sequences) {
    DEFT_CHECK(s.defined() && s.dim() >= 1, ShapeError, "pad_sequences: takes sequences [length, ...]");
    out.lengths.push_back(s.size(0));
  }
  int64_t longest = padded_length(out.lengths, options.multiple), length = std::max(options.length, longest);
  DEFT_CHECK(options.length == 0 || options.length >= longest, ValueError,
             "pad_sequences: a sequence needs {} places, which is more than the length {} asked for", longest,
             options.length);
  const Tensor& first = sequences.front();
  Shape sizes = first.sizes();
  sizes[0] = length;
  sizes.insert(0, static_cast<int64_t>(sequences.size()));
  out.values = full(sizes, options.pad, {first.dtype(), first.device()});
  for (size_t i = 0; i < sequences.size(); ++i)
    out.values.select(0, static_cast<int64_t>(i)).narrow(0, 0, out.lengths[i]).copy_(sequences[i]);
  out.mask = padding_mask(out.lengths, length);
  if (Observer* o = observer()) o->padded(out.lengths, length * sizes[0], effective_site(site));
  return out;
}

Tensor pad_to(const Tensor& batch, int64_t length, double pad, Site site) {
  SiteScope scope(site);
  DEFT_CHECK(batch.defined() && batch.dim() >= 2 && batch.size(1) <= length, ShapeError,
             "pad_to: a batch [n, length, ...] of at most {} tokens is needed, found {}", length,
             batch.defined() ? to_string(batch.sizes()) : "an undefined tensor");
  if (batch.size(1) == length) return batch;
  Shape sizes = batch.sizes();
  sizes[1] = length;
  Tensor out = full(sizes, pad, {batch.dtype(), batch.device()});
  out.narrow(1, 0, batch.size(1)).copy_(batch);
  if (Observer* o = observer()) {
    const std::vector<int64_t> lengths(static_cast<size_t>(batch.size(0)), batch.size(1));
    o->padded(lengths, length * batch.size(0), effective_site(site));
  }
  return out;
}

}  // namespace deft::data
