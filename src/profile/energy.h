// Joules of a run, from the counters of the machine, minus what it takes when idle. What cannot be read is unavailable,
// with the reason; it is never 0.
//
//   EnergyMeter meter(energy_sources(kCPU));  // measures idle power: nothing else should run
//   meter.start();
//   run();
//   EnergyReport report = meter.stop();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace deft::profile {

// A counter of energy, or a gauge of power. Used by one thread at a time.
class EnergySource {
 public:
  virtual ~EnergySource() = default;
  virtual std::string name() const = 0;  // "RAPL package-0"
  virtual bool is_counter() const = 0;
  virtual double range() const { return 0; }  // in joules, after which a counter begins again at 0; 0: never
  // Joules since whenever, or watts now; none: it could not be read.
  virtual std::optional<double> read() = 0;
};

struct EnergySources {
  std::vector<std::unique_ptr<EnergySource>> list;
  std::string missing;  // what should be there and is not: "no RAPL counter in /sys/class/powercap"
};

// The package counters of RAPL. None of them where one cannot be read: a sum without it would be wrong.
EnergySources rapl_sources(const std::string& folder = "/sys/class/powercap");

// The entry points of NVML that are used. Results: 0 is success.
struct NvmlApi {
  std::function<int(const std::string& id, void** device)> find;  // "0", or "GPU-" and a UUID
  std::function<int(void* device, unsigned long long* millijoules)> energy;
  std::function<int(void* device, unsigned* milliwatts)> power;
};
std::optional<NvmlApi> load_nvml();  // none: there is no driver library, or it does not work
// Which GPU a CUDA program sees under a number, given CUDA_VISIBLE_DEVICES; nullptr: that is not set.
std::string nvml_id(int index, const char* visible);
// The energy counter of a GPU where it has one, else its power.
EnergySources nvml_sources(const std::optional<NvmlApi>& api, const std::string& id);

// The counters for a run on the device: the packages of the CPU, and the GPU if the device is one.
EnergySources energy_sources(Device device);

// Seconds since whenever. Tests bring their own.
class EnergyClock {
 public:
  virtual ~EnergyClock() = default;
  virtual double now() = 0;
  virtual void sleep(double seconds) = 0;
};

struct EnergyOptions {
  double idle_seconds = 0.5;     // how long idle power is measured, at the beginning
  double sampling_hz = 20;       // of gauges, and of counters lest they wrap unseen
  bool own_thread = true;        // samples while the run goes on; else the caller calls sample()
  EnergyClock* clock = nullptr;  // nullptr: the steady clock
};

struct EnergyReport {
  std::optional<double> joules;        // of the run, minus idle power times its length
  std::optional<double> total_joules;  // idle power included
  std::optional<double> watts;         // on average, idle power included
  std::optional<double> idle_watts;
  std::optional<double> uncertain_joules;  // how far `joules` may be off, from the unsteadiness of idle power
  double seconds = 0;
  std::optional<std::string> method;  // "RAPL package-0 + NVML GPU 0, minus idle power"
  std::optional<double> sampling_hz;  // as it was
  std::string reason;                 // why something is missing; "" if nothing is

  // "12.5 J (RAPL package-0, minus idle power)", "unavailable: ...".
  std::string to_string() const;
};

class EnergyMeter {
 public:
  explicit EnergyMeter(EnergySources sources, const EnergyOptions& options = {});
  ~EnergyMeter();
  EnergyMeter(const EnergyMeter&) = delete;
  EnergyMeter& operator=(const EnergyMeter&) = delete;

  void start();
  void sample();
  EnergyReport stop();  // ValueError without start()

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deft::profile
