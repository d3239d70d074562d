#include "profile/thread_record.h"

#include <algorithm>
#include <cstring>

#include "profile/work.h"

namespace deft::profile {

namespace {

bool is_sticky(Bucket b) { return b == Bucket::data_wait || b == Bucket::optimizer; }
bool is_work(Bucket b) { return is_kernel(b) || is_sticky(b) || b == Bucket::copy || b == Bucket::sync; }

void add_work(OpTotal& op, const KernelCall& call) {
  const Work work = work_of(call);
  op.flops += work.flops;
  op.bytes += work.bytes;
  const bool made = call.def.info.outputs && call.out().defined();
  if (!made && !call.has(0)) return;
  const Tensor& result = made ? call.out() : call.in();
  op.on_device = !result.device().is_cpu();
  if (op.on_device && op.bucket == Bucket::dispatch) op.bucket = kernel_bucket(call.def.info);  // it had no zone
  // Results of 16-bit GEMMs may be kept as f32.
  op.dtype = (op.bucket == Bucket::linear_algebra && call.has(0) ? call.in() : result).dtype();
}

// What a zone is inside one of the kind `outer`; of_op: that is an op of the same name.
ZoneTree::Kind kind_of(const ZoneTree::Kind& outer, bool of_op, const char* zone, Bucket bucket) {
  const bool in_sticky = outer.traits & ZoneTree::kSticky;
  int traits = outer.traits & (ZoneTree::kSticky | ZoneTree::kBackward | ZoneTree::kInModule);
  if (is_sticky(bucket)) traits |= ZoneTree::kSticky;
  if (is_work(bucket)) traits |= ZoneTree::kWorks;
  if (bucket == Bucket::autograd && std::strcmp(zone, "backward") == 0) traits |= ZoneTree::kBackward;
  if (bucket == Bucket::dispatch || (is_kernel(bucket) && !of_op) || (is_sticky(bucket) && !in_sticky))
    traits |= ZoneTree::kOp;
  else if (is_kernel(bucket))
    traits |= ZoneTree::kKernelOfOp;
  return {bucket, in_sticky ? outer.bucket : bucket, static_cast<uint16_t>(traits)};
}

}  // namespace

// The caller that reports zones respects kDeepestZone.
ThreadRecord::ThreadRecord(uint64_t now, bool profiled, size_t ring_bytes)
    : profiled_(profiled),
      stack_(std::make_unique<Frame[]>(kDeepestZone + 1)),
      top_(stack_.get()),
      last_(now),
      events_(ring_bytes) {
  top_->node = &tree_.root();
  top_->guess = &tree_.root().after[0];
  top_->in_op = top_;
  top_->ticks = &top_->op.overhead;
}

int64_t ThreadRecord::zones() const {
  int64_t zones = 0;
  for (const Node& n : tree_.nodes()) zones += n.calls;
  return zones;
}

void ThreadRecord::start(uint64_t now, const Allowance& allowance) {
  last_ = started_ = now;
  allowance_ = allowance;
  record_until_ = allowance.most < 1 && allowance.slice > 0 ? now + next_slice() : UINT64_MAX;
}

uint64_t ThreadRecord::next_slice() {
  random_ = random_ * 1664525u + 1013904223u;
  return allowance_.slice / 2 + (allowance_.slice * (random_ >> 16) >> 16);
}

// At an outermost zone, when a slice is over. Pauses so long that the cost of recording meets the allowance.
[[gnu::noinline]] bool ThreadRecord::pause(uint64_t now) {
  constexpr double kLongest = 9;  // slices
  const double recorded = static_cast<double>(now - started_ - paused_ticks_);
  const double cost =
      static_cast<double>(opened_) * allowance_.zone + static_cast<double>(short_cuts_) * allowance_.short_cut;
  const double share = cost / std::max(recorded, 1.0);
  const uint64_t slice = next_slice();
  record_until_ = now + slice;
  if (share <= allowance_.most) return false;
  const double slices = std::min(share / allowance_.most - 1, kLongest);
  paused_ = true;
  pause_began_ = now;
  wake_at_ = now + static_cast<uint64_t>(slices * static_cast<double>(slice));
  begin_paused();
  return true;
}

bool ThreadRecord::wake(uint64_t now) {
  if (now < wake_at_) return false;
  if (TraceEvent* e = events_.next()) *e = {.begin = pause_began_, .end = now, .name = "(not recorded)", .site = {}};
  paused_ticks_ += now - pause_began_;
  paused_ = false;
  paused_depth_ = 0;
  last_ = now;
  record_until_ = now + next_slice();
  return true;
}

void ThreadRecord::charge_observer(uint64_t now) {
  if (paused_) return;
  const uint64_t spent = now > last_ ? now - last_ : 0;
  last_ += spent;
  observing_ += spent;
  tree_.child(tree_.root(), "(observing)", nullptr, {}).self += spent;
}

[[gnu::always_inline]] inline void ThreadRecord::open(Node& node, uint64_t now, const char* zone, const Site& site) {
  ++opened_;
  Frame& outer = *top_;
  Frame& f = *++top_;
  outer.guess = &node.after[1];
  f.op.name = zone;
  f.op.site = site;
  f.begin = now;
  f.node = &node;
  f.guess = &node.after[0];
  f.in_op = outer.in_op;
  const ZoneTree::Kind kind = node.kind;
  if (kind.traits & ZoneTree::kOp) {
    f.in_op = &f;
    f.op.bucket = kind.bucket;
    f.op.backward = kind.traits & ZoneTree::kBackward;
    f.op.on_device = false;
    f.op.dtype = DType::f32;
    f.op.kernel = f.op.overhead = 0;
    f.op.flops = f.op.bytes = 0;
  } else if (kind.traits & ZoneTree::kKernelOfOp) {
    outer.op.bucket = kind.bucket;  // an op counts where its kernel does
  }
  f.ticks = kind.traits & ZoneTree::kWorks ? &f.in_op->op.kernel : &f.in_op->op.overhead;
}

// Note [Tail calls]
// What is rare in begin() and end() is called last, in functions of their own: so these two save no registers.

void ThreadRecord::begin(uint64_t now, const char* zone, Bucket bucket, const Site& site) {
  if (kernel_waits_) [[unlikely]]
    return begin_after_kernel(now, zone, bucket, site);
  charge(now);
  if (now >= record_until_ && top_ == stack_.get()) [[unlikely]]
    if (pause(now)) return;
  Node& guess = **top_->guess;
  if (guess.name != zone || guess.parent != top_->node || guess.kind.opened != bucket) [[unlikely]]
    return search(now, zone, bucket, site);
  open(guess, now, zone, site);
}

[[gnu::noinline]] void ThreadRecord::search(uint64_t now, const char* zone, Bucket bucket, const Site& site) {
  Node& outer = *top_->node;
  const bool of_op = outer.kind.traits & ZoneTree::kOp && top_->op.name == zone;
  Node& found = tree_.child(outer, zone, nullptr, kind_of(outer.kind, of_op, zone, bucket));
  *top_->guess = &found;
  open(found, now, zone, site);
}

[[gnu::noinline]] void ThreadRecord::begin_after_kernel(uint64_t now, const char* zone, Bucket bucket,
                                                        const Site& site) {
  flush_kernel();
  begin(now, zone, bucket, site);
}

void ThreadRecord::end(uint64_t now) {
  if (top_ == stack_.get()) return;  // it began under an earlier session
  if (kernel_waits_) [[unlikely]]
    return end_after_kernel(now);
  charge(now);
  const Frame& f = *top_--;
  ++f.node->calls;
  const ZoneTree::Kind kind = f.node->kind;
  if (TraceEvent* e = events_.next()) {
    e->begin = f.begin;
    e->end = now;
    e->name = f.op.name;
    e->site = f.op.site;
    e->bucket = kind.bucket;
    e->depth = static_cast<uint16_t>(top_ - stack_.get());
  }
  if (!(kind.traits & ZoneTree::kOp) || !profiled_) return;
  if (is_kernel(kind.bucket))
    kernel_waits_ = true;
  else
    add_op(f);
}

[[gnu::noinline]] void ThreadRecord::end_after_kernel(uint64_t now) {
  flush_kernel();
  end(now);
}

// Small elementwise ops on the CPU, which take a shorter path (ops/elementwise.cpp) where no observer runs.
static bool has_short_cut(const KernelCall& call) {
  constexpr int64_t kSmall = 32768;
  return call.def.elementwise && call.def.info.outputs && call.out().defined() && call.out().numel() <= kSmall &&
         call.out().device().is_cpu();
}

void ThreadRecord::kernel_ran(const KernelCall& call) {
  if (!profiled_ || paused_) return;
  short_cuts_ += has_short_cut(call);
  if (kernel_waits_ && top_[1].op.name == call.def.info.name) {
    add_work(top_[1].op, call);
    flush_kernel();
  } else if (top_->in_op == top_ && top_->op.name == call.def.info.name) {
    add_work(top_->op, call);
  } else if (top_->node->kind.bucket == Bucket::optimizer) {
    add_work(top_->in_op->op, call);  // a pass over many tensors, which has no zone of its own
  }
}

bool ThreadRecord::module_begins(const ModuleCall& call) {
  if (!profiled_ || paused_ || std::strcmp(top_->op.name, "module") != 0) return false;
  Node& parent = *top_->node->parent;
  ZoneTree::Kind kind = top_->node->kind;
  const bool outermost = !(kind.traits & ZoneTree::kInModule);
  kind.traits |= ZoneTree::kInModule;
  // All modules called here share the node the zone has so far. Nothing begins in that: its guess is the last module.
  Node& last = **top_->guess;
  Node* node = last.next_module;
  const bool guessed = node && node->module == call.module && node->parent == &parent && node->kind == kind;
  const char* name = guessed ? node->name : modules_.find(call.module);
  const bool asked = !name;
  if (asked) name = modules_.ask(call, outermost);
  if (!guessed) last.next_module = node = &tree_.child(parent, name, call.module, kind);
  *top_->guess = node;
  top_->op.name = name;
  top_->node = node;
  top_->guess = &node->after[0];
  top_[-1].guess = &node->after[1];
  return asked;
}

void ThreadRecord::finish(uint64_t now) {
  if (paused_) {
    wake_at_ = now;
    wake(now);
  }
  while (top_ != stack_.get()) end(now);
  if (kernel_waits_) flush_kernel();
  charge(now);
}

void ThreadRecord::flush_kernel() {
  add_op(top_[1]);
  kernel_waits_ = false;
}

}  // namespace deft::profile
