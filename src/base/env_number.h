// Numbers that users set in the environment.
#pragma once

#include <cstdint>

namespace deft {

// `otherwise` where the variable is not set, and, with a line on stderr, where it is no whole number up to `most`.
uint64_t number_from_env(const char* name, uint64_t otherwise, uint64_t most = UINT64_MAX);

}  // namespace deft
