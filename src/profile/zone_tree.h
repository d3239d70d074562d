// The zones of a thread by what they were called in: one node for each stack of names, with the time spent in it.
#pragma once

#include <string>
#include <vector>

#include "profile/hash_index.h"
#include "profile/profile.h"

namespace deft::profile {

class ZoneTree {
 public:
  struct Node {
    const char* name = "";
    const void* module = nullptr;  // an nn::Module, of which this is a call
    int32_t parent = -1;           // always a lower index
    Bucket bucket = Bucket::other;
    int64_t calls = 0;
    uint64_t self = 0;  // ticks
  };
  static constexpr int32_t kRoot = 0;
  // Programs that make modules all the time have no end of nodes: further ones share one for each bucket.
  static constexpr size_t kMaxNodes = 1 << 16;

  ZoneTree() : nodes_(1) {}
  int32_t child(int32_t parent, const char* name, const void* module, Bucket bucket);
  Node& operator[](int32_t i) { return nodes_[static_cast<size_t>(i)]; }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::vector<Node> nodes_;
  HashIndex index_;
};

std::array<double, kBucketCount> bucket_seconds(const ZoneTree& tree, double seconds_per_tick);
std::vector<FlameRow> flame_rows(const ZoneTree& tree, double seconds_per_tick);

}  // namespace deft::profile
