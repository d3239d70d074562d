#include "profile/collector.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>

#include "base/check.h"
#include "core/grad_mode.h"
#include "ops/creation.h"
#include "ops/softmax.h"
#include "ops/unary.h"
#include "profile/device_ops.h"
#include "profile/device_time.h"
#include "profile/thread_record.h"
#include "profile/ticks.h"
#include "runtime/backend.h"
#include "runtime/device_activity.h"
#include "runtime/parallel.h"

namespace deft::profile {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kNoSession = UINT64_MAX;
constexpr size_t kOtherThreads = 8;  // that have events in the trace; all have sums

double process_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string thread_name(size_t number) {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return fmt::format("{} {}", *name ? name : "thread", number);
}

// Note [Entering]
// Threads of all kinds call the collector at any time, also while a session ends on another thread. A thread says that
// it is inside before it looks whether the session still runs; who ends a session says so first and then waits for
// those inside. Both need sequential consistency, and no lock is taken. The profiled thread ends its session itself
// and needs none of this.
struct ThreadState {
  ThreadRecord record;
  uint64_t session;
  uint64_t direct;  // the session, where zones need no further check
  bool profiled;
  std::string name;
  std::atomic<int> inside{0};  // written by its thread only; deeper than 1 where an observer calls ops

  ThreadState(uint64_t now, bool profiled_, bool direct_, size_t ring_bytes, uint64_t session_, std::string name_)
      : record(now, profiled_, ring_bytes),
        session(session_),
        direct(direct_ ? session_ : kNoSession),
        profiled(profiled_),
        name(std::move(name_)) {}
};

constinit thread_local ThreadState* my_state = nullptr;
constinit thread_local bool thread_ends = false;

// Keeps the state of a thread as long as the thread may read it.
struct StateHolder {
  std::shared_ptr<ThreadState> state;
  ~StateHolder() {
    thread_ends = true;
    my_state = nullptr;
  }
};
thread_local StateHolder my_holder;

class Collector final : public ProfileHook, public Observer {
 public:
  struct Result {
    std::vector<std::shared_ptr<ThreadState>> threads;  // the profiled one first
    uint64_t start = 0, stop = 0;
    Clock::time_point began;  // the same moment as `start`
    double seconds_per_tick = 0;
  };

  void take() {
    if (void (*give_way)() = gives_way_.load(); give_way && is_taken()) give_way();
    std::lock_guard lock(mutex_);
    DEFT_CHECK(!taken_, ValueError,
               "ProfileSession: another session runs already; stop() it before the next one begins");
    taken_ = true;
  }
  void give_back() {
    std::lock_guard lock(mutex_);
    taken_ = false;
  }
  bool is_taken() {
    std::lock_guard lock(mutex_);
    return taken_;
  }
  void set_gives_way(void (*give_way)()) { gives_way_ = give_way; }

  void start(const ProfileOptions& options, Observer* next, const Allowance& allowance = {}) {
    std::lock_guard lock(mutex_);
    clock_ = options.clock;
    next_.store(next, std::memory_order_relaxed);
    ring_bytes_ = options.trace ? options.ring_bytes : 0;
    const uint64_t id = ++sessions_;
    add_thread(id, true, ring_bytes_ / 2);
    result_.began = Clock::now();
    result_.start = now();
    my_state->record.start(result_.start, allowance);
    session_.store(id);
    set_profile_hook(this);
    set_observer(this);
  }

  Result stop(Observer* before) {
    const uint64_t end = now();
    const Clock::time_point ended = Clock::now();
    session_.store(0);
    set_profile_hook(nullptr);
    set_observer(before);
    zones_on_again();
    std::lock_guard lock(mutex_);
    for (const auto& thread : result_.threads)
      while (thread->inside.load() != 0) std::this_thread::yield();
    for (const auto& thread : result_.threads) thread->record.finish(end);
    if (thread_ends) my_state = nullptr;  // nothing keeps it
    result_.stop = end;
    const double passed = std::chrono::duration<double>(ended - result_.began).count();
    result_.seconds_per_tick =
        clock_ ? clock_->seconds_per_tick : passed / static_cast<double>(std::max<uint64_t>(end - result_.start, 1));
    return std::exchange(result_, {});
  }

  // --- ProfileHook ---

