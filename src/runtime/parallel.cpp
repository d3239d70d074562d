// Note [Pool]: one job at a time. Its ranges are claimed one by one from `ticket` by the workers and by the caller, so
// a worker that wakes late costs nothing: the caller has run its range. A claimed range keeps the job alive until it is
// counted off `pending`; the fields of `job` are read only in between. Idle threads spin for at most
// 50 us and then sleep on a futex. A caller that finds the pool taken runs its ranges itself.
#include "runtime/parallel.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "base/check.h"
#include "runtime/context.h"
#include "runtime/cpu_info.h"

namespace deft {

namespace {

constexpr int kMaxThreads = 1024;
constexpr auto kSpinTime = std::chrono::microseconds(50);
using Futex = std::atomic<uint32_t>;
static_assert(sizeof(Futex) == sizeof(uint32_t));
std::atomic<Site> set_at{};

void futex_wait(Futex& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake(Futex& word, int count) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0); }

void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` is a no-op on most cores
#endif
}
template <class Ready>
bool spin_until(Ready ready) {
  auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      relax_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// The i-th of `count` ranges; the first ones are one item longer where it does not divide.
struct Split {
  int64_t begin, length, extra;
  Split(int64_t b, int64_t e, int64_t count) : begin(b), length((e - b) / count), extra((e - b) % count) {}
  std::pair<int64_t, int64_t> range(int64_t i) const {
    int64_t first = begin + i * length + std::min(i, extra);
    return {first, first + length + (i < extra)};
  }
};

struct Job {
  const FunctionRef<void(int64_t, int64_t)>* body;
  const Split* split;
  ExecContext context;
  std::exception_ptr error;  // written by the thread that set `failed` first
  std::atomic<bool> failed{false};
};

struct Pool {
  std::atomic<bool> taken{false};
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> ticket{0};  // low half: ranges in the job; high half: ranges claimed
  alignas(64) Futex pending{0};                 // ranges not finished
  Futex caller_sleeps{0};
  alignas(64) Futex epoch{0};  // jobs published; idle workers sleep on it
  std::atomic<int> sleepers{0};
  std::atomic<int> workers{0};  // changed by the owner of `taken`
  pthread_t threads[kMaxThreads] = {};
};
constinit Pool pool;
constinit thread_local bool in_parallel = false;

Job& job() {
  static Job* j = new Job;  // never destroyed: workers may outlive static destruction
  return *j;
}

// Claims an unclaimed range: its number, or -1.
int claim() {
  uint32_t t = pool.ticket.load(std::memory_order_acquire);
  while (t >> 16 < (t & 0xffff)) {
    if (pool.ticket.compare_exchange_weak(t, t + 0x10000, std::memory_order_acquire)) return static_cast<int>(t >> 16);
  }
  return -1;
}
bool work_waits() {
  uint32_t t = pool.ticket.load(std::memory_order_relaxed);
  return t >> 16 < (t & 0xffff) || pool.stop.load(std::memory_order_relaxed);
}

void run_range(Job& j, int i) {
  if (!j.failed.load(std::memory_order_relaxed)) {
    try {
      auto [first, last] = j.split->range(i);
      (*j.body)(first, last);
    } catch (...) {
      if (!j.failed.exchange(true, std::memory_order_relaxed)) j.error = std::current_exception();
    }
  }
  if (pool.pending.fetch_sub(1) == 1 && pool.caller_sleeps.load()) futex_wake(pool.pending, 1);
}

void work_until_idle() {
  for (int i = claim(); i >= 0; i = claim()) {
    Job& j = job();
    ContextGuard guard(j.context);
    run_range(j, i);
  }
}

void* worker_main(void*) {
  in_parallel = true;
  while (!pool.stop.load(std::memory_order_acquire)) {
    uint32_t epoch = pool.epoch.load();
    work_until_idle();
    if (spin_until(work_waits)) continue;
    pool.sleepers.fetch_add(1);
    if (!work_waits()) futex_wait(pool.epoch, epoch);
    pool.sleepers.fetch_sub(1);
  }
  return nullptr;
}

// Lets `count` workers see that there is work. Spinning workers need no waking: a job of fewer ranges than there are
// workers leaves some asleep, and waking them for nothing costs more than a small job.
void wake_workers(int count) {
  pool.epoch.fetch_add(1);
  int asleep = pool.sleepers.load(), awake = pool.workers.load(std::memory_order_relaxed) - asleep;
  if (asleep > 0 && awake < count) futex_wake(pool.epoch, count - awake);
}

// A thread that outlives main() may be in the middle of a job: then the workers are left to it. Once `taken` is ours it
// stays so, and what comes later runs on its caller's thread.
struct JoinAtExit {
  ~JoinAtExit() {
    pool.stop.store(true);
    if (pool.taken.exchange(true)) return;
    pool.epoch.fetch_add(1);
    futex_wake(pool.epoch, kMaxThreads);
    for (int i = pool.workers.exchange(0) - 1; i >= 0; --i) {
      if (!pthread_equal(pool.threads[i], pthread_self())) pthread_join(pool.threads[i], nullptr);
    }
  }
};

// The child of fork() has no workers and starts its own.
void forget_workers() {
  pool.workers.store(0);
  pool.ticket.store(0);
  pool.pending.store(0);
  pool.caller_sleeps.store(0);
  pool.sleepers.store(0);
  pool.taken.store(false);
}

// Starts as many as the system allows: with fewer workers the caller runs more ranges.
void start_workers(int wanted) {
  static JoinAtExit join_at_exit;
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, forget_workers);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the program's own threads
  int have = pool.workers.load();
  while (have < wanted && pthread_create(&pool.threads[have], nullptr, worker_main, nullptr) == 0) {
    pthread_setname_np(pool.threads[have], "deft");
    pool.workers.store(++have);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void wait_for_ranges() {
  auto done = [] { return pool.pending.load(std::memory_order_acquire) == 0; };
  if (spin_until(done)) return;
  pool.caller_sleeps.store(1);
  for (uint32_t left = pool.pending.load(); left != 0; left = pool.pending.load()) futex_wait(pool.pending, left);
  pool.caller_sleeps.store(0, std::memory_order_relaxed);
}

void run_in_pool(const Split& split, int count, const FunctionRef<void(int64_t, int64_t)>& body) {
  if (pool.workers.load(std::memory_order_relaxed) < count - 1) start_workers(count - 1);
  Job& j = job();
  j.body = &body;
  j.split = &split;
  j.context = context();
  j.failed.store(false, std::memory_order_relaxed);
  pool.pending.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
  pool.ticket.store(static_cast<uint32_t>(count), std::memory_order_release);
  wake_workers(count - 1);
  {
    SerialScope serial;
    for (int i = claim(); i >= 0; i = claim()) run_range(j, i);
  }
  wait_for_ranges();
  std::exception_ptr error = std::exchange(j.error, nullptr);
  pool.taken.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(std::move(error));
}

bool take_pool() {
  if (pool.stop.load(std::memory_order_relaxed) || pool.taken.exchange(true)) return false;
  if (!pool.stop.load()) return true;
  pool.taken.store(false);  // the program ended in between
  return false;
}

void run_in_turn(const Split& split, int count, const FunctionRef<void(int64_t, int64_t)>& body) {
  SerialScope serial;
  for (int i = 0; i < count; ++i) {
    auto [first, last] = split.range(i);
    body(first, last);
  }
}

}  // namespace

namespace detail {

constinit std::atomic<int> pool_threads{0};

void parallel_for_slow(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  int64_t items = end - begin;
  if (items <= 0) return;
  int count = static_cast<int>(std::min<int64_t>(num_threads(), items / std::max<int64_t>(grain, 1)));
  if (count <= 1) return body(begin, end);
  Split split(begin, end, count);
  bool own_pool = !in_parallel && take_pool();
  own_pool ? run_in_pool(split, count, body) : run_in_turn(split, count, body);
}

}  // namespace detail

namespace {

// The unclaimed pieces of one thread's part: low half the first, high half the one after the last.
struct alignas(64) Part {
  std::atomic<uint64_t> left{0};
  int64_t take_first() {
    uint64_t now = left.load(std::memory_order_relaxed);
    while (static_cast<uint32_t>(now) < now >> 32) {
      if (left.compare_exchange_weak(now, now + 1, std::memory_order_relaxed)) return static_cast<uint32_t>(now);
    }
    return -1;
  }
  int64_t take_last() {
    uint64_t now = left.load(std::memory_order_relaxed);
    while (static_cast<uint32_t>(now) < now >> 32) {
      const uint64_t less = now - (uint64_t{1} << 32);
      if (left.compare_exchange_weak(now, less, std::memory_order_relaxed)) return static_cast<int64_t>(less >> 32);
    }
    return -1;
  }
};
constexpr int kMostParts = 64;  // with more threads than this none steals
constexpr int kPieces = 8;      // of a part

}  // namespace

void parallel_balanced(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  const int64_t items = end - begin, threads = std::min<int64_t>(num_threads(), items / std::max<int64_t>(grain, 1));
  if (threads <= 1 || threads > kMostParts) return parallel_for(begin, end, grain, body);
  const int64_t piece = std::max<int64_t>(1, items / threads / kPieces);
  const Split split(begin, end, threads);
  Part parts[kMostParts];
  for (int64_t i = 0; i < threads; ++i) {
    const auto [first, last] = split.range(i);
    parts[i].left.store(static_cast<uint64_t>((last - first + piece - 1) / piece) << 32, std::memory_order_relaxed);
  }
  const auto run = [&](int64_t part, int64_t i) {
    const auto [first, last] = split.range(part);
    body(first + i * piece, std::min(last, first + (i + 1) * piece));
  };
  parallel_for(0, threads, 1, [&](int64_t from, int64_t to) {
    for (int64_t own = from; own < to; ++own) {
      for (int64_t i = parts[own].take_first(); i >= 0; i = parts[own].take_first()) run(own, i);
      for (int64_t k = 1; k < threads; ++k) {
        const int64_t other = (own + k) % threads;
        for (int64_t i = parts[other].take_last(); i >= 0; i = parts[other].take_last()) run(other, i);
      }
    }
  });
}

int num_threads() {
  int n = detail::pool_threads.load(std::memory_order_relaxed);
  if (n > 0) [[likely]]
    return n;
  int chosen = thread_choice().threads;
  // A set_num_threads() that came in between wins.
  return detail::pool_threads.compare_exchange_strong(n, chosen, std::memory_order_relaxed) ? chosen : n;
}

void set_num_threads(int n, Site site) {
  DEFT_CHECK(n >= 1 && n <= kMaxThreads, ValueError,
             "set_num_threads: found {}, expected 1 to {}; pass a count in that range", n, kMaxThreads);
  detail::pool_threads.store(n, std::memory_order_relaxed);
  set_at.store(site, std::memory_order_relaxed);
}
Site threads_set_at() { return set_at.load(std::memory_order_relaxed); }

bool in_parallel_region() { return in_parallel; }

SerialScope::SerialScope() : outer_(in_parallel) { in_parallel = true; }
SerialScope::~SerialScope() { in_parallel = outer_; }

ThreadChoice thread_choice() {
  const char* env = std::getenv("DEFT_NUM_THREADS");
  ThreadChoice choice = choose_threads(allowed_cpus(), env);
  static std::atomic<bool> warned{false};
  if (env && *env && choice.from_env == 0 && !warned.exchange(true))
    std::fprintf(stderr, "deft: DEFT_NUM_THREADS=%s is not a whole number from 1 to %d; %d threads are used\n", env,
                 kMaxThreads, choice.threads);
  return choice;
}

}  // namespace deft
