// One thread pool for everything. Its threads run with the caller's execution context.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/function_ref.h"
#include "base/site.h"

namespace deft {

// Threads the pool uses, the calling thread included. Chosen as min(affinity, cgroup quota, physical cores),
// or DEFT_NUM_THREADS, or the last set_num_threads().
int num_threads();
// Takes effect on the next parallel_for; 1 <= n <= 1024, else ValueError.
void set_num_threads(int n, Site site = Site::current());

namespace detail {
extern std::atomic<int> pool_threads;  // 0: not chosen yet
void parallel_for_slow(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);
}  // namespace detail

// Splits [begin, end) into at most num_threads() contiguous ranges of at least `grain` items and runs
// body(range_begin, range_end) on each. The split depends only on (begin, end, grain, num_threads()), also where the
// ranges run one after the other: in nested calls, and while another thread has the pool.
// The first exception that a range throws is rethrown here after the running ranges ended; the others are skipped.
inline void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (end - begin <= grain || detail::pool_threads.load(std::memory_order_relaxed) == 1) {
    if (begin < end) body(begin, end);
    return;
  }
  detail::parallel_for_slow(begin, end, grain, body);
}

// parallel_for with work stealing: each thread works through its own contiguous part, an eighth of it at a time, and
// then steals eighths from the end of the others' parts. A core that neighbours slow down does less, instead of all
// waiting for it. The pieces themselves depend on the arguments and num_threads() only.
void parallel_balanced(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// True inside the body of parallel_for (nested parallelism then runs inline).
bool in_parallel_region();

// While it lives, this thread runs all ranges itself: for threads that are one of many already.
class SerialScope {
 public:
  SerialScope();
  ~SerialScope();
  SerialScope(const SerialScope&) = delete;
  SerialScope& operator=(const SerialScope&) = delete;

 private:
  bool outer_;
};

// Why num_threads() is what it is; printed by `deft info`.
struct ThreadChoice {
  int threads = 1;
  int affinity = 0;         // CPUs this process may run on
  double cgroup_quota = 0;  // CPUs' worth of quota; 0 = no limit
  int physical_cores = 0;   // physical cores among the affinity set
  int from_env = 0;         // DEFT_NUM_THREADS, 0 = not set
};
ThreadChoice thread_choice();
// Where set_num_threads() was called last; line 0: nowhere yet.
Site threads_set_at();

}  // namespace deft
