#include "core/describe.h"

#include "runtime/context.h"

namespace deft {

std::string describe(const Meta& meta) {
  if (!meta.defined) return "(undefined)";
  std::string s = to_string(meta.sizes) + " " + std::string(name_of(meta.dtype));
  if (!meta.device.is_cpu()) s += " on " + to_string(meta.device);
  return s;
}

std::string describe_grad_mode() {
  const ExecContext& c = context();
  if (c.bits & kInference) return "inference_mode is on since " + to_string(c.grad_site);
  if (c.bits & kGradOff) return "grad mode was turned off at " + to_string(c.grad_site);
  return "";
}

}  // namespace deft
