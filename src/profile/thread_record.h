// What one thread did during a session: its zones as they are open, and what they added up to. Every tick since the
// start is in exactly one node of the tree, so that buckets add up to the time that passed.
#pragma once

#include "core/observer.h"
#include "profile/module_names.h"
#include "profile/op_table.h"
#include "profile/trace.h"
#include "profile/zone_tree.h"

namespace deft::profile {

// Note [Sampling]
// Where zones are short, recording all of them would cost more than a session may. The session then pauses part of the
// time, from one outermost zone on to a later one: steps of a loop are short there, so the recorded ones are
// extrapolated to all. Zones during a pause are only counted.
struct Allowance {                        // in ticks
  double zone = 0, short_cut = 0;         // cost of one
  uint64_t slice = 0;                     // recorded between two checks of the cost; half to one and a half of it
  double most = 1;                        // share of the time that may be spent; 1: all is recorded
  static constexpr double kPaused = 0.5;  // of the cost of a zone: one that only reads the clock
};

class ThreadRecord {
 public:
  // `profiled`: the thread of the session. Only its ops and modules are distinguished.
  ThreadRecord(uint64_t now, bool profiled, size_t ring_bytes);

  void start(uint64_t now, const Allowance& allowance = {});
  void begin(uint64_t now, const char* zone, Bucket bucket, const Site& site);
  void end(uint64_t now);  // of the innermost zone; nothing if none is open
  void kernel_ran(const KernelCall& call);
  bool module_begins(const ModuleCall& call);  // true: its names had to be asked for, which takes time
  // The time since the last event belongs to an observer, not to the program.
  void charge_observer(uint64_t now);
  void charge(uint64_t now) {                              // the time since the last event goes to the innermost zone
    const uint64_t spent = now > last_ ? now - last_ : 0;  // counters of two cores may differ a little
    last_ += spent;
    top_->node->self += spent;
    *top_->ticks += spent;
  }
  void finish(uint64_t now);  // ends all zones

  bool paused() const { return paused_; }
  // Zones during a pause. True: an outermost one, at which wake() may end the pause.
  bool begin_paused() { return ++paused_zones_, paused_depth_++ == 0; }
  bool end_paused() {
    return paused_depth_ > 0 && --paused_depth_ == 0;
  }                         // 0 before: it began under an earlier session
  bool wake(uint64_t now);  // if it is time

  const ZoneTree& tree() const { return tree_; }
  const OpTable& ops() const { return ops_; }
  const EventRing& events() const { return events_; }
  const ModuleNames& modules() const { return modules_; }
  ModuleNames& modules() { return modules_; }
  EventRing take_events() { return std::move(events_); }
  int64_t zones() const;  // that ended
  uint64_t ticks_observing() const { return observing_; }
  uint64_t ticks_paused() const { return paused_ticks_; }
  int64_t zones_paused() const { return paused_zones_; }
  int64_t short_cuts() const { return short_cuts_; }  // calls that would be faster without an observer

 private:
  using Node = ZoneTree::Node;
  struct Frame {
    OpTotal op;  // if this zone is one; its name and site in any case
    uint64_t begin = 0;
    Node* node = nullptr;
    Node** guess = nullptr;     // of the next zone inside it: Note [Guesses]
    Frame* in_op = nullptr;     // the op around it, itself included; the lowest frame: none
    uint64_t* ticks = nullptr;  // of that op, where its time counts
  };
  void open(Node& node, uint64_t now, const char* zone, const Site& site);
  void search(uint64_t now, const char* zone, Bucket bucket, const Site& site);
  void begin_after_kernel(uint64_t now, const char* zone, Bucket bucket, const Site& site);
  void end_after_kernel(uint64_t now);
  void add_op(const Frame& f) { ops_.add(f.op, f.node->op); }
  void flush_kernel();
  bool pause(uint64_t now);
  uint64_t next_slice();

  bool profiled_;
  // A kernel outside any op of its name, as plans run them: its type and work are reported after it. Until then its
  // frame stays where it was, above the innermost one.
  bool kernel_waits_ = false;
  std::unique_ptr<Frame[]> stack_;  // the program itself at the bottom
  Frame* top_;                      // the innermost
  uint64_t last_;                   // tick of the last event
  ZoneTree tree_;
  OpTable ops_;
  ModuleNames modules_;
  EventRing events_;
  uint64_t observing_ = 0;
  int64_t short_cuts_ = 0;

  Allowance allowance_;
  uint64_t started_ = 0, record_until_ = UINT64_MAX;
  uint32_t random_ = 1;  // slices of one length might keep step with the program
  int64_t opened_ = 0;
  bool paused_ = false;
  int paused_depth_ = 0;
  uint64_t pause_began_ = 0, wake_at_ = 0, paused_ticks_ = 0;
  int64_t paused_zones_ = 0;
};

}  // namespace deft::profile