  void begin(const char* zone, Bucket bucket, const Site& site) override {
    if (ThreadRecord* record = profiled_record()) [[likely]] {
      if (record->paused()) [[unlikely]]
        return begin_paused(*record, zone, bucket, site);
      return record->begin(ticks(), zone, bucket, site);
    }
    begin_slowly(zone, bucket, site);
  }
  void end() override {
    if (ThreadRecord* record = profiled_record()) [[likely]] {
      if (record->paused()) [[unlikely]]
        return end_paused(*record);
      return record->end(ticks());
    }
    end_slowly();
  }

  // --- Observer ---

  void kernel_ran(const KernelCall& call, const Site& site) override {
    if (Inside in(*this); in.state) {
      in.state->record.kernel_ran(call);
      // Small ops take a shorter path where no observer runs: Note [Sampling].
      if (in.state->record.paused() && !next_.load(std::memory_order_relaxed)) set_observer(nullptr);
    }
    tell([&](Observer& o) { o.kernel_ran(call, site); });
  }
  void module_begins(const ModuleCall& call) override {
    if (Inside in(*this); in.state && in.state->record.module_begins(call)) in.state->record.charge_observer(now());
    tell([&](Observer& o) { o.module_begins(call); });
  }
  void module_ends(const ModuleCall& call) override {
    tell([&](Observer& o) { o.module_ends(call); });
  }
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool recorded,
              const Site& site) override {
    tell([&](Observer& o) { o.op_ran(def, inputs, outputs, recorded, site); });
  }
  void backward_begins(std::span<const Tensor> roots, const BackwardOptions& options, const Site& site) override {
    tell([&](Observer& o) { o.backward_begins(roots, options, site); });
  }
  void node_ran(const Node& node) override {
    tell([&](Observer& o) { o.node_ran(node); });
  }
  void backward_ends() override {
    tell([&](Observer& o) { o.backward_ends(); });
  }
  void requires_grad_set(const Tensor& t, bool on, const Site& site) override {
    tell([&](Observer& o) { o.requires_grad_set(t, on, site); });
  }
  void refused(const char* op, const std::string& message, const Site& site) override {
    tell([&](Observer& o) { o.refused(op, message, site); });
  }
  void host_read(const Tensor& t, double value, const Site& site) override {
    tell([&](Observer& o) { o.host_read(t, value, site); });
  }
  void copied(const DeviceCopy& copy) override {
    tell([&](Observer& o) { o.copied(copy); });
  }
  void optimizer_begins(const OptimizerStep& step) override {
    tell([&](Observer& o) { o.optimizer_begins(step); });
  }
  void optimizer_ends(const OptimizerStep& step) override {
    tell([&](Observer& o) { o.optimizer_ends(step); });
  }
  void grads_cleared(const void* optimizer, bool to_none, const Site& site) override {
    tell([&](Observer& o) { o.grads_cleared(optimizer, to_none, site); });
  }
  void batch_loaded(const void* loader, int64_t rows, double waited, const Site& site) override {
    tell([&](Observer& o) { o.batch_loaded(loader, rows, waited, site); });
  }
  void padded(std::span<const int64_t> lengths, int64_t places, const Site& site) override {
    tell([&](Observer& o) { o.padded(lengths, places, site); });
  }
  void plan_missed(const void* compiled, const std::string& reason, const Site& site) override {
    tell([&](Observer& o) { o.plan_missed(compiled, reason, site); });
  }
  void plan_ran(const void* compiled, const Site& site) override {
    tell([&](Observer& o) { o.plan_ran(compiled, site); });
  }
  void host_waited(const char* what, const Site& site) override {
    tell([&](Observer& o) { o.host_waited(what, site); });
  }
  void function_ran(const Node& node) override {
    tell([&](Observer& o) { o.function_ran(node); });
  }

 private:
  struct Inside {
    ThreadState* state;
    explicit Inside(Collector& c) : state(c.enter()) {}
    ~Inside() {
      if (state) leave(state);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };

  [[gnu::noinline]] void begin_slowly(const char* zone, Bucket bucket, const Site& site) {
    Inside in(*this);
    if (!in.state) return;
    if (in.state->record.paused()) return begin_paused(in.state->record, zone, bucket, site);
    in.state->record.begin(now(), zone, bucket, site);
  }
  [[gnu::noinline]] void end_slowly() {
    Inside in(*this);
    if (!in.state) return;
    in.state->record.paused() ? end_paused(in.state->record) : in.state->record.end(now());
  }
  void begin_paused(ThreadRecord& record, const char* zone, Bucket bucket, const Site& site) {
    if (!record.begin_paused()) return;
    const uint64_t tick = now();
    if (!record.wake(tick)) {
      zones_off_ = !next_.load(std::memory_order_relaxed);
      if (zones_off_) context().bits &= ~kProfile;
      return;
    }
    if (!deft::detail::active_observer()) set_observer(this);
    record.begin(tick, zone, bucket, site);
  }
  void end_paused(ThreadRecord& record) {
    if (record.end_paused()) zones_on_again();
  }
  void zones_on_again() {
    if (std::exchange(zones_off_, false)) context().bits |= kProfile;
  }

