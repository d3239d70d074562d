#include "profile/energy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace deft::profile {
namespace {

namespace fs = std::filesystem;

struct FakeClock final : EnergyClock {
  double time = 50;
  double now() override { return time; }
  void sleep(double seconds) override { time += seconds; }
};

// A machine that takes `watts` while time passes.
struct FakeMachine {
  FakeClock clock;
  double watts = 10, joules = 0, seen = 50;
  void advance() { joules += watts * (clock.time - seen), seen = clock.time; }
  void run(double seconds, double with_watts) {
    advance();
    watts = with_watts;
    clock.time += seconds;
    advance();
  }
};

struct FakeCounter final : EnergySource {
  FakeMachine& machine;
  double wraps = 0, share = 1;
  bool readable = true;
  explicit FakeCounter(FakeMachine& m) : machine(m) {}
  std::string name() const override { return "fake counter"; }
  bool is_counter() const override { return true; }
  double range() const override { return wraps; }
  std::optional<double> read() override {
    machine.advance();
    if (!readable) return {};
    const double value = 1000 + machine.joules * share;
    return wraps > 0 ? std::fmod(value, wraps) : value;
  }
};

struct FakeGauge final : EnergySource {
  FakeMachine& machine;
  explicit FakeGauge(FakeMachine& m) : machine(m) {}
  std::string name() const override { return "fake gauge"; }
  bool is_counter() const override { return false; }
  std::optional<double> read() override { return machine.watts; }
};

template <class Source>
EnergySources only(std::unique_ptr<Source> source) {
  EnergySources s;
  s.list.push_back(std::move(source));
  return s;
}
EnergyOptions by_hand(FakeMachine& machine) {
  EnergyOptions o;
  o.clock = &machine.clock;
  o.own_thread = false;
  return o;
}

// Nothing of a report that has no energy may be a number.
void expect_unavailable(const EnergyReport& r, const std::string& reason) {
  EXPECT_FALSE(r.joules);
  EXPECT_FALSE(r.total_joules);
  EXPECT_FALSE(r.watts);
  EXPECT_FALSE(r.idle_watts);
  EXPECT_FALSE(r.method);
  EXPECT_FALSE(r.sampling_hz);
  EXPECT_EQ(r.reason, reason);
  EXPECT_EQ(r.to_string(), "unavailable: " + reason);
}

TEST(Energy, CounterGivesExactJoules) {
  FakeMachine machine;
  EnergyMeter meter(only(std::make_unique<FakeCounter>(machine)), by_hand(machine));
  meter.start();
  machine.run(2, 35);
  meter.sample();
  machine.run(2, 45);
  const EnergyReport r = meter.stop();
  ASSERT_TRUE(r.joules && r.total_joules && r.watts && r.idle_watts && r.uncertain_joules);
  EXPECT_NEAR(*r.total_joules, 160, 1e-9);
  EXPECT_NEAR(*r.joules, 160 - 4 * 10, 1e-9);
  EXPECT_NEAR(*r.watts, 40, 1e-9);
  EXPECT_NEAR(*r.idle_watts, 10, 1e-9);
  EXPECT_NEAR(*r.uncertain_joules, 0, 1e-9);
  EXPECT_EQ(r.seconds, 4);
  EXPECT_EQ(r.method, "fake counter, minus idle power");
  EXPECT_NEAR(*r.sampling_hz, 0.5, 1e-12);
  EXPECT_EQ(r.reason, "");
  EXPECT_EQ(r.to_string(), "120 J (fake counter, minus idle power)");
}

TEST(Energy, RunsAreCountedApart) {
  FakeMachine machine;
  EnergyMeter meter(only(std::make_unique<FakeCounter>(machine)), by_hand(machine));
  for (int run = 0; run < 2; ++run) {
    machine.run(100, 77);  // between the runs
    meter.start();
    machine.run(1, 30);
    EXPECT_NEAR(meter.stop().joules.value(), 20, 1e-9);
  }
  EXPECT_THROW(meter.stop(), ValueError);
}

TEST(Energy, CounterThatWraps) {
  FakeMachine machine;
  auto counter = std::make_unique<FakeCounter>(machine);
  counter->wraps = 64;
  EnergyMeter meter(only(std::move(counter)), by_hand(machine));
  meter.start();
  for (int i = 0; i < 10; ++i) {  // 300 J in steps of 30: it wraps four or five times
    machine.run(1, 30);
    meter.sample();
  }
  const EnergyReport r = meter.stop();
  EXPECT_NEAR(r.total_joules.value(), 300, 1e-9);
  EXPECT_NEAR(r.joules.value(), 200, 1e-9);
}

TEST(Energy, GaugeIsIntegrated) {
  FakeMachine machine;
  EnergyMeter meter(only(std::make_unique<FakeGauge>(machine)), by_hand(machine));
  machine.watts = 20;
  meter.start();
  machine.run(1, 20);
  meter.sample();
  machine.watts = 40;
  machine.clock.time += 1;  // from 20 to 40 W: 30 on average
  const EnergyReport r = meter.stop();
  EXPECT_NEAR(r.total_joules.value(), 20 + 30, 1e-9);
  EXPECT_NEAR(r.joules.value(), 50 - 2 * 10, 1e-9);
}

TEST(Energy, SourcesAddUp) {
  FakeMachine machine;
  EnergySources s = only(std::make_unique<FakeCounter>(machine));
  s.list.push_back(std::make_unique<FakeGauge>(machine));
  s.missing = "no NVML";
  EnergyMeter meter(std::move(s), by_hand(machine));
  machine.run(0, 15);
  meter.start();
  machine.run(2, 15);
  const EnergyReport r = meter.stop();
  EXPECT_NEAR(r.total_joules.value(), 60, 1e-9);
  EXPECT_NEAR(r.idle_watts.value(), 20, 1e-9);
  EXPECT_EQ(r.method, "fake counter + fake gauge, minus idle power");
  EXPECT_EQ(r.to_string(), "20 J (fake counter + fake gauge, minus idle power); no NVML");
}

TEST(Energy, AbsentSourceIsUnavailable) {
  FakeMachine machine;
  EnergySources s;
  s.missing = "no RAPL counter in /sys/class/powercap";
  EnergyMeter meter(std::move(s), by_hand(machine));
  meter.start();
  machine.run(1, 30);
  expect_unavailable(meter.stop(), "no RAPL counter in /sys/class/powercap");
}

TEST(Energy, UnreadableSourceIsUnavailable) {
  FakeMachine machine;
  auto counter = std::make_unique<FakeCounter>(machine);
  FakeCounter& c = *counter;
  EnergyMeter meter(only(std::move(counter)), by_hand(machine));
  meter.start();
  machine.run(1, 30);
  c.readable = false;
  meter.sample();
  c.readable = true;
  expect_unavailable(meter.stop(), "fake counter could not be read");
}

TEST(Energy, CounterThatStandsStillIsUnavailable) {
  FakeMachine machine;
  auto counter = std::make_unique<FakeCounter>(machine);
  FakeCounter& c = *counter;
  EnergyMeter meter(only(std::move(counter)), by_hand(machine));
  c.share = 0;
  meter.start();
  machine.run(2, 30);
  expect_unavailable(meter.stop(), "fake counter stood still for 2 s");
}

TEST(Energy, CounterThatRunsBackwardsIsUnavailable) {
  FakeMachine machine;
  EnergyMeter meter(only(std::make_unique<FakeCounter>(machine)), by_hand(machine));
  meter.start();
  machine.run(1, -30);
  machine.run(5, 30);
  meter.sample();
  machine.run(1, -30);
  expect_unavailable(meter.stop(), "fake counter ran backwards");
}

TEST(Energy, WithoutIdlePowerTheTotalIsLeft) {
  FakeMachine machine;
  EnergyOptions o = by_hand(machine);
  o.idle_seconds = 0;
  EnergyMeter meter(only(std::make_unique<FakeCounter>(machine)), o);
  meter.start();
  machine.run(1, 30);
  EnergyReport r = meter.stop();
  EXPECT_FALSE(r.joules);
  EXPECT_FALSE(r.idle_watts);
  EXPECT_NEAR(r.total_joules.value(), 30, 1e-9);
  EXPECT_EQ(r.reason, "idle power was not measured");

  auto counter = std::make_unique<FakeCounter>(machine);
  FakeCounter& c = *counter;
  c.share = 0;
  EnergyMeter still(only(std::move(counter)), by_hand(machine));
  c.share = 1;
  still.start();
  machine.run(1, 30);
  r = still.stop();
  EXPECT_FALSE(r.joules);
  EXPECT_EQ(r.reason, "idle power: fake counter stood still for 0.5 s");
}

TEST(Energy, RunBelowIdlePowerIsNoNumber) {
  FakeMachine machine;
  EnergyMeter meter(only(std::make_unique<FakeCounter>(machine)), by_hand(machine));
  meter.start();
  machine.run(1, 8);
  const EnergyReport r = meter.stop();
  EXPECT_FALSE(r.joules);
  EXPECT_EQ(r.reason, "the run took 8 W, no more than idle power of 10 W");
}

TEST(Energy, UnsteadyIdlePowerIsTold) {
  struct Wavering final : EnergySource {
    int reads = 0;
    std::string name() const override { return "wavering"; }
    bool is_counter() const override { return true; }
    std::optional<double> read() override { return 10.0 * (reads++ * 3 / 2); }  // steps of 10, 20, 10, 20 J
  };
  FakeMachine machine;
  EnergyOptions o = by_hand(machine);
  o.idle_seconds = 4;
  o.sampling_hz = 1;
  EnergyMeter meter(only(std::make_unique<Wavering>()), o);
  meter.start();
  machine.run(0.5, 0);
  const EnergyReport r = meter.stop();
  EXPECT_NEAR(r.idle_watts.value(), 15, 1e-9);
  EXPECT_NEAR(r.uncertain_joules.value(), std::sqrt(100.0 / 3) * 0.5, 1e-9);
}

TEST(Energy, ThreadSamples) {
  struct Ticking final : EnergySource {
    double joules = 0;
    std::string name() const override { return "ticking"; }
    bool is_counter() const override { return true; }
    std::optional<double> read() override { return joules += 1; }
  };
  EnergyOptions o;
  o.idle_seconds = 0;
  o.sampling_hz = 1000;
  EnergyMeter meter(only(std::make_unique<Ticking>()), o);
  meter.start();
  usleep(20000);
  const EnergyReport r = meter.stop();
  ASSERT_TRUE(r.total_joules && r.sampling_hz);
  EXPECT_NEAR(*r.sampling_hz * r.seconds, *r.total_joules, 1e-6);  // a joule for each reading after the first
  EXPECT_GE(*r.total_joules, 1);
  meter.start();  // ended by the destructor
}

// --- RAPL ------------------------------------------------------------------------------------------------------------

class Powercap : public testing::Test {
 protected:
  fs::path folder = fs::temp_directory_path() / ("deft_powercap_" + std::to_string(getpid()));
  Powercap() { fs::create_directories(folder); }
  ~Powercap() override { fs::remove_all(folder); }
  void put(const std::string& file, const std::string& text) {
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << text << "\n";
  }
  void zone(const std::string& zone, const std::string& name, const std::string& microjoules) {
    put(zone + "/name", name);
    put(zone + "/energy_uj", microjoules);
    put(zone + "/max_energy_range_uj", "262143328850");
  }
};

TEST_F(Powercap, PackagesOnly) {
  zone("intel-rapl:0", "package-0", "5000000");
  zone("intel-rapl:0:0", "core", "1");
  zone("intel-rapl:1", "package-1", "7500000");
  zone("intel-rapl:2", "psys", "1");
  zone("intel-rapl-mmio:0", "package-0", "5000000");
  put("intel-rapl/enabled", "1");
  const EnergySources s = rapl_sources(folder);
  EXPECT_EQ(s.missing, "");
  ASSERT_EQ(s.list.size(), 2u);
  EXPECT_EQ(s.list[0]->name(), "RAPL package-0");
  EXPECT_EQ(s.list[1]->name(), "RAPL package-1");
  EXPECT_TRUE(s.list[0]->is_counter());
  EXPECT_NEAR(s.list[0]->read().value(), 5, 1e-12);
  EXPECT_NEAR(s.list[1]->read().value(), 7.5, 1e-12);
  EXPECT_NEAR(s.list[0]->range(), 262143.32885, 1e-9);
}

TEST_F(Powercap, RunWithWrapAround) {
  zone("intel-rapl:0", "package-0", "100000000");
  FakeMachine machine;
  EnergyOptions o = by_hand(machine);
  o.idle_seconds = 0;
  EnergyMeter meter(rapl_sources(folder), o);
  put("intel-rapl:0/energy_uj", "262143328850");
  meter.start();
  put("intel-rapl:0/energy_uj", "2000000");
  machine.clock.time += 1;
  const EnergyReport r = meter.stop();
  EXPECT_NEAR(r.total_joules.value(), 2, 1e-6);
  EXPECT_EQ(r.method, "RAPL package-0");
}

TEST_F(Powercap, UnreadableAndAbsent) {
  EXPECT_EQ(rapl_sources(folder).missing, "no RAPL counter in " + folder.string());
  EXPECT_EQ(rapl_sources(folder / "nowhere").missing, "no RAPL counter in " + (folder / "nowhere").string());
  zone("intel-rapl:0", "package-0", "5000000");
  put("intel-rapl:1/name", "package-1");  // as if its counter were for root only
  EnergySources s = rapl_sources(folder);
  EXPECT_TRUE(s.list.empty()) << "a sum without one package is wrong";
  EXPECT_TRUE(s.missing.starts_with((folder / "intel-rapl:1/energy_uj").string() + " cannot be read")) << s.missing;
  put("intel-rapl:1/energy_uj", "nonsense");
  EXPECT_TRUE(rapl_sources(folder).list.empty());
}

// --- NVML ------------------------------------------------------------------------------------------------------------

NvmlApi fake_nvml(bool counts, bool tells_power) {
  NvmlApi api;
  api.find = [](const std::string& id, void** device) {
    *device = reinterpret_cast<void*>(1);
    return id == "0" || id == "GPU-abc" ? 0 : 6;
  };
  api.energy = [=](void*, unsigned long long* mj) { return *mj = 123456, counts ? 0 : 3; };
  api.power = [=](void*, unsigned* mw) { return *mw = 70500, tells_power ? 0 : 3; };
  return api;
}

TEST(Energy, NvmlCountsOrTellsPower) {
  EnergySources s = nvml_sources(fake_nvml(true, true), "0");
  ASSERT_EQ(s.list.size(), 1u);
  EXPECT_EQ(s.list[0]->name(), "NVML GPU 0");
  EXPECT_TRUE(s.list[0]->is_counter());
  EXPECT_NEAR(s.list[0]->read().value(), 123.456, 1e-9);
  s = nvml_sources(fake_nvml(false, true), "GPU-abc");
  ASSERT_EQ(s.list.size(), 1u);
  EXPECT_EQ(s.list[0]->name(), "NVML GPU GPU-abc power");
  EXPECT_FALSE(s.list[0]->is_counter());
  EXPECT_NEAR(s.list[0]->read().value(), 70.5, 1e-9);
}

TEST(Energy, NvmlWithoutReadings) {
  EXPECT_EQ(nvml_sources({}, "0").missing, "no NVML");
  EXPECT_EQ(nvml_sources(fake_nvml(true, true), "1").missing, "NVML knows no GPU \"1\"");
  EXPECT_EQ(nvml_sources(fake_nvml(false, false), "0").missing, "GPU 0 counts no energy and tells no power");
}

TEST(Energy, VisibleGpus) {
  EXPECT_EQ(nvml_id(1, nullptr), "1");
  EXPECT_EQ(nvml_id(0, "3,GPU-abc"), "3");
  EXPECT_EQ(nvml_id(1, "3,GPU-abc"), "GPU-abc");
  EXPECT_EQ(nvml_id(2, "3,GPU-abc"), "");
}

TEST(Energy, OfThisMachine) {
  EnergyOptions o;
  o.idle_seconds = 0.02;
  EnergyMeter meter(energy_sources(kCPU), o);
  meter.start();
  const EnergyReport r = meter.stop();
  if (r.joules)
    EXPECT_GT(*r.joules, 0);
  else
    EXPECT_NE(r.reason, "");
}

}  // namespace
}  // namespace deft::profile
