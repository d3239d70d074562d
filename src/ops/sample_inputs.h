// Inputs made from samples: the same values for the same seed, in any element type and memory layout.
#pragma once

#include "ops/sample.h"

namespace deft {

enum class Layout : uint8_t { contiguous, transposed, sliced, expanded, channels_last };
inline constexpr int kLayoutCount = 5;
const char* name_of(Layout layout);

uint64_t seed_of(std::string_view name);

// One input per Arg; real ones are of `dtype`, rounded to it. An argument that cannot have the layout (a 0-d one is
// never transposed) is contiguous. Expanded inputs repeat their values along one dimension. Values are made on the host
// and do not depend on the device.
Tensors make_inputs(const std::vector<Arg>& args, DType dtype, uint64_t seed, Layout layout = Layout::contiguous,
                    Device device = kCPU);
// Copies of host tensors with the same strides in storages of the same form, bytes beside the elements included.
Tensors on_device(const Tensors& inputs, Device device);
// True if some argument can have the layout, so that it is worth a run.
bool has_layout(const std::vector<Arg>& args, Layout layout);
// Contiguous copies of the inputs on the host, floating and other numbers as f64: what Sample::expect takes. Arguments
// that are no real ones keep their type.
Tensors as_reference(const std::vector<Arg>& args, const Tensors& inputs);

}  // namespace deft
