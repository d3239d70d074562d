// Connectionist temporal classification: losses of label sequences that are not aligned with the steps of the input.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "ops/loss.h"

namespace deft::nn {

struct CtcLossOptions {
  int64_t blank = 0;                      // the class that means "no label"
  Reduction reduction = Reduction::mean;  // mean: each loss is first divided by its number of labels
  bool zero_infinity = false;             // 0 for samples that no alignment fits, which else have an infinite loss
};

// The negative log likelihood of each sample's labels under all their alignments. log_probs: [steps, batch, classes],
// as log_softmax() gives them; steps[i] of them belong to sample i. Runs on the CPU, one sample per thread.
Tensor ctc_loss(const Tensor& log_probs, const std::vector<std::vector<int64_t>>& labels,
                const std::vector<int64_t>& steps, const CtcLossOptions& options = {}, Site site = Site::current());

}  // namespace deft::nn
