// The zones of a thread by what they were called in: one node for each stack of names, with the time spent in it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "profile/hash_index.h"
#include "profile/profile.h"

namespace deft::profile {

class ZoneTree {
 public:
  // What is so of every zone of a node, because of the zones around it.
  enum Trait : uint16_t {
    kOp = 1,           // has a row in the op table
    kWorks = 2,        // what an op is for, not what comes with it
    kSticky = 4,       // everything inside counts as this
    kBackward = 8,     // inside a backward pass
    kKernelOfOp = 16,  // the kernel of the op right around it
    kInModule = 32,    // a call of a module, or inside one
  };
  struct Kind {
    Bucket opened = Bucket::other;  // by the zone
    Bucket bucket = Bucket::other;  // where its time counts
    uint16_t traits = 0;
    bool operator==(const Kind&) const = default;
  };
  // Note [Guesses]
  // Programs repeat themselves: what began after the begin or the end of a zone last time mostly does so again. A guess
  // is compared with what is looked for, so that a wrong one costs a search and nothing else.
  struct Node {
    const char* name = "";
    Node* parent = nullptr;
    const void* module = nullptr;  // an nn::Module, of which this is a call
    Kind kind;
    int32_t index = 0;            // higher than the parent's
    int32_t op = -1;              // row of the op table its last call went to
    Node* after[2] = {};          // what began after its begin, after its end
    Node* next_module = nullptr;  // of the modules called there, the one called after it
    int64_t calls = 0;
    uint64_t self = 0;  // ticks
  };
  // Programs that make modules all the time have no end of nodes: further ones share one for each kind.
  static constexpr size_t kMaxNodes = 1 << 16;

  ZoneTree();
  ZoneTree(const ZoneTree&) = delete;
  ZoneTree& operator=(const ZoneTree&) = delete;
  Node& root() { return nodes_.front(); }
  Node& child(Node& parent, const char* name, const void* module, const Kind& kind);
  const std::deque<Node>& nodes() const { return nodes_; }  // by index

 private:
  std::deque<Node> nodes_;  // stay where they are
  HashIndex index_;
};

std::array<double, kBucketCount> bucket_seconds(const ZoneTree& tree, double seconds_per_tick);
std::vector<FlameRow> flame_rows(const ZoneTree& tree, double seconds_per_tick);

}  // namespace deft::profile
