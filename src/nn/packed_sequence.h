// Sequences of several lengths in one tensor without padding, for recurrent layers.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace deft::nn {

struct PackedSequence {
  Tensor data;                       // [all steps, ...]: the rows of step 0, then those of step 1, ...
  std::vector<int64_t> batch_sizes;  // rows of each step, never rising
  // Row i of the batch here was row sorted_indices[i], and row i there is row unsorted_indices[i] here. Empty where the
  // order is the same.
  std::vector<int64_t> sorted_indices, unsorted_indices;

  int64_t batch() const { return batch_sizes.empty() ? 0 : batch_sizes[0]; }
  std::vector<int64_t> lengths() const;  // of each row, in the order they were given in
  void check(const char* who) const;     // throws unless all this fits together
};

// input [steps, batch, ...], with batch_first [batch, steps, ...]: only the first lengths[i] steps of row i are read,
// at least one. The longest comes first unless enforce_sorted is off.
PackedSequence pack_padded_sequence(const Tensor& input, const std::vector<int64_t>& lengths, bool batch_first = false,
                                    bool enforce_sorted = true, Site site = Site::current());
// The padded tensor, of the longest sequence's or of total_length steps, and the lengths.
std::pair<Tensor, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& sequence, bool batch_first = false,
                                                            double padding_value = 0,
                                                            std::optional<int64_t> total_length = {},
                                                            Site site = Site::current());

}  // namespace deft::nn
