// Alone in a file that is compiled anew whenever a header of the library changes.
#include "runtime/identity.h"

#include "runtime/plugin_file.h"

namespace deft {

const char* build_identity() { return DEFT_BUILD_IDENTITY; }

}  // namespace deft
