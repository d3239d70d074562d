// Streams and events of a device, and the stream that ops of this thread go to.
//
// Note [Stream order]: ops on one stream run in the order they were called. Between streams Deft keeps the order of
// reads and writes itself: an op that reads what another stream wrote last waits for that stream (on the device, not on
// the host), and so does a write for the streams that read before. Memory freed while other streams still work on it is
// handed out again when they are done. wait() is only needed to order work against streams Deft does not know.
#pragma once

#include <cstdint>

#include "base/site.h"
#include "runtime/backend.h"
#include "runtime/event.h"

namespace deft {

class Stream {
 public:
  // A stream of its own; after kMaxStreams - 1 of them on a device, streams are shared round robin.
  static Stream create(Device device, bool high_priority = false);
  static Stream default_stream(Device device);
  static Stream numbered(Device device, uint8_t id) { return {device, id}; }  // as given by id()
  Device device() const { return device_; }
  uint8_t id() const { return id_; }
  void* native() const;  // cudaStream_t
  bool query() const;    // true: nothing left to do
  void synchronize(Site site = Site::current()) const;
  void wait(const Event& event) const;
  void wait(const Stream& other) const;
  bool operator==(const Stream&) const = default;

 private:
  Stream(Device device, uint8_t id) : device_(device), id_(id) {}
  Device device_;
  uint8_t id_;
};

Stream current_stream(Device device);
// Ops on the stream's device go to it while the guard lives.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Device device_;
  uint8_t outer_;
};

// Waits for everything given to the device. Errors of kernels come out here at the latest.
void synchronize(Device device, Site site = Site::current());

// Dispatch calls these around an op that runs on `stream` of a device: see Note [Stream order].
void order_read(DeviceMemory& memory, uint8_t stream);
void order_write(DeviceMemory& memory, uint8_t stream);
// Makes stream `waiting` wait for everything that is in stream `on` now.
void make_wait(Device device, uint8_t waiting, uint8_t on);

// Copies under way: memory is held, and host access to it waits, until `done` is reached.
void add_copy(DeviceMemory& memory, const Event& done, bool writes);
void wait_for_copies(DeviceMemory& memory);                                 // on the host
void wait_for_copies(DeviceMemory& memory, Device device, uint8_t stream);  // on a stream
// Calls release(object) once `done` is reached.
void hold_until(const Event& done, void* object, void (*release)(void*));
void poll_held();

}  // namespace deft
