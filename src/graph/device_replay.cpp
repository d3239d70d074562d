#include "graph/device_replay.h"

#include <algorithm>

#include "base/error.h"

namespace deft::graph {

namespace {
constexpr size_t kWorthIt = 2;  // steps
}

DeviceReplay::DeviceReplay(std::vector<bool> can_record) : steps_(can_record.size()) {
  for (size_t i = 0; i < steps_;) {
    size_t end = i + 1;
    while (end < steps_ && can_record[end] == can_record[i]) ++end;
    segments_.push_back({i, end, can_record[i] && end - i >= kWorthIt});
    i = end;
  }
}

size_t DeviceReplay::launches() const {
  size_t sum = 0;
  for (const Segment& s : segments_) sum += s.recorded ? 1 : s.end - s.begin;
  return sum;
}

DeviceReplay::Recorded* DeviceReplay::find(uint8_t stream, const std::vector<const void*>& addresses) {
  for (size_t i = 0; i < recorded_.size(); ++i) {
    if (recorded_[i].stream != stream || recorded_[i].addresses != addresses) continue;
    std::rotate(recorded_.begin(), recorded_.begin() + static_cast<std::ptrdiff_t>(i),
                recorded_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return &recorded_.front();
  }
  return nullptr;
}

// Nothing runs here. Steps that cannot be recorded run one by one from now on.
DeviceReplay::Recorded* DeviceReplay::record(Device device, uint8_t stream, const std::vector<const void*>& addresses,
                                             FunctionRef<void(size_t)> step) {
  Recorded r{addresses, stream, {}};
  try {
    for (const Segment& s : segments_) {
      auto enqueue = [&] {
        for (size_t i = s.begin; i < s.end; ++i) step(i);
      };
      r.segments.push_back(s.recorded ? record_work(device, stream, enqueue) : nullptr);
    }
  } catch (const DeviceError& error) {
    refused_ = error.what();
    recorded_.clear();
    return nullptr;
  }
  if (recorded_.size() == kMostRecorded) recorded_.pop_back();
  recorded_.insert(recorded_.begin(), std::move(r));
  return &recorded_.front();
}

void DeviceReplay::run(Device device, uint8_t stream, const std::vector<const void*>& addresses,
                       FunctionRef<void(size_t)> step) {
  Recorded* r = nullptr;
  if (refused_.empty() && ++calls_ > kWarmUp) {
    r = find(stream, addresses);
    misses_ = r ? 0 : misses_ + 1;
    if (!r) r = record(device, stream, addresses, step);
  }
  for (size_t n = 0; n < segments_.size(); ++n) {
    const Segment& s = segments_[n];
    if (r && r->segments[n]) {
      r->segments[n]->launch();
      continue;
    }
    for (size_t i = s.begin; i < s.end; ++i) step(i);
  }
}

}  // namespace deft::graph
