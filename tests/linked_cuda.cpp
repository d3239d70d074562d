// Makes the CUDA backend that is linked into a test the one that Deft uses.
#include "runtime/device_plugin.h"

namespace {

[[gnu::constructor]] void use_it() { deft::detail::use_linked_plugin(deft_cuda_plugin()); }

}  // namespace
