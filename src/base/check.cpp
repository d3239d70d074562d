#include "base/check.h"

namespace deft::detail {

void fail_internal(const char* condition, const char* file, int line) {
  throw InternalError(
      fmt::format("internal error: `{}` does not hold at {}:{}; please report this", condition, file, line));
}

}  // namespace deft::detail
