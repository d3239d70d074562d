// Events of tensors for observers: the profiler, which counts work, and the doctor, which looks for mistakes. Threads
// without kProfile notify nobody; see runtime/profile_hook.h for the times.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "core/op.h"
#include "runtime/profile_hook.h"

namespace deft {

// A call of a module, which may be gone later: observers ask for what they need during the call.
struct ModuleCall {
  const void* module;  // an nn::Module
  std::string (*describe)(const void* module);
  // All modules of its tree by dotted name, itself first, as "".
  std::vector<std::pair<std::string, const void*>> (*tree)(const void* module);
  bool training, frozen;
  bool layer;  // one of Deft's own
  Site site;   // of the call
};

struct OptimizerStep {
  const void* optimizer;  // an optim::Optimizer
  const char* name;
  std::span<const Tensor> params;        // of all groups
  std::span<const double> weight_decay;  // one for each of them
  Site site;
};

struct DeviceCopy {
  const Tensor& from;
  const Tensor& to;
  bool pinned;        // the side on the host is
  bool non_blocking;  // the caller asked for it
  Site site;
};

class Observer {
 public:
  virtual ~Observer() = default;

  // A kernel of an eager op or of a plan is done (on a device: enqueued). Views run none.
  virtual void kernel_ran(const KernelCall&, const Site&) {}
  // An eager op is done, in place or not; `recorded`: it has a node in the graph now. Sites are the user's lines.
  virtual void op_ran(const OpDef&, std::span<const Tensor* const> /*inputs*/, std::span<const Tensor> /*outputs*/,
                      bool /*recorded*/, const Site&) {}

  virtual void backward_begins(std::span<const Tensor> /*roots*/, const BackwardOptions&, const Site&) {}
  virtual void node_ran(const Node&) {}  // its formula, in a backward pass
  virtual void backward_ends() {}        // also by an exception

  virtual void requires_grad_set(const Tensor&, bool /*on*/, const Site&) {}
  // A GradError, InferenceError or InplaceError is about to be thrown.
  virtual void refused(const char* /*op*/, const std::string& /*message*/, const Site&) {}
  virtual void host_read(const Tensor&, double /*value*/, const Site&) {}  // item()
  // Between devices: by to(), copy_(), copy_async(), or a value that the host reads.
  virtual void copied(const DeviceCopy&) {}

  virtual void module_begins(const ModuleCall&) {}
  virtual void module_ends(const ModuleCall&) {}
  virtual void optimizer_begins(const OptimizerStep&) {}
  virtual void optimizer_ends(const OptimizerStep&) {}
  virtual void grads_cleared(const void* /*optimizer*/, bool /*to_none*/, const Site&) {}

  virtual void batch_loaded(const void* /*loader*/, int64_t /*rows*/, double /*seconds_waited*/, const Site&) {}
  // A batch of sequences was padded: their lengths, and the places of the batch, padding included.
  virtual void padded(std::span<const int64_t> /*lengths*/, int64_t /*places*/, const Site&) {}
  // A function given to compile() could not use one of its plans. The line is that of compile().
  virtual void plan_missed(const void* /*compiled*/, const std::string& /*reason*/, const Site&) {}
  virtual void plan_ran(const void* /*compiled*/, const Site&) {}  // it used one, whether made just now or not
  virtual void host_waited(const char* /*what*/, const Site&) {}   // for a device; see runtime/sync.h
  virtual void function_ran(const Node&) {}  // a custom function (core/function.h) is in the graph now
};

// nullptr removes it; it must outlive the ops in progress.
void set_observer(Observer* observer);

namespace detail {
Observer* active_observer();
}
// The observer of this thread, or null.
inline Observer* observer() { return context().bits & kProfile ? detail::active_observer() : nullptr; }

// Where the time of a kernel belongs.
inline Bucket kernel_bucket(const OpInfo& info) {
  return info.cost == Cost::compute_bound ? Bucket::linear_algebra : Bucket::kernel;
}

}  // namespace deft
