// Views among the inputs of a recorded in-place write.
#pragma once

#include "core/tensor_impl.h"

namespace deft {

// After rebase_history(): a view of `written` was looked at between the write and that, when the base had its old
// history still. It takes its own from the base anew.
inline void mark_stale(TensorImpl& input, const TensorImpl& written) {
  if (&input == &written || !input.base || input.storage != written.storage) return;
  input.view_version.store(input.storage->current_version() - 1, std::memory_order_relaxed);
}

}  // namespace deft