  // Of this thread, where it is the one that is profiled and the clock is the machine's: mostly.
  ThreadRecord* profiled_record() {
    ThreadState* const state = my_state;
    return state && state->direct == session_.load(std::memory_order_relaxed) ? &state->record : nullptr;
  }
  ThreadState* enter() {
    if (!my_state || my_state->session != session_.load(std::memory_order_relaxed)) [[unlikely]]
      if (!join()) return nullptr;
    ThreadState* state = my_state;
    if (state->profiled) [[likely]]
      return state;
    state->inside.store(state->inside.load(std::memory_order_relaxed) + 1);
    if (session_.load() == state->session) [[likely]]
      return state;
    leave(state);
    return nullptr;
  }
  static void leave(ThreadState* state) {
    if (state->profiled) [[likely]]
      return;
    state->inside.store(state->inside.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  // The first zone of this thread under this session.
  [[gnu::cold, gnu::noinline]] bool join() {
    std::lock_guard lock(mutex_);
    const uint64_t id = session_.load();
    if (id == 0 || thread_ends) return false;
    add_thread(id, false, result_.threads.size() <= kOtherThreads ? ring_bytes_ / 2 / kOtherThreads : 0);
    return true;
  }
  void add_thread(uint64_t id, bool profiled, size_t ring_bytes) {
    std::string name = profiled ? "profiled thread" : thread_name(result_.threads.size() + 1);
    const bool direct = profiled && !clock_;
    result_.threads.push_back(std::make_shared<ThreadState>(now(), profiled, direct, ring_bytes, id, std::move(name)));
    my_state = result_.threads.back().get();
    if (!thread_ends) my_holder.state = result_.threads.back();
  }

  uint64_t now() const {
    if (clock_) [[unlikely]]
      return clock_->ticks();
    return ticks();
  }

  // What the next observer does is not profiled, and its time is not charged to the program.
  template <class Tell>
  void tell(const Tell& event) {
    if (!next_.load(std::memory_order_relaxed)) return;
    Inside in(*this);
    if (!in.state) return;
    if (!in.state->record.paused()) in.state->record.charge(now());
    const bool was_on = context().bits & kProfile;
    context().bits &= ~kProfile;
    struct Back {
      Collector& c;
      ThreadRecord& record;
      bool was_on;
      ~Back() {
        if (was_on) context().bits |= kProfile;
        record.charge_observer(c.now());
      }
    } back{*this, in.state->record, was_on};
    event(*next_.load(std::memory_order_relaxed));
  }

  std::atomic<uint64_t> session_{0};  // 0: none runs
  const FakeClock* clock_ = nullptr;
  bool zones_off_ = false;  // inside the outermost zone of the profiled thread: Note [Sampling]
  std::atomic<Observer*> next_{nullptr};
  std::mutex mutex_;  // of what is below
  bool taken_ = false;
  std::atomic<void (*)()> gives_way_{nullptr};
  size_t ring_bytes_ = 0;
  uint64_t sessions_ = 0;
  Result result_;
};

Collector& collector() {
  static auto* c = new Collector;  // never destroyed: threads may outlive static destruction
  return *c;
}

// --- What a zone costs -------------------------------------------------------------------------------------------

struct ZoneCost {
  double zone = 0, short_cut = 0;  // seconds
  double of(const ThreadRecord& r) const {
    const double zones = static_cast<double>(r.zones()) + Allowance::kPaused * static_cast<double>(r.zones_paused());
    return zones * zone + static_cast<double>(r.short_cuts()) * short_cut;
  }
};

template <class Op>
double shortest_of_calls(const Op& op) {
  constexpr int kBatches = 8, kCalls = 32;
  double best = 1;
  for (int b = 0; b < kBatches; ++b) {
    const Clock::time_point began = Clock::now();
    for (int i = 0; i < kCalls; ++i) op();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - began).count());
  }
  return best / kCalls;
}

// Small ops with the collector and without it. One goes the same way in both cases, the other has a short cut without.
ZoneCost find_cost(bool trace) {
  ExecContext plain;
  plain.bits = kGradOff;
  ContextGuard guard(plain);
  Observer* const before = deft::detail::active_observer();
  const Tensor x = ones({1});
  const auto same_way = [&] { softmax(x, 0); };
  const auto short_way = [&] { relu(x); };
  const auto watched = [&](const auto& op) {
    collector().start({.ring_bytes = 1 << 16, .trace = trace}, nullptr);
    context().bits |= kProfile;
    const double seconds = shortest_of_calls(op);
    context().bits &= ~kProfile;
    const Collector::Result result = collector().stop(before);
    const ThreadRecord& record = result.threads[0]->record;
    const int64_t calls = record.ops().rows(1).at(0).calls;
    return std::pair{seconds, static_cast<double>(record.zones()) / static_cast<double>(calls)};
  };
  const double same_alone = shortest_of_calls(same_way), short_alone = shortest_of_calls(short_way);
  const auto [same, same_zones] = watched(same_way);
  const auto [slow, slow_zones] = watched(short_way);
  ZoneCost cost;
  cost.zone = std::max(same - same_alone, 0.0) / same_zones;
  cost.short_cut = std::max(slow - short_alone - slow_zones * cost.zone, 0.0);
  // In a loop that does little else. Programs have other things in their caches: training of a small network on a GPU
  // was 1.8 to 2.6 times as much slower as that says.
  constexpr double kInPrograms = 2;
  return {kInPrograms * cost.zone, kInPrograms * cost.short_cut};
}
// In handlers of exit() the main thread has no zones any more; another thread has.
ZoneCost cost_of_zones(bool trace) {
  if (!thread_ends) return find_cost(trace);
  ZoneCost cost;
  std::thread([&] { cost = find_cost(trace); }).join();
  return cost;
}

// What a session may cost by its own estimate: half of what it may really, to be on the safe side.
constexpr double kOfMostCost = 0.5, kSliceSeconds = 5e-3;

Allowance allowance_of(const ProfileOptions& options, const ZoneCost& cost) {
  if (options.most_cost >= 1) return {};
  static const double of_machine = [] {  // about
    const Clock::time_point began = Clock::now();
    const uint64_t first = ticks();
    constexpr int kMostLooks = 100'000;  // some sandboxes have a clock that stands still
    for (int i = 0; i < kMostLooks && Clock::now() - began < std::chrono::microseconds(200); ++i) continue;
    const double passed = std::chrono::duration<double>(Clock::now() - began).count();
    return passed > 0 ? passed / static_cast<double>(std::max<uint64_t>(ticks() - first, 1)) : 1e-9;
  }();
  const double tick = options.clock ? options.clock->seconds_per_tick : of_machine;
  return {cost.zone / tick, cost.short_cut / tick, static_cast<uint64_t>(kSliceSeconds / tick),
          kOfMostCost * options.most_cost};
}

// `times` as many as were seen.
void scale(Profile& p, double times) {
  const auto calls = [&](int64_t& n) { n = std::llround(static_cast<double>(n) * times); };
  for (OpRow& row : p.ops) calls(row.calls), row.flops *= times, row.bytes *= times;
  for (ModuleRow& row : p.modules) calls(row.calls);
  for (FlameRow& row : p.flame) calls(row.calls);
}

Profile profile_of(const Collector::Result& result) {
  const ThreadRecord& record = result.threads[0]->record;
  const double passed = static_cast<double>(result.stop - result.start);
  Profile p;
  p.wall_seconds = passed * result.seconds_per_tick;
  p.looked_share = std::max(passed - static_cast<double>(record.ticks_paused()), 1.0) / std::max(passed, 1.0);
  const double tick = result.seconds_per_tick / p.looked_share;  // as long as what was seen stands for
  p.seconds = bucket_seconds(record.tree(), tick);
  p.overhead_seconds = static_cast<double>(record.ticks_observing()) * tick;
  p.threads = num_threads();
  p.zones = record.zones();
  p.ops = record.ops().rows(tick);
  p.modules = record.modules().rows(record.tree(), tick);
  p.flame = flame_rows(record.tree(), tick);
  if (record.ticks_paused() > 0) scale(p, 1 / p.looked_share);
  for (size_t i = 1; i < result.threads.size(); ++i) {
    const ThreadState& thread = *result.threads[i];
    if (thread.record.zones() == 0) continue;  // it came as the session ended
    p.other_threads.push_back(
        {thread.name, bucket_seconds(thread.record.tree(), result.seconds_per_tick), thread.record.zones()});
  }
  return p;
}

Trace trace_of(const Collector::Result& result) {
  Trace trace{.start = result.start, .seconds_per_tick = result.seconds_per_tick, .threads = {}, .labels = {}};
  for (const auto& thread : result.threads) trace.threads.push_back({thread->name, thread->record.take_events()});
  trace.labels = result.threads[0]->record.modules().take_labels();
  return trace;
}

}  // namespace

