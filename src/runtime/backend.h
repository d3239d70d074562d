// The contract between Deft and a kind of device that is not the CPU. Work on a device is asynchronous: it is enqueued
// in streams, and memory is allocated and freed in the order of a stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/spin_lock.h"
#include "runtime/config.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/limits.h"

namespace deft {

struct DeviceProperties {
  std::string name;
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int major = 0, minor = 0;  // compute capability
  int64_t l2_bytes = 0;
};

// Bytes on a device, or pinned bytes on the host, and the streams that use them. See Note [Stream order].
struct DeviceMemory {
  void* data = nullptr;
  size_t bytes = 0;                  // as reserved: at least what was asked for
  Device device;                     // kCPU: pinned host memory
  uint8_t owner = 0;                 // the stream it was handed out on
  std::atomic<uint8_t> writer{0};    // the stream of the last write
  std::atomic<uint64_t> ordered{0};  // streams that already wait for that write
  std::atomic<uint64_t> readers{0};  // streams that were given reads since
  std::atomic<uint64_t> used_on{0};  // streams other than the owner that were given work on it
  // Copies under way that read or write it. Only copies from and to the host and other devices leave one.
  std::atomic<bool> in_flight{false};
  SpinLock lock;
  std::vector<Event> copies;
  Event written;  // the copy that was the last write; exact, where waiting for its whole stream would wait for too much
};

// Counters of one device's memory.
struct DeviceMemoryUse {
  int64_t live_bytes = 0;      // handed out
  int64_t cached_bytes = 0;    // kept for reuse
  int64_t reserved_bytes = 0;  // taken from the driver: live + cached + rounding
  int64_t peak_bytes = 0;      // most handed out at once since reset_peak()
  int64_t driver_calls = 0;    // allocations made by the driver
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int device_count() = 0;
  virtual DeviceProperties properties(int index) = 0;
  // Lines for `deft info`: {"driver", "13.0"}.
  virtual std::vector<std::pair<std::string, std::string>> versions() = 0;

  // --- Memory. Throws OutOfMemoryError after freeing what is cached and trying once more.
  virtual DeviceMemory* allocate(Device device, size_t bytes, uint8_t stream) = 0;
  virtual DeviceMemory* allocate_pinned(size_t bytes) = 0;
  virtual void free(DeviceMemory* memory) noexcept = 0;
  virtual DeviceMemoryUse memory_use(Device device) = 0;
  virtual void reset_peak(Device device) = 0;
  virtual void set_memory_limit(Device device, size_t bytes) = 0;  // of reserved bytes; 0: none
  virtual size_t trim(Device device) = 0;                          // kCPU: pinned memory

  // --- Streams are numbered per device; 0 is the default one.
  virtual uint8_t create_stream(Device device, bool high_priority) = 0;
  virtual void* native_stream(Device device, uint8_t stream) = 0;
  virtual void synchronize_stream(Device device, uint8_t stream) = 0;
  virtual bool query_stream(Device device, uint8_t stream) = 0;
  virtual void synchronize(Device device) = 0;

  // --- Events
  virtual void* create_event(Device device, bool timed) = 0;
  virtual void destroy_event(Device device, void* event) noexcept = 0;
  virtual void record_event(Device device, void* event, uint8_t stream) = 0;
  virtual bool query_event(Device device, void* event) = 0;
  virtual void synchronize_event(Device device, void* event) = 0;
  virtual void stream_wait(Device device, uint8_t stream, void* event) = 0;
  virtual double elapsed_ms(void* begin, void* end) = 0;

  // Enqueues an empty kernel, which measures the least cost of launching an op.
  virtual void launch_nothing(Device device, uint8_t stream) = 0;

  // --- Copies of plain bytes, enqueued on `stream` of `on`. At least one side is on a device.
  virtual void copy(void* to, const void* from, size_t bytes, Device on, uint8_t stream, const char* op) = 0;

  // --- Testing: bytes behind every block that nothing may write. The number of blocks found overwritten.
  virtual void set_guard_words(bool on) = 0;
  virtual int64_t check_guard_words() = 0;

  // Throws what kernels reported since (an index out of range). Cheap: reads one word of host memory.
  virtual void check_faults(Device device) = 0;
};

// nullptr where it cannot be loaded: runtime/device_plugin.h says why.
Backend* backend(DeviceType type);
// Of an existing device; DeviceError, one sentence beginning with `op`, otherwise.
Backend& require_backend(Device device, const char* op);
int device_count(DeviceType type);
DeviceProperties device_properties(Device device);

DeviceMemoryUse device_memory_use(Device device);
void reset_peak_memory(Device device);
// Caps what Deft takes from the device's driver, cache included; default: DEFT_CUDA_MEMORY_MB, else no cap but the
// device's own memory. 0 removes the cap.
void set_device_memory_limit(Device device, size_t bytes);
// Gives cached blocks back to the driver; returns how many bytes.
size_t trim_device_memory(Device device);

// Testing: from now on blocks get bytes behind them that nothing may write; how many blocks were overwritten so far.
void set_guard_words(bool on);
int64_t check_guard_words();

namespace detail {
Backend* cuda_backend();  // defined by kernels/cuda, part of the CUDA plug-in
}

}  // namespace deft
