// Code with a state of its own - an optimizer's step, an average - inside a function that compile() captures: it runs
// as always, and a replay calls it again. A replay repeats its reads on the host.
#pragma once

#include <functional>
#include <vector>

#include "core/capture_hook.h"

namespace deft::optim {

// The operands of the code: tensors it writes, tensors it only reads, and the gradients of leaves that have one.
struct CapturedCall {
  const char* name;
  std::vector<Tensor> written, read;
  std::vector<Tensor> leaves;
  bool writes_gradients = false;
  Site site;
};

// Notifies the capture of this thread, after the code ran. In a replay `run` finds the gradients in the leaves.
void note_call(CapturedCall call, std::function<void()> run);
// Runs it now, and notifies the capture.
void capture_call(CapturedCall call, std::function<void()> run);

// CaptureError inside a capture, for settings that a replay would not make again.
void check_not_captured(const char* of, const char* what);

// Those that have a gradient.
std::vector<Tensor> with_gradient(const std::vector<Tensor>& params);

}  // namespace deft::optim
