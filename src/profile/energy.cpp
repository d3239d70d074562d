#include "profile/energy.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"

namespace deft::profile {

namespace {

constexpr int kLeastSlices = 4;  // of the time in which idle power is measured

class SteadyClock final : public EnergyClock {
 public:
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void sleep(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
};

EnergyClock& steady_clock() {
  static SteadyClock& clock = *new SteadyClock;  // never destroyed: threads may outlive main()
  return clock;
}

// The readings of one source since start().
class Tally {
 public:
  explicit Tally(EnergySource& source) : source_(&source) {}

  void add(double now) {
    const std::optional<double> value = source_->read();
    if (!value || !std::isfinite(*value)) {
      trouble_ = fmt::format("{} could not be read", source_->name());
      return;
    }
    if (last_) source_->is_counter() ? count(*value) : integrate(*value, now);
    last_ = value;
    time_ = now;
  }
  double joules() const { return joules_; }
  // Why `joules` is not to be trusted; "" if it is.
  std::string trouble(double seconds) const {
    if (!trouble_.empty()) return trouble_;
    if (joules_ > 0) return "";
    return fmt::format("{} stood still for {:.3g} s", source_->name(), seconds);
  }

 private:
  void count(double value) {
    double more = value - *last_;
    if (more < 0) more += source_->range();
    if (more < 0) trouble_ = fmt::format("{} ran backwards", source_->name());
    joules_ += more;
  }
  void integrate(double watts, double now) { joules_ += (watts + *last_) / 2 * (now - time_); }

  EnergySource* source_;
  std::optional<double> last_;
  double time_ = 0, joules_ = 0;
  std::string trouble_;
};

struct Power {
  double watts = 0, sd = 0;
};

}  // namespace

struct EnergyMeter::Impl {
  EnergySources sources;
  EnergyOptions options;
  EnergyClock& clock;
  std::optional<Power> idle;
  std::string idle_trouble;

  std::mutex mutex;
  std::condition_variable wake;
  bool running = false;
  std::thread thread;
  std::vector<Tally> tallies;
  double began = 0;
  int64_t samples = 0;

  Impl(EnergySources s, const EnergyOptions& o)
      : sources(std::move(s)), options(o), clock(o.clock ? *o.clock : steady_clock()) {}

  void reset() {
    tallies.clear();
    for (const auto& source : sources.list) tallies.emplace_back(*source);
    began = clock.now();
    samples = 0;
    sample();
  }
  void sample() {
    const double now = clock.now();
    for (Tally& t : tallies) t.add(now);
    ++samples;
  }
  double joules() const {
    double sum = 0;
    for (const Tally& t : tallies) sum += t.joules();
    return sum;
  }
  std::string trouble(double seconds) const {
    for (const Tally& t : tallies)
      if (std::string found = t.trouble(seconds); !found.empty()) return found;
    return "";
  }

  void measure_idle();
  void run();
  void end_thread();
  EnergyReport report();
};

void EnergyMeter::Impl::measure_idle() {
  if (sources.list.empty() || options.idle_seconds <= 0) return;
  const int slices = std::max(kLeastSlices, static_cast<int>(options.idle_seconds * options.sampling_hz));
  reset();
  std::vector<double> watts;
  double joules_before = 0, before = began;
  for (int i = 0; i < slices; ++i) {
    clock.sleep(options.idle_seconds / slices);
    sample();
    const double now = clock.now(), sum = joules();
    watts.push_back((sum - joules_before) / (now - before));
    joules_before = sum, before = now;
  }
  const double seconds = before - began;
  idle_trouble = trouble(seconds);
  if (!idle_trouble.empty()) return;
  Power p{joules_before / seconds, 0};
  for (double w : watts) p.sd += (w - p.watts) * (w - p.watts) / (slices - 1);
  p.sd = std::sqrt(p.sd);
  idle = p;
}

void EnergyMeter::Impl::run() {
  std::unique_lock lock(mutex);
  const std::chrono::duration<double> period(1 / options.sampling_hz);
  while (!wake.wait_for(lock, period, [&] { return !running; })) sample();
}

void EnergyMeter::Impl::end_thread() {
  {
    std::lock_guard lock(mutex);
    running = false;
  }
  wake.notify_all();
  if (thread.joinable()) thread.join();
}

EnergyReport EnergyMeter::Impl::report() {
  EnergyReport r;
  r.reason = sources.missing;
  if (sources.list.empty()) {
    if (r.reason.empty()) r.reason = "no source of energy readings was given";
    return r;
  }
  sample();
  r.seconds = clock.now() - began;
  if (std::string found = trouble(r.seconds); !found.empty()) {
    r.reason = found;
    return r;
  }
  std::string names;
  for (const auto& source : sources.list) names += (names.empty() ? "" : " + ") + source->name();
  r.sampling_hz = static_cast<double>(samples - 1) / r.seconds;
  r.total_joules = joules();
  r.watts = *r.total_joules / r.seconds;
  r.method = names;
  if (!idle) {
    r.reason = idle_trouble.empty() ? "idle power was not measured" : "idle power: " + idle_trouble;
    return r;
  }
  *r.method += ", minus idle power";
  r.idle_watts = idle->watts;
  const double joules = *r.total_joules - idle->watts * r.seconds;
  if (joules <= 0) {
    r.reason = fmt::format("the run took {:.4g} W, no more than idle power of {:.4g} W", *r.watts, idle->watts);
    return r;
  }
  r.joules = joules;
  r.uncertain_joules = idle->sd * r.seconds;
  return r;
}

EnergyMeter::EnergyMeter(EnergySources sources, const EnergyOptions& options)
    : impl_(std::make_unique<Impl>(std::move(sources), options)) {
  DEFT_CHECK(options.sampling_hz > 0 && std::isfinite(options.sampling_hz), ValueError,
             "EnergyMeter: {} samples per second were asked for, expected more than 0", options.sampling_hz);
  impl_->measure_idle();
}
EnergyMeter::~EnergyMeter() { impl_->end_thread(); }

void EnergyMeter::start() {
  impl_->end_thread();
  impl_->reset();
  impl_->running = true;
  if (impl_->options.own_thread && !impl_->sources.list.empty()) impl_->thread = std::thread([this] { impl_->run(); });
}

void EnergyMeter::sample() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->running) impl_->sample();
}

EnergyReport EnergyMeter::stop() {
  DEFT_CHECK(impl_->running, ValueError, "EnergyMeter: stop() without start()");
  impl_->end_thread();
  return impl_->report();
}

std::string EnergyReport::to_string() const {
  if (!joules) return "unavailable: " + reason;
  const std::string text = fmt::format("{:.4g} J ({})", *joules, *method);
  return reason.empty() ? text : fmt::format("{}; {}", text, reason);
}

}  // namespace deft::profile
