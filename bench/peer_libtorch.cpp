// The cases of bench/overhead.cpp on LibTorch. Prints one JSON line per case and mode; with --serve one per line of
// input (see bench/peer.h). Plain ATen: the same code a user's torch:: calls reach, without the cost of its headers.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "bench/cpu_timer.h"

namespace {

using deft::bench::CpuTimer;
using deft::bench::Loop;
using deft::bench::repeat;

at::Tensor input(at::IntArrayRef sizes, bool grad = false) { return at::full(sizes, 0.5).requires_grad_(grad); }

struct Case {
  const char* name;
  std::function<Loop(bool grad)> make;
  bool grad_only = false;
};

const Case kCases[] = {
    {"empty", [](bool) { return repeat([] { at::Tensor y = at::empty({8}); }); }},
    {"view", [](bool g) { return repeat([x = input({8}, g)] {
                            at::Tensor y = x.view({2, 4});
                          }); }},
    {"add", [](bool g) { return repeat([a = input({8}, g), b = input({8}, g)] { at::Tensor y = a + b; }); }},
    {"add_", [](bool) { return repeat([a = input({8}), b = input({8})]() mutable { a.add_(b); }); }},
    {"mul+sum+backward",
     [](bool) {
       return repeat([a = input({8}, true), b = input({8}, true)] {
         (a * b).sum().backward();
         a.mutable_grad().reset();
         b.mutable_grad().reset();
       });
     },
     true},
    {"linear 1x64x64",
     [](bool g) {
       return repeat(
           [x = input({1, 64}), w = input({64, 64}, g), b = input({64}, g)] { at::Tensor y = at::linear(x, w, b); });
     }},
    {"softmax 4x64",
     [](bool g) {
       return repeat([x = input({4, 64}, g)] { at::Tensor y = x.softmax(-1); });
     }},
};
const char* const kModes[] = {"grad", "no_grad", "inference"};

// One timer per case and mode, kept between requests: nothing is warmed up twice.
class Timers {
 public:
  bool measure(const std::string& name, const std::string& mode, int batches, double& best_ns) {
    c10::InferenceMode inference(mode == "inference");  // first: it sets the grad mode, too
    at::AutoGradMode grad(mode == "grad");
    std::unique_ptr<CpuTimer>& timer = timers_[name + '\t' + mode];
    for (const Case& c : kCases) {
      if (!timer && name == c.name && (mode == "grad" || !c.grad_only)) {
        timer = std::make_unique<CpuTimer>(c.make(mode == "grad"));
      }
    }
    if (!timer) return false;
    timer->batches(batches);
    best_ns = timer->best_ns();
    return true;
  }

 private:
  std::map<std::string, std::unique_ptr<CpuTimer>> timers_;
};

#if !defined(DEFT_TORCH_VERSION)
#define DEFT_TORCH_VERSION TORCH_VERSION
#endif
constexpr const char* kPeer = "libtorch " DEFT_TORCH_VERSION;

bool answer(Timers& timers, const std::string& name, const std::string& mode, int batches) {
  double ns = 0;
  if (!timers.measure(name, mode, batches, ns)) return false;
  std::printf(R"({"case":"%s","mode":"%s","ns_per_op":%.1f,"peer":"%s"})"
              "\n",
              name.c_str(), mode.c_str(), ns, kPeer);
  return true;
}

void serve(Timers& timers) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream fields(line);
    std::string name, mode, batches;
    std::getline(fields, name, '\t');
    std::getline(fields, mode, '\t');
    std::getline(fields, batches);
    if (!answer(timers, name, mode, std::atoi(batches.c_str())))
      std::printf(R"({"peer":"%s"})"
                  "\n",
                  kPeer);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  Timers timers;
  if (argc > 1 && std::string(argv[1]) == "--serve") {
    serve(timers);
    return 0;
  }
  for (const Case& c : kCases) {
    for (const char* mode : kModes) answer(timers, c.name, mode, 15);
  }
}
