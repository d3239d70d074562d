// What this machine can do at most, measured in the run that is compared with it: loops of independent instructions for
// arithmetic, streams through buffers beyond the caches for memory. Instructions are those of the level in use
// (runtime/cpu_isa.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "runtime/dtype.h"

namespace deft::profile {

enum class Arithmetic : uint8_t { f32, f16, bf16, int8 };
const char* name_of(Arithmetic arithmetic);

struct ComputePeak {
  std::string instruction;  // "FMLA 4s"
  double gflops = 0;        // multiplications and additions
};

// none: small buffers and few repeats, only to see that it runs. brief: a few repeats, for reports.
enum class Care : uint8_t { none, brief, full };

// Of `threads` threads together, which the pool must have. Each peak is measured once, when it is first asked for.
class Peaks {
 public:
  Peaks(int threads, Care care);
  ~Peaks();

  const ComputePeak& compute(Arithmetic arithmetic);
  // GB/s of a loop that reads `reads` streams and writes `writes` (0 or 1) at the same pace, all bytes counted.
  double bandwidth(int reads, int writes);
  // The same again, in one batch of about `ns`: next to work that is compared with it, on a machine whose speed moves.
  double compute_now(Arithmetic arithmetic, double ns);  // GFLOP/s
  double bandwidth_now(int reads, int writes, double ns);
  int threads() const { return threads_; }

  // What was measured so far.
  const std::map<Arithmetic, ComputePeak>& computed() const { return compute_; }
  const std::map<std::pair<int, int>, double>& bandwidths() const { return bandwidth_; }

 private:
  int threads_;
  Care care_;
  std::map<Arithmetic, ComputePeak> compute_;
  std::map<std::pair<int, int>, double> bandwidth_;

  struct Streams;
  std::unique_ptr<Streams> streams_;
  std::pair<int, int> streams_of_;
};
std::string mix_name(int reads, int writes);  // "read", "copy", "2 reads, 1 write"

// The roofs of a report; 0 where one is not known.
struct MachinePeaks {
  std::string of;  // name of the device; empty: the processor
  int threads = 1;
  double f32 = 0, f16 = 0, bf16 = 0, int8 = 0;  // GFLOP/s
  double copy = 0, read = 0;                    // GB/s; a copy counts what it reads and what it writes
  double f32_products = 0;                      // of f32 in parts (runtime/numerics.h), where that is more than f32
  double gflops(DType dtype) const;
};
// Of all threads of the pool, with Care::brief; kept for the life of the process.
const MachinePeaks& machine_peaks();

}  // namespace deft::profile
