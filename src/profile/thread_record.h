// What one thread did during a session: its zones as they are open, and what they added up to. Every tick since the
// start is in exactly one node of the tree, so that buckets add up to the time that passed.
#pragma once

#include "core/observer.h"
#include "profile/module_names.h"
#include "profile/op_table.h"
#include "profile/trace.h"
#include "profile/zone_tree.h"

namespace deft::profile {

class ThreadRecord {
 public:
  // `profiled`: the thread of the session. Only its ops and modules are told apart.
  ThreadRecord(uint64_t now, bool profiled, size_t ring_bytes);

  void start(uint64_t now) { last_ = now; }
  void begin(uint64_t now, const char* zone, Bucket bucket, const Site& site);
  void end(uint64_t now);  // of the innermost zone; nothing if none is open
  void kernel_ran(const KernelCall& call);
  bool module_begins(const ModuleCall& call);  // true: its names had to be asked for, which takes time
  // The time since the last event was somebody's who looks on, not the program's.
  void looked_on(uint64_t now);
  void charge(uint64_t now);  // the time since the last event goes to the innermost zone
  void finish(uint64_t now);  // ends all zones

  const ZoneTree& tree() const { return tree_; }
  const OpTable& ops() const { return ops_; }
  const EventRing& events() const { return events_; }
  const ModuleNames& modules() const { return modules_; }
  ModuleNames& modules() { return modules_; }
  EventRing take_events() { return std::move(events_); }
  int64_t zones() const { return zones_; }
  uint64_t ticks_looked_on() const { return looked_on_; }

 private:
  struct Frame {
    OpTotal op;  // if this zone is one; its name and site in any case
    uint64_t begin = 0;
    int32_t node = ZoneTree::kRoot;
    int32_t in_op = -1;             // the frame of the op around it, itself included
    Bucket bucket = Bucket::other;  // where its time counts
    bool is_op = false;
    bool works = false;   // what an op is for, not what comes with it
    bool sticky = false;  // everything inside counts as this
    bool in_module = false;
  };
  void flush_kernel();

  bool profiled_;
  std::vector<Frame> stack_;  // the program itself at the bottom
  uint64_t last_;             // tick of the last event
  ZoneTree tree_;
  OpTable ops_;
  ModuleNames modules_;
  EventRing events_;
  // A kernel outside any op of its name, as plans run them: its type and work are told after it.
  OpTotal kernel_;
  bool has_kernel_ = false;
  int64_t zones_ = 0;
  uint64_t looked_on_ = 0;
};

}  // namespace deft::profile