void set_session_gives_way(void (*give_way)()) { collector().set_gives_way(give_way); }

ProfileSession::ProfileSession(const ProfileOptions& options)
    : options_(options), was_on_(context().bits & kProfile), cpu_start_(process_cpu_seconds()) {
  DEFT_CHECK(
      options.most_cost > 0, ValueError,
      "ProfileSession: found most_cost {}, expected a share of the time above 0, such as 0.02, or 1 to look at all",
      options.most_cost);
  collector().take();
  before_ = deft::detail::active_observer();
  if (options.device && options.trace && !options.clock && device_count(DeviceType::cuda) > 0) {
    device_note_ = start_device_activity();
    device_on_ = device_note_.empty();
  }
  const ZoneCost cost = options.clock ? ZoneCost{options.clock->zone_seconds, 0} : cost_of_zones(options.trace);
  zone_cost_ = cost.zone, short_cut_cost_ = cost.short_cut;
  core_start_ = CoreTime::now();
  // What a device does is put down to zones, all of them.
  const Allowance allowance = device_on_ ? Allowance{} : allowance_of(options, cost);
  collector().start(options, options.next ? options.next : before_, allowance);
  context().bits |= kProfile;
}

ProfileSession::~ProfileSession() {
  if (!running_) return;
  collector().stop(before_);
  close();
}

