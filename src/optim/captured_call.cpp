#include "optim/captured_call.h"

#include <mutex>

#include "base/check.h"
#include "core/leaf_state.h"

namespace deft::optim {

namespace {

// Puts gradients into leaves, and back what was there. Memory is not counted as that of gradients: a plan owns it.
class LentGradients {
 public:
  LentGradients(const std::vector<Tensor>& leaves, std::span<const Tensor> gradients) : leaves_(leaves) {
    before_.reserve(leaves.size());
    for (size_t i = 0; i < leaves.size(); ++i) before_.push_back(exchange(leaves[i], gradients[i]));
  }
  ~LentGradients() {
    for (size_t i = 0; i < before_.size(); ++i) exchange(leaves_[i], before_[i]);
  }
  LentGradients(const LentGradients&) = delete;
  LentGradients& operator=(const LentGradients&) = delete;

 private:
  static Tensor exchange(const Tensor& leaf, const Tensor& gradient) {
    LeafState& state = leaf_state(*leaf.impl());
    std::lock_guard lock(state.mutex);
    if (gradient.defined()) gradient.impl()->retain();
    return Tensor(ImplPtr::adopt(std::exchange(state.grad, gradient.impl())));
  }
  const std::vector<Tensor>& leaves_;
  std::vector<Tensor> before_;
};

}  // namespace

void note_call(CapturedCall call, std::function<void()> run) {
  std::vector<Tensor> gradients;
  for (const Tensor& leaf : call.leaves) gradients.push_back(leaf.grad());
  std::vector<Tensor> tensors = std::move(call.written);
  auto add = [&](const std::vector<Tensor>& more) { tensors.insert(tensors.end(), more.begin(), more.end()); };
  if (call.writes_gradients) add(gradients);
  const size_t written = tensors.size();
  if (!call.writes_gradients) add(gradients);
  const size_t first = call.writes_gradients ? written - gradients.size() : written;
  add(call.read);
  auto again = [leaves = std::move(call.leaves), first, run = std::move(run)](std::span<const Tensor> given) {
    LentGradients lent(leaves, given.subspan(first, leaves.size()));
    run();
  };
  active_capture()->outside_call(call.name, tensors, written, std::move(again), call.site);
}

void capture_call(CapturedCall call, std::function<void()> run) {
  {
    deft::detail::CapturePause pause;
    run();
  }
  note_call(std::move(call), std::move(run));
}

void check_not_captured(const char* of, const char* what) {
  DEFT_CHECK(!(context().bits & kCapture), CaptureError,
             "{}: {}() inside a compiled function would run in the first call only; call it outside", of, what);
}

std::vector<Tensor> with_gradient(const std::vector<Tensor>& params) {
  std::vector<Tensor> found;
  for (const Tensor& p : params)
    if (p.requires_grad() && p.grad().defined()) found.push_back(p);
  return found;
}

}  // namespace deft::optim
