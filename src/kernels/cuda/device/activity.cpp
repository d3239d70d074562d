// Activity of GPUs by CUPTI, where it is installed: the library is loaded at run time and never linked.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "runtime/backend.h"
#include "runtime/device.h"
#include "runtime/device_activity.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#define DEFT_HAS_CUPTI 1
#else
#define DEFT_HAS_CUPTI 0
#endif

namespace deft::detail {

#if DEFT_HAS_CUPTI

namespace {

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;
  std::string missing;  // why it is of no use
};

template <class F>
void find(void* library, const char* name, Cupti& c, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function && c.missing.empty()) c.missing = fmt::format("libcupti has no {}", name);
}

void* open_library() {
  const int major = CUDART_VERSION / 1000;
  for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"})
    for (const std::string& name : {fmt::format("libcupti.so.{}", major), std::string("libcupti.so")})
      if (void* found = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  return nullptr;
}

Cupti load() {
  Cupti c;
  void* library = open_library();
  if (!library) {
    c.missing = "libcupti was not found: it is part of the CUDA toolkit";
    return c;
  }
  find(library, "cuptiActivityRegisterCallbacks", c, c.register_callbacks);
  find(library, "cuptiActivityEnable", c, c.enable);
  find(library, "cuptiActivityDisable", c, c.disable);
  find(library, "cuptiActivityFlushAll", c, c.flush);
  find(library, "cuptiActivityGetNextRecord", c, c.next);
  find(library, "cuptiGetTimestamp", c, c.timestamp);
  return c;
}
const Cupti& cupti() {
  static const Cupti found = load();
  return found;
}

constexpr size_t kBufferBytes = 4 << 20;
// All calls: to enable those that ask for work one by one (cuptiActivityEnableRuntimeApi) gives no record of any.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER};

struct Collected {
  std::mutex mutex;
  bool on = false;
  std::vector<DeviceActivity> all;              // in CUPTI's time; asked_ns is the number of the call that asked
  std::unordered_map<uint32_t, int64_t> calls;  // by number: when `thread` made it
  uint32_t thread = 0;
  int64_t dropped = 0;
  int64_t to_steady_ns = 0;
};
Collected& collected() {
  static auto* c = new Collected;  // CUPTI may call back while the process ends
  return *c;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}

// CUPTI identifies threads by the low half of their pthread_t.
uint32_t this_thread() { return static_cast<uint32_t>(pthread_self()); }

// The runtime's call and the driver's inside it have one number: the earlier counts.
void add_call(const CUpti_ActivityAPI& call, Collected& c) {
  if (call.threadId != c.thread || static_cast<int64_t>(c.calls.size()) >= kMostActivities) return;
  const auto [it, added] = c.calls.try_emplace(call.correlationId, static_cast<int64_t>(call.start));
  if (!added) it->second = std::min(it->second, static_cast<int64_t>(call.start));
}

void add(const CUpti_Activity& record, Collected& c) {
  const auto keep = [&](DeviceActivity::Kind kind, const char* name, uint64_t begin, uint64_t end, uint32_t call) {
    if (static_cast<int64_t>(c.all.size()) >= kMostActivities)
      ++c.dropped;
    else
      c.all.push_back({kind, name, static_cast<int64_t>(begin), static_cast<int64_t>(end), call});
  };
  if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& k = reinterpret_cast<const CUpti_ActivityKernel4&>(record);  // later forms begin like it
    keep(DeviceActivity::Kind::kernel, k.name ? k.name : "kernel", k.start, k.end, k.correlationId);
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto& m = reinterpret_cast<const CUpti_ActivityMemcpy&>(record);
    keep(DeviceActivity::Kind::copy, "copy", m.start, m.end, m.correlationId);
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& m = reinterpret_cast<const CUpti_ActivityMemset&>(record);
    keep(DeviceActivity::Kind::fill, "fill", m.start, m.end, m.correlationId);
  } else if (record.kind == CUPTI_ACTIVITY_KIND_RUNTIME || record.kind == CUPTI_ACTIVITY_KIND_DRIVER) {
    add_call(reinterpret_cast<const CUpti_ActivityAPI&>(record), c);
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t used) {
  Collected& c = collected();
  {
    std::lock_guard lock(c.mutex);
    CUpti_Activity* record = nullptr;
    while (c.on && cupti().next(buffer, used, &record) == CUPTI_SUCCESS) add(*record, c);
  }
  std::free(buffer);
}

// The offset from CUPTI's time to the host's clock: from the closest pair of host readings around a CUPTI reading.
int64_t clock_difference() {
  using Clock = std::chrono::steady_clock;
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
  };
  int64_t best = INT64_MAX, difference = 0;
  for (int i = 0; i < 16; ++i) {
    uint64_t theirs = 0;
    const int64_t before = now();
    cupti().timestamp(&theirs);
    const int64_t after = now();
    if (after - before >= best) continue;
    best = after - before;
    difference = before + best / 2 - static_cast<int64_t>(theirs);
  }
  return difference;
}

}  // namespace

std::string start_cuda_activity() {
  if (device_count(DeviceType::cuda) == 0) return "there is no GPU";
  if (!cupti().missing.empty()) return cupti().missing;
  Collected& c = collected();
  static const bool registered = cupti().register_callbacks(give_buffer, take_buffer) == CUPTI_SUCCESS;
  if (!registered) return "CUPTI refused: another profiler is active in this process";
  for (CUpti_ActivityKind kind : kKinds) {
    if (cupti().enable(kind) == CUPTI_SUCCESS) continue;
    for (CUpti_ActivityKind other : kKinds) cupti().disable(other);
    return "CUPTI refused: another profiler is active, or the driver lets only root look at counters";
  }
  std::lock_guard lock(c.mutex);
  c.all.clear();
  c.calls.clear();
  c.thread = this_thread();
  c.dropped = 0;
  c.to_steady_ns = clock_difference();
  c.on = true;
  return {};
}

std::vector<DeviceActivity> stop_cuda_activity(int64_t& dropped) {
  Collected& c = collected();
  {
    std::lock_guard lock(c.mutex);
    if (!c.on) return {};
  }
  for (int i = 0; i < device_count(DeviceType::cuda); ++i)
    backend(DeviceType::cuda)->synchronize({DeviceType::cuda, static_cast<int8_t>(i)});
  cupti().flush(1);  // also of buffers that are not full
  for (CUpti_ActivityKind kind : kKinds) cupti().disable(kind);
  std::lock_guard lock(c.mutex);
  c.on = false;
  dropped = c.dropped;
  std::vector<DeviceActivity> all = std::move(c.all);
  c.all.clear();
  for (DeviceActivity& a : all) {
    const auto call = c.calls.find(static_cast<uint32_t>(a.asked_ns));
    a.asked_ns = call == c.calls.end() ? 0 : call->second + c.to_steady_ns;
    a.begin_ns += c.to_steady_ns;
    a.end_ns += c.to_steady_ns;
  }
  c.calls.clear();
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

#else

std::string start_cuda_activity() { return "this build was made without CUPTI, a part of the CUDA toolkit"; }
std::vector<DeviceActivity> stop_cuda_activity(int64_t& dropped) {
  dropped = 0;
  return {};
}

#endif

}  // namespace deft::detail
