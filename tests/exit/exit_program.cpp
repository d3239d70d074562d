// Ops while the program ends: in the destructor of a static object, which runs after all that the library made later is
// gone, and on a thread that nobody waits for. Without an argument it runs itself many times and looks how that ends.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"

extern char** environ;

namespace {

using namespace deft;

// Products of several types and sizes, convolutions, reductions, sorting, random numbers, and gradients of them.
double work() {
  double sum = 0;
  for (DType t : {DType::f32, DType::f64, DType::bf16})
    for (int64_t n : {3, 64, 200}) sum += rand({n, n}, t).matmul(rand({n, n}, t)).sum().item();
  Tensor x = rand({2, 4, 20, 20}, with_grad()), w = rand({8, 4, 3, 3}, with_grad());
  Tensor y = max_pool2d(relu(conv2d(x, w)), {2}).flatten(1);
  cross_entropy(layer_norm(y, {y.size(1)}), zeros({2}, DType::i64)).backward();
  sum += x.grad().sum().item() + w.grad().sum().item();
  sum += sort(rand({1000}))[0].cumsum(0).amax().item();
  sum += cat({rand({300, 300}), rand({300, 300})}).t().contiguous().index_select(0, randperm(300)).mean().item();
  return sum;
}

bool in_destructor = false;
struct AtTheEnd {
  ~AtTheEnd() {
    if (in_destructor && !(work() > -1e300)) _exit(1);
  }
};
AtTheEnd at_the_end;  // made before everything that ops make

int end_with_destructor() {
  work();
  in_destructor = true;
  return 0;
}

int end_with_thread() {
  static std::atomic<int> rounds{0};
  for (int i = 0; i < 2; ++i) {
    std::thread([] {
      for (;;) {
        work();
        ++rounds;
      }
    }).detach();
  }
  while (rounds.load() < 2) std::this_thread::yield();
  return 0;
}

// True if all runs end by themselves with 0.
bool run_many_times(const char* self, const char* mode, int runs) {
  for (int i = 0; i < runs; ++i) {
    const char* arguments[] = {self, mode, nullptr};
    pid_t child = 0;
    int status = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ) != 0 ||
        waitpid(child, &status, 0) != child) {
      std::perror(self);
      return false;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    std::fprintf(stderr, "%s: run %d of %d ended with %s %d\n", mode, i + 1, runs,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode.empty()) return run_many_times(argv[0], "destructor", 5) && run_many_times(argv[0], "thread", 30) ? 0 : 1;
  deft::set_num_threads(3);
  return mode == "destructor" ? end_with_destructor() : end_with_thread();
}
