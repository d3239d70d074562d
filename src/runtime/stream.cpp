#include "runtime/stream.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>

#include "base/check.h"
#include "runtime/context.h"
#include "runtime/profile_hook.h"
#include "runtime/sync.h"

namespace deft {

namespace {

uint8_t& current_id(Device device) { return context().streams[static_cast<size_t>(device.index)]; }
uint64_t bit_of(uint8_t stream) { return uint64_t{1} << stream; }
void set_bit(std::atomic<uint64_t>& mask, uint8_t stream) {
  if (!(mask.load(std::memory_order_relaxed) & bit_of(stream)))
    mask.fetch_or(bit_of(stream), std::memory_order_relaxed);
}

}  // namespace

// --- Stream ----------------------------------------------------------------------------------------------------

Stream Stream::create(Device device, bool high_priority) {
  return {device, require_backend(device, "Stream").create_stream(device, high_priority)};
}
Stream Stream::default_stream(Device device) {
  require_backend(device, "Stream");
  return {device, 0};
}
void* Stream::native() const { return require_backend(device_, "Stream").native_stream(device_, id_); }
bool Stream::query() const { return require_backend(device_, "Stream").query_stream(device_, id_); }
void Stream::synchronize(Site site) const {
  count_sync("synchronize", site);
  Backend& b = require_backend(device_, "synchronize");
  Zone zone("synchronize", Bucket::sync, site);
  b.synchronize_stream(device_, id_);
  b.check_faults(device_);
  poll_held();
}

Stream current_stream(Device device) {
  require_backend(device, "current_stream");
  return Stream::numbered(device, current_id(device));
}

StreamGuard::StreamGuard(const Stream& stream) : device_(stream.device()), outer_(current_id(stream.device())) {
  current_id(device_) = stream.id();
}
StreamGuard::~StreamGuard() { current_id(device_) = outer_; }

void synchronize(Device device, Site site) {
  if (device.is_cpu()) return;
  Backend& b = require_backend(device, "synchronize");
  count_sync("synchronize", site);
  Zone zone("synchronize", Bucket::sync, site);
  b.synchronize(device);
  b.check_faults(device);
  poll_held();
}

// --- Event -----------------------------------------------------------------------------------------------------

struct Event::State {
  Device device;
  bool timed;
  void* handle;
  std::atomic<bool> recorded{false};
  State(Device d, bool with_time)
      : device(d), timed(with_time), handle(require_backend(d, "Event").create_event(d, with_time)) {}
  ~State() { backend(device.type)->destroy_event(device, handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Event::Event(Device device, bool timed) : state_(std::make_shared<State>(device, timed)) {}
void Event::record(const Stream& stream) {
  // Copies of this event, for example in memory that a copy is using, keep the point they have.
  if (!state_ || state_.use_count() > 1) state_ = std::make_shared<State>(stream.device(), state_ && state_->timed);
  DEFT_CHECK(stream.device() == state_->device, DeviceError, "Event: made for {}, but the stream is of {}",
             to_string(state_->device), to_string(stream.device()));
  backend(state_->device.type)->record_event(state_->device, state_->handle, stream.id());
  state_->recorded.store(true, std::memory_order_release);
}
bool Event::query() const {
  if (!state_ || !state_->recorded.load(std::memory_order_acquire)) return true;
  return backend(state_->device.type)->query_event(state_->device, state_->handle);
}
void Event::synchronize(Site site) const {
  if (!query()) count_sync("synchronize", site);
  wait_uncounted();
}
void Event::wait_uncounted() const {
  if (!state_ || !state_->recorded.load(std::memory_order_acquire)) return;
  Backend& b = *backend(state_->device.type);
  Zone zone("wait for an event", Bucket::sync, Site());
  b.synchronize_event(state_->device, state_->handle);
  b.check_faults(state_->device);
}
double Event::elapsed_ms(const Event& end) const {
  DEFT_CHECK(state_ && end.state_, ValueError, "Event: elapsed_ms needs two recorded events");
  return backend(state_->device.type)->elapsed_ms(state_->handle, end.state_->handle);
}

void Stream::wait(const Event& event) const {
  if (!event.state_ || !event.state_->recorded.load(std::memory_order_acquire)) return;
  require_backend(device_, "Stream").stream_wait(device_, id_, event.state_->handle);
}
void Stream::wait(const Stream& other) const {
  Event e(other.device());
  e.record(other);
  wait(e);
}

// --- Order between streams -------------------------------------------------------------------------------------

void make_wait(Device device, uint8_t waiting, uint8_t on) {
  if (waiting == on) return;
  Event here(device);  // its handle goes when it has been reached
  here.record(Stream::numbered(device, on));
  Stream::numbered(device, waiting).wait(here);
}

namespace {

std::vector<Event> copies_of(DeviceMemory& m) {
  if (!m.in_flight.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(m.lock);
  return m.copies;
}

// Waits for the copy that wrote `m`, if that was the last write.
bool wait_for_written(DeviceMemory& m, uint8_t stream) {
  if (!m.in_flight.load(std::memory_order_acquire)) return false;
  Event written;
  {
    std::lock_guard lock(m.lock);
    written = m.written;
  }
  if (!written) return false;
  Stream::numbered(m.device, stream).wait(written);
  return true;
}

}  // namespace

void wait_for_copies(DeviceMemory& m, Device device, uint8_t stream) {
  for (const Event& e : copies_of(m)) Stream::numbered(device, stream).wait(e);
}

void order_read(DeviceMemory& m, uint8_t stream) {
  set_bit(m.readers, stream);
  if (stream != m.owner) set_bit(m.used_on, stream);
  uint8_t writer = m.writer.load(std::memory_order_relaxed);
  if (writer == stream || (m.ordered.load(std::memory_order_relaxed) & bit_of(stream))) return;
  if (!wait_for_written(m, stream)) make_wait(m.device, stream, writer);
  m.ordered.fetch_or(bit_of(stream), std::memory_order_relaxed);
}

void order_write(DeviceMemory& m, uint8_t stream) {
  if (m.in_flight.load(std::memory_order_acquire)) {
    wait_for_copies(m, m.device, stream);
    std::lock_guard lock(m.lock);
    m.copies.clear();
    m.written = {};
    m.in_flight.store(false, std::memory_order_release);
  }
  uint64_t before = m.readers.load(std::memory_order_relaxed);
  if (!(m.ordered.load(std::memory_order_relaxed) & bit_of(stream)))
    before |= bit_of(m.writer.load(std::memory_order_relaxed));
  for (uint64_t left = before & ~bit_of(stream); left; left &= left - 1)
    make_wait(m.device, stream, static_cast<uint8_t>(std::countr_zero(left)));
  if (stream != m.owner) set_bit(m.used_on, stream);
  m.readers.store(0, std::memory_order_relaxed);
  m.writer.store(stream, std::memory_order_relaxed);
  m.ordered.store(0, std::memory_order_relaxed);
}

// --- Copies under way ------------------------------------------------------------------------------------------

void add_copy(DeviceMemory& m, const Event& done, bool writes) {
  std::lock_guard lock(m.lock);
  if (writes) m.written = done;
  std::erase_if(m.copies, [](const Event& e) { return e.query(); });
  m.copies.push_back(done);
  m.in_flight.store(true, std::memory_order_release);
}

void wait_for_copies(DeviceMemory& m) {
  bool counted = false;
  for (const Event& e : copies_of(m)) {
    if (!counted && !e.query()) {
      count_sync("copy under way", Site());
      counted = true;
    }
    e.wait_uncounted();  // also where it is done: what kernels before it reported comes out here
  }
  std::lock_guard lock(m.lock);
  std::erase_if(m.copies, [](const Event& e) { return e.query(); });
  m.in_flight.store(!m.copies.empty(), std::memory_order_release);
}

namespace {

struct Held {
  Event done;
  void* object;
  void (*release)(void*);
};
struct HeldList {
  std::mutex mutex;
  std::vector<Held> entries;
};
// A device that has failed keeps what it was given.
bool is_done(const Event& e) noexcept {
  try {
    return e.query();
  } catch (...) {
    return false;
  }
}
HeldList& held_list() {
  static auto* list = new HeldList;  // never destroyed: threads may outlive static destruction
  return *list;
}

}  // namespace

void poll_held() {
  std::vector<Held> ready;
  {
    HeldList& list = held_list();
    std::lock_guard lock(list.mutex);
    auto first =
        std::partition(list.entries.begin(), list.entries.end(), [](const Held& h) { return !is_done(h.done); });
    ready.assign(std::make_move_iterator(first), std::make_move_iterator(list.entries.end()));
    list.entries.erase(first, list.entries.end());
  }
  for (Held& h : ready) h.release(h.object);  // outside the lock: it may free memory and come back here
}

void hold_until(const Event& done, void* object, void (*release)(void*)) {
  poll_held();
  HeldList& list = held_list();
  std::lock_guard lock(list.mutex);
  list.entries.push_back({done, object, release});
}

}  // namespace deft
