// Time and work by op: a row for each name, line, direction, type and bucket.
#pragma once

#include <vector>

#include "profile/hash_index.h"
#include "profile/profile.h"

namespace deft::profile {

// Calls of an op so far, in ticks.
struct OpTotal {
  const char* name = "";
  Site site;
  Bucket bucket = Bucket::dispatch;
  bool backward = false;
  bool on_device = false;
  DType dtype = DType::f32;
  int64_t calls = 1;
  uint64_t kernel = 0, overhead = 0;
  double flops = 0, bytes = 0;
};

class OpTable {
 public:
  // `row`: where the last one like it went, or -1; where this one went.
  void add(const OpTotal& op, int32_t& row);
  std::vector<OpRow> rows(double seconds_per_tick) const;  // the longest first

 private:
  int32_t find(const OpTotal& op);

  std::vector<OpTotal> totals_;
  HashIndex index_;
};

}  // namespace deft::profile
