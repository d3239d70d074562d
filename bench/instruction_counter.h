// Exact user-space instructions per call. Repeatable where times are not, so that a test can hold a limit.
#pragma once

#include <cstdint>
#include <optional>

#include "base/function_ref.h"

namespace deft::bench {

enum class InstructionCounter : uint8_t {
  perf,    // the CPU's own counter
  ptrace,  // a forked child, single-stepped
  none,
};
// What works on this machine; found out once.
InstructionCounter instruction_counter();
const char* name_of(InstructionCounter counter);

// Instructions of one iteration of `loop` in steady state: two counts, differing in iterations only, subtracted.
// The calling thread must be the only one. Nothing where neither way works, or `loop` is too long to step through.
std::optional<double> instructions_per_call(FunctionRef<void(int64_t)> loop);

}  // namespace deft::bench
