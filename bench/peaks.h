// Peaks of the machine (profile/peaks.h) as benchmarks report them.
#pragma once

#include <vector>

#include "bench/machine.h"
#include "profile/peaks.h"

namespace deft::bench {

using profile::Arithmetic;
using profile::ComputePeak;
using profile::mix_name;
using profile::name_of;

class Peaks : public profile::Peaks {
 public:
  // `quick`: only to see that it runs.
  Peaks(int threads, bool quick) : profile::Peaks(threads, quick ? profile::Care::none : profile::Care::full) {}

  // What was measured so far, one object each: {"peak": "f32 FMLA 4s", "threads": 1, "gflops": ..., "gb_per_s": ...}.
  std::vector<Json> to_json() const;
};

}  // namespace deft::bench
