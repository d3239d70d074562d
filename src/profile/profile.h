// What a profile holds: where the time of a run went, by bucket, op and module.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/profile_hook.h"

namespace deft::profile {

inline bool is_kernel(Bucket b) { return b == Bucket::linear_algebra || b == Bucket::kernel; }

// What keeps an op, or a whole workload, from being faster.
// `instructions`: neither what it multiplies and adds nor its bytes take the time, but what it does to each element:
// exponentials, indices.
enum class Bound : uint8_t { compute, memory, overhead, input, unknown, copy, sync, instructions };
const char* name_of(Bound bound);  // "compute-bound"

// One kind of op at one line of the program, forward and backward apart.
struct OpRow {
  std::string name;
  Bucket bucket = Bucket::kernel;  // of its kernel
  bool backward = false;
  DType dtype = DType::f32;  // of its result; of a GEMM, its operands
  std::string site;          // "train.cpp:88"
  int64_t calls = 0;
  double kernel_seconds = 0;    // in its kernels
  double overhead_seconds = 0;  // dispatch, allocation and recording around them
  double flops = 0, bytes = 0;  // of all calls
  // Its results lie on a device. Where the device's activity is known (Profile::device_busy_seconds), kernel_seconds
  // are those of its kernels there and overhead_seconds all the host's; otherwise both are the host's, and it has no
  // class.
  bool on_device = false;
  double seconds() const;  // kernels and what is around them, the longer of both where they run beside each other
  // From profile/roofline.h:
  Bound bound = Bound::unknown;
  double of_limit = 0;  // 0 to 1: how near it is to what the machine can do at most, NaN where that is unknown
};

struct ModuleRow {
  std::string name;  // "layer1.0.conv1", "" for the module that was called first
  std::string type;  // "Conv2d(in=3, ...)"
  int64_t calls = 0;
  double seconds = 0, self_seconds = 0;  // forward, with and without the modules inside
};

// Zones inside each other, outermost first, and the time spent in the last of them.
struct FlameRow {
  std::string stack;  // "train;backward;conv2d"
  int64_t calls = 0;
  double self_seconds = 0;
};

// A thread besides the one that was profiled.
struct ThreadRow {
  std::string name;
  std::array<double, kBucketCount> seconds{};  // exclusive, from its first zone on
  int64_t zones = 0;
};

// One kind of kernel or copy on a device.
struct DeviceRow {
  std::string name;
  Bucket bucket = Bucket::kernel;
  int64_t calls = 0;
  double seconds = 0;
};

struct Profile {
  double wall_seconds = 0;
  std::array<double, kBucketCount> seconds{};  // exclusive; of the thread that was profiled
  double operator[](Bucket b) const { return seconds[static_cast<size_t>(b)]; }
  double sum() const;           // of the buckets
  double overhead_seconds = 0;  // of the profiler itself, within wall_seconds: zones and lost short cuts, by their cost
  double looked_share = 1;      // the recorded part of wall_seconds; the rest is extrapolated
  double device_busy_seconds = -1;                    // -1: no device, or its activity cannot be read
  std::array<double, kBucketCount> device_seconds{};  // what of `seconds` a device worked
  double watching_seconds = 0;  // tracing a device took this much longer, in a run of its own: profile/watched.h
  double cpu_seconds = 0;       // of all threads of the process
  double core_share = 1;        // of the time it could run, the part it had a core for: profile/core_time.h
  int threads = 1;
  int64_t zones = 0, dropped = 0;  // events that were seen, and those the ring had no room for
  std::vector<OpRow> ops;          // the longest first
  std::vector<ModuleRow> modules;
  std::vector<FlameRow> flame;  // of the thread that was profiled; the longest first
  std::vector<ThreadRow> other_threads;
  std::vector<DeviceRow> device;  // the longest first
  std::string device_note;        // why it is empty where there is a device
  Bound bound = Bound::unknown;
  std::string sentence;  // why it is slow, in one sentence: profile/bottleneck.h
};

}  // namespace deft::profile
