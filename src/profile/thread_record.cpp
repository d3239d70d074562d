#include "profile/thread_record.h"

#include <cstring>

#include "profile/work.h"

namespace deft::profile {

namespace {

bool is_sticky(Bucket b) { return b == Bucket::data_wait || b == Bucket::optimizer; }
bool is_kernel(Bucket b) { return b == Bucket::linear_algebra || b == Bucket::kernel; }
bool is_work(Bucket b) { return is_kernel(b) || is_sticky(b) || b == Bucket::copy || b == Bucket::sync; }

void add_work(OpTotal& op, const KernelCall& call) {
  const Work work = work_of(call);
  op.flops += work.flops;
  op.bytes += work.bytes;
  if (call.def.info.outputs && call.out().defined())
    op.dtype = call.out().dtype();
  else if (call.has(0))
    op.dtype = call.in().dtype();
}

}  // namespace

ThreadRecord::ThreadRecord(uint64_t now, bool profiled, size_t ring_bytes)
    : profiled_(profiled), last_(now), events_(ring_bytes) {
  stack_.reserve(64);
  stack_.emplace_back();
}

void ThreadRecord::charge(uint64_t now) {
  const Frame& top = stack_.back();
  const uint64_t spent = now > last_ ? now - last_ : 0;  // counters of two cores may differ a little
  last_ += spent;
  tree_[top.node].self += spent;
  if (top.in_op < 0) return;
  OpTotal& op = stack_[static_cast<size_t>(top.in_op)].op;
  (top.works ? op.kernel : op.overhead) += spent;
}

void ThreadRecord::looked_on(uint64_t now) {
  const uint64_t spent = now > last_ ? now - last_ : 0;
  last_ += spent;
  looked_on_ += spent;
  tree_[tree_.child(ZoneTree::kRoot, "(looking on)", nullptr, Bucket::other)].self += spent;
}

void ThreadRecord::begin(uint64_t now, const char* zone, Bucket bucket, const Site& site) {
  if (has_kernel_) flush_kernel();
  charge(now);
  ++zones_;
  const size_t at = stack_.size();
  Frame& f = stack_.emplace_back();
  const Frame& outer = stack_[at - 1];
  f.begin = now;
  f.bucket = outer.sticky ? outer.bucket : bucket;
  f.sticky = outer.sticky || is_sticky(bucket);
  f.works = is_work(bucket);
  f.in_module = outer.in_module;
  f.in_op = outer.in_op;
  f.op.name = zone;
  f.op.site = site;
  f.op.bucket = f.bucket;
  f.op.backward = outer.op.backward || (bucket == Bucket::autograd && std::strcmp(zone, "backward") == 0);
  f.node = tree_.child(outer.node, zone, nullptr, f.bucket);
  const bool of_outer = outer.is_op && outer.op.name == zone;
  f.is_op = bucket == Bucket::dispatch || (is_kernel(bucket) && !of_outer) || (f.sticky && !outer.sticky);
  if (f.is_op)
    f.in_op = static_cast<int32_t>(at);
  else if (of_outer && is_kernel(bucket))
    stack_[at - 1].op.bucket = f.bucket;  // an op counts where its kernel does
}

void ThreadRecord::end(uint64_t now) {
  if (stack_.size() == 1) return;  // it began under an earlier session
  if (has_kernel_) flush_kernel();
  charge(now);
  const Frame& f = stack_.back();
  ++tree_[f.node].calls;
  events_.push({f.begin, now, f.op.name, f.op.site, f.bucket, static_cast<uint16_t>(stack_.size() - 2)});
  if (f.is_op && profiled_) {
    if (is_kernel(f.bucket)) {
      kernel_ = f.op;
      has_kernel_ = true;
    } else {
      ops_.add(f.op);
    }
  }
  stack_.pop_back();
}

void ThreadRecord::kernel_ran(const KernelCall& call) {
  if (!profiled_) return;
  Frame& top = stack_.back();
  if (has_kernel_ && kernel_.name == call.def.info.name) {
    add_work(kernel_, call);
    flush_kernel();
  } else if (top.is_op && top.op.name == call.def.info.name) {
    add_work(top.op, call);
  }
}

bool ThreadRecord::module_begins(const ModuleCall& call) {
  Frame& top = stack_.back();
  if (!profiled_ || std::strcmp(top.op.name, "module") != 0) return false;
  const char* const known = modules_.find(call.module);
  top.op.name = known ? known : modules_.ask(call, !top.in_module);
  top.in_module = true;
  top.node = tree_.child(tree_[top.node].parent, top.op.name, call.module, top.bucket);
  return !known;
}

void ThreadRecord::finish(uint64_t now) {
  while (stack_.size() > 1) end(now);
  if (has_kernel_) flush_kernel();
  charge(now);
}

void ThreadRecord::flush_kernel() {
  ops_.add(kernel_);
  has_kernel_ = false;
}

}  // namespace deft::profile
