// Other programs on the other half of this core. On a shared machine they come and go within tenths of a second; while
// they run, a core decodes half as many instructions for us, which a loop of multiplications (the peak) does not notice
// and real work does: 130 GFLOP/s of a GEMM become 90. So measurements wait for a quiet moment.
#pragma once

#include <chrono>
#include <vector>

namespace deft::bench {

// Whether this processor lends halves of its cores, and we can tell.
#if defined(__x86_64__)
inline constexpr bool kKnowsNeighbours = true;
#else
inline constexpr bool kKnowsNeighbours = false;
#endif

class Neighbours {
 public:
  explicit Neighbours(int threads);

  // Returns when the cores of all threads are their own, or after a while; it waits four minutes at most in its life.
  void wait_for_quiet();
  bool quiet();
  double waited_s() const { return std::chrono::duration<double>(waited_).count(); }

 private:
  int threads_;
  std::vector<double> looks_;  // the latest: instructions a cycle
  size_t next_ = 0;
  double most_ = 0;  // when the cores are their own
  std::chrono::steady_clock::duration waited_{};
};

}  // namespace deft::bench
