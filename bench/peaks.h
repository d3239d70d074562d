// What this machine can do at most, measured in the run that is compared with it: loops of independent instructions for
// arithmetic, streams through buffers beyond the caches for memory. Instructions are those of the level in use
// (runtime/cpu_isa.h).
#pragma once

#include <map>
#include <string>
#include <utility>

#include "bench/machine.h"

namespace deft::bench {

enum class Arithmetic : uint8_t { f32, f16, bf16, int8 };

struct ComputePeak {
  std::string instruction;  // "FMLA 4s"
  double gflops = 0;        // multiplications and additions
};

// Of `threads` threads together. Each peak is measured once, when it is first asked for.
class Peaks {
 public:
  // `quick`: small buffers and few repeats, for tests of the command line.
  Peaks(int threads, bool quick) : threads_(threads), quick_(quick) {}

  const ComputePeak& compute(Arithmetic arithmetic);
  // GB/s of a loop that reads `reads` streams and writes `writes` (0 or 1) at the same pace, all bytes counted.
  double bandwidth(int reads, int writes);
  int threads() const { return threads_; }

  // What was measured so far, one object each: {"peak": "f32 FMLA 4s", "threads": 1, "gflops": ..., "gb_per_s": ...}.
  std::vector<Json> to_json() const;

 private:
  int threads_;
  bool quick_;
  std::map<Arithmetic, ComputePeak> compute_;
  std::map<std::pair<int, int>, double> bandwidth_;
};

const char* name_of(Arithmetic arithmetic);
std::string mix_name(int reads, int writes);  // "read", "copy", "2 reads, 1 write"

}  // namespace deft::bench
