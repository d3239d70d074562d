#include "core/describe.h"

#include "runtime/context.h"

namespace deft {

std::string describe(const Meta& meta) {
  if (!meta.defined) return "(undefined)";
  std::string s = to_string(meta.sizes) + " " + std::string(name_of(meta.dtype));
  if (!meta.device.is_cpu()) s += " on " + to_string(meta.device);
  return s;
}

std::string describe_missing_graph(const TensorImpl& t) {
  if (t.base) {
    std::string made = "it is a view made at " + to_string(t.site);
    if (t.view_origin == ViewOrigin::no_grad) return made + " with gradients off";
    if (t.view_origin == ViewOrigin::inference) return made + " inside inference_mode";
    return made + " of a tensor that does not require grad";
  }
  if (t.has(kInferenceTensor)) {
    if (!t.has(kMadeWithGradOff)) return "it was made inside inference_mode";
    return "it was made inside inference_mode, entered at " + to_string(t.site);
  }
  if (t.has(kMadeWithGradOff)) return "it was made with gradients off, turned off at " + to_string(t.site);
  if (t.has(kDetached)) return "it was cut off by detach() at " + to_string(t.site);
  const ExecContext& c = context();
  if (c.bits & kInference) return "inference_mode is on, entered at " + to_string(c.grad_site);
  if (c.bits & kGradOff) return "gradients are off, turned off at " + to_string(c.grad_site);
  return "no input of the op that made it requires grad; call requires_grad_() on the tensors to be trained";
}

}  // namespace deft
