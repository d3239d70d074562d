#include "runtime/numerics.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/note.h"

namespace deft {

namespace {

bool set_in_env(const char* name, bool otherwise = false) {
  const char* text = std::getenv(name);
  const std::string_view value = text ? text : "";
  if (value == "0" || value == "1") return value == "1";
  if (!value.empty()) {
    print_note("deft: {}={} is neither 0 nor 1; it stays {}\n", name, value, otherwise ? "on" : "off");
  }
  return otherwise;
}

Autotune autotune_in_env() {
  const char* text = std::getenv("DEFT_AUTOTUNE");
  const std::string_view mode = text ? text : "on";
  if (mode != "off" && mode != "on" && mode != "exhaustive")
    print_note("deft: DEFT_AUTOTUNE={} is not one of off, on, exhaustive; it stays on\n", mode);
  return mode == "off" ? Autotune::off : mode == "exhaustive" ? Autotune::exhaustive : Autotune::on;
}

struct Switches {
  std::atomic<bool> tf32{set_in_env("DEFT_ALLOW_TF32")};
  std::atomic<bool> conv_benchmark{set_in_env("DEFT_CONV_BENCHMARK")};
  std::atomic<bool> gemm_autotune{set_in_env("DEFT_GEMM_AUTOTUNE")};
  std::atomic<Autotune> autotune{autotune_in_env()};
  std::atomic<bool> conv_winograd{set_in_env("DEFT_WINOGRAD")};
  std::atomic<bool> split_f32{set_in_env("DEFT_SPLIT_F32", true)};
  std::atomic<size_t> conv_workspace{size_t{4} << 30};
};

Switches& switches() {
  static Switches all;
  return all;
}

}  // namespace

void set_allow_tf32(bool allow) { switches().tf32.store(allow, std::memory_order_relaxed); }
bool allow_tf32() { return switches().tf32.load(std::memory_order_relaxed); }

void set_conv_benchmark(bool on) { switches().conv_benchmark.store(on, std::memory_order_relaxed); }
bool conv_benchmark() { return switches().conv_benchmark.load(std::memory_order_relaxed); }

void set_conv_workspace_limit(size_t bytes) { switches().conv_workspace.store(bytes, std::memory_order_relaxed); }
size_t conv_workspace_limit() { return switches().conv_workspace.load(std::memory_order_relaxed); }

void set_gemm_autotune(bool on) { switches().gemm_autotune.store(on, std::memory_order_relaxed); }
bool gemm_autotune() { return switches().gemm_autotune.load(std::memory_order_relaxed); }

void set_autotune(Autotune mode) { switches().autotune.store(mode, std::memory_order_relaxed); }
Autotune autotune() { return switches().autotune.load(std::memory_order_relaxed); }

void set_conv_winograd(bool on) { switches().conv_winograd.store(on, std::memory_order_relaxed); }
bool conv_winograd() { return switches().conv_winograd.load(std::memory_order_relaxed); }

void set_split_f32(bool on) { switches().split_f32.store(on, std::memory_order_relaxed); }
bool split_f32() { return switches().split_f32.load(std::memory_order_relaxed); }

}  // namespace deft
