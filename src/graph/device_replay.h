// The steps of a plan on a device, recorded and launched as a whole where that can be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "runtime/recording.h"

namespace deft::graph {

class DeviceReplay {
 public:
  // can_record[i]: step i does the same each time but for the memory it works on.
  explicit DeviceReplay(std::vector<bool> can_record);

  // Runs all steps, on `stream`. `addresses`: all memory that may be another one in the next call; recordings are kept
  // for a few sets of them.
  void run(Device device, uint8_t stream, const std::vector<const void*>& addresses, FunctionRef<void(size_t)> step);

  // There were too many sets of addresses: the caller should copy to fixed places instead.
  bool wants_fixed_addresses() const { return misses_ > kMostMisses && refused_.empty(); }
  void forget() { recorded_.clear(), misses_ = 0; }
  // Why nothing is recorded; empty: it is, or there is nothing to say yet.
  const std::string& refused() const { return refused_; }
  size_t launches() const;  // per call, once recorded

 private:
  // Steps [begin, end): one launch, or one by one.
  struct Segment {
    size_t begin, end;
    bool recorded;
  };
  struct Recorded {
    std::vector<const void*> addresses;
    uint8_t stream;
    std::vector<std::unique_ptr<Recording>> segments;  // null: one by one
  };
  static constexpr int kWarmUp = 2;  // calls; kernels are chosen in the first
  static constexpr size_t kMostRecorded = 4, kMostMisses = 6;

  Recorded* find(uint8_t stream, const std::vector<const void*>& addresses);
  Recorded* record(Device device, uint8_t stream, const std::vector<const void*>& addresses,
                   FunctionRef<void(size_t)> step);

  std::vector<Segment> segments_;
  size_t steps_;
  std::vector<Recorded> recorded_;  // the last used first
  int calls_ = 0;
  size_t misses_ = 0;
  std::string refused_;
};

}  // namespace deft::graph
