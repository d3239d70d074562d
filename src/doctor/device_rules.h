// The rules about host and device. Their inputs are plain structs, so that they can be tested without a device.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>

#include "doctor/steps.h"

namespace deft::doctor {

// A copy between host and device.
struct SeenCopy {
  bool to_host = false, pinned = false, non_blocking = false;
  const void* host = nullptr;  // the storage of the side on the host
  std::string kind;            // type and sizes: "f32[64, 10]"
  bool floating = true;
  int64_t elements = 0, bytes = 0;
  Site site;
};

// D011: values go to the host and come back in the same step, or the next one.
class DevicePingPong : public LoopRule {
 public:
  void copied(const DeviceCopy& copy) override;
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool recorded,
              const Site& site) override;
  void report(std::vector<Finding>& findings) override;

  void seen(const SeenCopy& copy);
  // An op on the host made `to` from these; whether values of a device are in it.
  bool made(std::span<const void* const> from, const void* to);

 private:
  struct Trip {
    LineRun run;
    int64_t bytes = 0;
    Site fetched_at;
    bool same_values = false;
  };
  // What came from a device in a step, and the tensors that keep these storages from being used for others.
  struct Fetched {
    std::map<const void*, Site> values;
    std::map<std::string, Site> kinds;
    std::deque<Tensor> kept;
  };
  void turn_page();
  void keep(const Tensor& t);
  const Site* source_of(const void* host) const;

  std::map<Line, Trip> trips_;
  Fetched now_, before_;
  int64_t step_ = 0;
};

// D012: the host waits for the device in every step.
class HiddenSyncs : public LoopRule {
 public:
  void host_waited(const char* what, const Site& site) override;
  void report(std::vector<Finding>& findings) override;

 private:
  struct Waits {
    LineRun run;
    std::string what;
  };
  std::map<Line, Waits> lines_;
};

// D013: copies that are to run beside the program, from memory where they cannot.
class UnpinnedCopies : public LoopRule {
 public:
  void copied(const DeviceCopy& copy) override;
  void report(std::vector<Finding>& findings) override;

  void seen(const SeenCopy& copy);

 private:
  struct Copies {
    LineRun run;
    int64_t bytes = 0;
  };
  std::map<Line, Copies> lines_;
};

}  // namespace deft::doctor