void ProfileSession::close() {
  running_ = false;
  if (device_on_) {  // no longer needed
    int64_t dropped = 0;
    stop_device_activity(dropped);
  }
  collector().give_back();
  if (!was_on_ && thread_ == std::this_thread::get_id()) context().bits &= ~kProfile;
}

Profile ProfileSession::stop() {
  DEFT_CHECK(running_, ValueError, "ProfileSession: stop() was called before; make a new session");
  DEFT_CHECK(thread_ == std::this_thread::get_id(), ValueError,
             "ProfileSession: stop() is called on another thread than the one that was profiled");
  const Collector::Result result = collector().stop(before_);
  began_ = result.began;
  const double core_share = CoreTime::now().share_since(core_start_);
  const double cpu_seconds = process_cpu_seconds() - cpu_start_;
  const ZoneCost cost{zone_cost_, short_cut_cost_};
  Profile p = profile_of(result);
  p.overhead_seconds += cost.of(result.threads[0]->record);
  p.cpu_seconds = cpu_seconds;
  p.core_share = core_share;
  trace_ = trace_of(result);
  if (options_.trace)
    for (const TraceThread& thread : trace_.threads) p.dropped += static_cast<int64_t>(thread.events.dropped());
  add_device(p);
  close();
  return p;
}

void ProfileSession::add_device(Profile& p) {
  p.device_note = device_note_;
  if (!device_on_) return;
  device_on_ = false;
  int64_t dropped = 0;
  const std::vector<DeviceActivity> activities = stop_device_activity(dropped);
  p.dropped += dropped;
  p.device = device_rows(activities);
  if (activities.empty()) return;  // the program does not use it
  const int64_t start = std::chrono::duration_cast<std::chrono::nanoseconds>(began_.time_since_epoch()).count();
  const auto seconds = [&](int64_t ns) { return static_cast<double>(ns - start) * 1e-9; };
  const EventRing& events = trace_.threads[0].events;
  const double known_from = events.dropped() > 0 ? trace_.seconds(events[0].end) : 0;
  std::vector<TimeSpan> spans;
  std::vector<DeviceWork> work;
  for (const DeviceActivity& a : activities) {
    spans.push_back({seconds(a.begin_ns), seconds(a.end_ns), bucket_of(a)});
    work.push_back({a.asked_ns > 0 ? seconds(a.asked_ns) : -1, spans.back().end - spans.back().begin});
  }
  const HostZones host(trace_, events);
  add_device_time(p, host_spans(host, zones_that_ask(host, work)), spans, known_from);
  add_device_time_to_ops(p, host, work, p.wall_seconds / (p.wall_seconds - known_from));
}

}  // namespace deft::profile
