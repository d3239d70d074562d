// Views among the inputs of a recorded in-place write.
#pragma once

#include "core/tensor_impl.h"

namespace deft {

// After rebase_history(): a view of `written` was read between the write and that call, when the base still had its old
// history. It takes its own from the base again.
inline void mark_stale(TensorImpl& input, const TensorImpl& written) {
  if (&input == &written || !input.base || input.storage != written.storage) return;
  input.view_version.store(input.storage->current_version() - 1, std::memory_order_relaxed);
}

}  // namespace deft
