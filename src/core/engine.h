// Backward: runs recorded nodes in descending sequence order on the calling thread.
#pragma once

#include <span>
#include <vector>

#include "core/tensor.h"

namespace deft {

// Adds d(sum of roots . gradients)/d(leaf) to .grad of every leaf. Undefined gradients mean ones (scalar roots only).
void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients = {}, BackwardOptions options = {},
              Site site = Site::current());
inline void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {},
                     BackwardOptions options = {}, Site site = Site::current()) {
  backward(std::span<const Tensor>(roots), std::span<const Tensor>(gradients), options, site);
}

// Gradients of `outputs` with respect to `inputs`, as values; .grad is not touched. With allow_unused, inputs that do
// not take part give undefined tensors; otherwise that is a GradError.
struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;
};
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients = {}, GradOptions options = {},
                         Site site = Site::current());

// True while this thread runs a backward pass.
bool in_backward();

}  // namespace deft
