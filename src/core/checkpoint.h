// Trades time for memory: a part of the forward pass saves nothing but its inputs and is recomputed in backward.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"

namespace deft {

using Tensors = std::vector<Tensor>;

// f(inputs), recorded without what its ops would save: on first need in backward f runs again, with the same random
// numbers, modes and autocast. f must do the same both times. Gradients are equal to the plain call's, bit for bit.
// Checkpoints nest; with gradients off this is a plain call.
Tensors checkpoint(std::function<Tensors(const Tensors&)> f, const Tensors& inputs, Site site = Site::current());

// One call of checkpoint(): shared by the slots of all nodes recorded in it. See Note [Deferred saving] in
// checkpoint.cpp.
struct CheckpointFrame;
struct SavedTensor;
namespace detail {
// The checkpoint that is being recorded or recomputed on this thread.
extern constinit thread_local CheckpointFrame* recording_frame __attribute__((tls_model("initial-exec")));
// Called by SavedTensor. frame_takes: true if the frame takes the tensor; false to keep it as usual.
bool frame_takes(CheckpointFrame& frame, SavedTensor& slot, TensorImpl& t);
void frame_forget(CheckpointFrame& frame, uint32_t entry) noexcept;
SavedTensor& frame_entry(CheckpointFrame& frame, uint32_t entry);
}  // namespace detail

}  // namespace deft
