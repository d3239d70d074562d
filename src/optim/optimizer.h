// What all optimizers share: groups of parameters with options of their own, a step over all of them, and state.
//
// A step touches the parameters that require gradients and have one. Others are left alone entirely: no decay, no
// momentum, no step counted. That holds for frozen parameters even if an old gradient is still there. A gradient of
// zeros is a gradient.
#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "core/state.h"

namespace deft {
struct UpdateTensor;  // ops/optimizer_update.h
class Observer;       // core/observer.h
}  // namespace deft

namespace deft::optim {

struct StepOptions {
  // Gradients count this many times: 1 / scale of the loss, or clip_factor(), without a pass over them.
  double grad_scale = 1;
};

// Schedules refer to it, so it is neither copied nor moved.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Nothing is recorded. All parameters of a group are checked before the first one is written. Inside a function that
  // compile() captures, plans call this object again: it must outlive them.
  void step(const StepOptions& options = {}, Site site = Site::current());
  void zero_grad(bool set_to_none = true, Site site = Site::current());  // of all parameters

  virtual const char* name() const = 0;
  size_t group_count() const { return groups_.size(); }
  std::vector<Tensor> params(size_t group) const;
  std::vector<Tensor> params() const;  // of all groups; their order numbers the state

  double lr(size_t group = 0) const;
  void set_lr(double lr, size_t group = 0);
  // The momentum of SGD and RMSprop, beta1 of Adam and its kin. ValueError where there is none.
  bool has_momentum() const;
  double momentum(size_t group = 0) const;
  void set_momentum(double momentum, size_t group = 0);
  // The rate a group had when its first schedule was made: all schedules begin there.
  double initial_lr(size_t group);

  // "0.exp_avg" and "0.step" of parameter 0, "groups.0.lr" and all other options. Tensors share the optimizer's memory:
  // clone() or save them before the next step.
  State state() const;
  // Copies values in. ValueError, before anything is changed, if the state is of another kind of optimizer, or of other
  // groups or shapes.
  void load_state(const State& state);

 protected:
  struct Option {
    const char* name;
    double* number;  // one of the two
    bool* flag;
  };
  Optimizer();
  void check_params(const std::vector<Tensor>& params) const;  // ValueError if they cannot be added
  void add_slots(const std::vector<Tensor>& params);
  void check_group(size_t group) const;
  void check_not_empty(size_t count, const char* what) const;

  // What the kind of optimizer says of a group; see grouped_optimizer.h.
  virtual void each_option(size_t group, FunctionRef<void(const Option&)> visit) = 0;
  virtual double* momentum_of(size_t group) = 0;       // null: none
  virtual const char* const* state_names() const = 0;  // three of them, null where there is none
  virtual bool needs_state(size_t group, int state) const = 0;
  virtual double initial_state(size_t group) const = 0;
  virtual bool keeps_master(size_t group) const = 0;
  virtual bool first_step_fills() const = 0;  // a state that is made later begins with a first step again
  virtual void update(size_t group, const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
                      const Site& site) = 0;

 private:
  friend class GradScaler;
  struct Slot {
    Tensor param, state[3];
    Tensor master;
    int64_t steps = 0;
    uint32_t version = 0;  // of the parameter after the last step, to notice other writers
  };
  struct Group {
    size_t begin, end;  // of its slots
    double initial_lr;  // NaN: no schedule yet
  };
  void run_step(const StepOptions& options, const Site& site);
  void step_watched(Observer& observer, const StepOptions& options, const Site& site);
  void capture_step(const StepOptions& options, const Site& site);
  std::vector<Tensor> written_by_step() const;
  double* number_of(size_t group, const char* option) const;
  void prepare(Slot& slot, size_t group, const Site& site);
  void prepare_master(Slot& slot, const Site& site);
  void step_group(size_t group, const StepOptions& options, const Site& site);
  void step_batch(size_t group, std::span<const size_t> slots, const StepOptions& options, const Site& site);
  void check_fits(const State& state) const;
  Slot loaded(size_t index, const State& state) const;

  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  // Used by every step, so that it allocates nothing.
  std::vector<size_t> active_;
  std::vector<UpdateTensor> batch_;
};

}  // namespace deft::optim
