#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/graph_stats.h"
#include "core/observer.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/optimizer_update.h"
#include "ops/ternary.h"
#include "optim/captured_call.h"

namespace deft::optim {

namespace {

std::string key(size_t index, const char* name) { return fmt::format("{}.{}", index, name); }
std::string group_key(size_t index, const char* name) { return fmt::format("groups.{}.{}", index, name); }

constexpr const char* kMaster = "master";

bool takes_part(const Tensor& param) { return param.requires_grad() && param.grad().defined(); }

}  // namespace

Optimizer::Optimizer() = default;
Optimizer::~Optimizer() = default;

void Optimizer::check_params(const std::vector<Tensor>& params) const {
  std::unordered_set<const TensorImpl*> seen;
  for (const Slot& slot : slots_) seen.insert(slot.param.impl());
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    DEFT_CHECK(p.defined(), ValueError, "{}: parameter {} of the group is undefined", name(), i);
    DEFT_CHECK(is_floating(p.dtype()), DTypeError, "{}: parameter {} of the group is {}, expected a floating type",
               name(), i, describe(p.meta()));
    DEFT_CHECK(
        p.is_leaf(), ValueError,
        "{}: parameter {} of the group is the result of {}; only leaves get gradients, so give the tensor it was "
        "made from, or detach() it",
        name(), i, p.grad_fn_name());
    DEFT_CHECK(seen.insert(p.impl()).second, ValueError,
               "{}: parameter {} of the group, {}, is in this optimizer already; give every parameter once", name(), i,
               describe(p.meta()));
  }
}

void Optimizer::add_slots(const std::vector<Tensor>& params) {
  const size_t begin = slots_.size();
  for (const Tensor& p : params) slots_.emplace_back().param = p;
  groups_.push_back({begin, slots_.size(), std::numeric_limits<double>::quiet_NaN()});
  active_.reserve(slots_.size());
  batch_.reserve(slots_.size());
}

void Optimizer::check_not_empty(size_t count, const char* what) const {
  DEFT_CHECK(count > 0, ValueError, "{}: the list of {} is empty", name(), what);
}
void Optimizer::check_group(size_t group) const {
  DEFT_CHECK(group < groups_.size(), IndexError, "{}: there is no group {}; it has {}", name(), group, groups_.size());
}

// --- Options -----------------------------------------------------------------------------------------------------

double* Optimizer::number_of(size_t group, const char* option) const {
  check_group(group);
  double* found = nullptr;
  const_cast<Optimizer*>(this)->each_option(group, [&](const Option& o) {
    if (o.number && std::strcmp(o.name, option) == 0) found = o.number;
  });
  DEFT_ASSERT(found);
  return found;
}

double Optimizer::lr(size_t group) const { return *number_of(group, "lr"); }
void Optimizer::set_lr(double lr, size_t group) {
  check_not_captured(name(), "set_lr");
  DEFT_CHECK(lr >= 0, ValueError, "{}: the learning rate must not be negative, found {}", name(), lr);
  *number_of(group, "lr") = lr;
}

bool Optimizer::has_momentum() const {
  return !groups_.empty() && const_cast<Optimizer*>(this)->momentum_of(0) != nullptr;
}
double Optimizer::momentum(size_t group) const {
  check_group(group);
  DEFT_CHECK(has_momentum(), ValueError, "{}: has neither momentum nor beta1", name());
  return *const_cast<Optimizer*>(this)->momentum_of(group);
}
void Optimizer::set_momentum(double momentum, size_t group) {
  check_not_captured(name(), "set_momentum");
  check_group(group);
  DEFT_CHECK(has_momentum(), ValueError, "{}: has neither momentum nor beta1", name());
  DEFT_CHECK(momentum >= 0 && momentum < 1, ValueError, "{}: the momentum lies in [0, 1), found {}", name(), momentum);
  *momentum_of(group) = momentum;
}

double Optimizer::initial_lr(size_t group) {
  check_group(group);
  double& initial = groups_[group].initial_lr;
  if (std::isnan(initial)) initial = lr(group);
  return initial;
}

std::vector<Tensor> Optimizer::params(size_t group) const {
  check_group(group);
  std::vector<Tensor> all;
  for (size_t i = groups_[group].begin; i < groups_[group].end; ++i) all.push_back(slots_[i].param);
  return all;
}
std::vector<Tensor> Optimizer::params() const {
  std::vector<Tensor> all;
  for (const Slot& slot : slots_) all.push_back(slot.param);
  return all;
}

// --- Steps -------------------------------------------------------------------------------------------------------

void Optimizer::zero_grad(bool set_to_none, Site site) {
  if (Observer* o = observer()) [[unlikely]]
    o->grads_cleared(this, set_to_none, effective_site(site));
  for (const Slot& slot : slots_) slot.param.zero_grad(set_to_none);
}

void Optimizer::step(const StepOptions& options, Site site) {
  DEFT_CHECK(std::isfinite(options.grad_scale), ValueError, "{}: grad_scale must be finite, found {}", name(),
             options.grad_scale);
  if (context().bits & kCapture) [[unlikely]]
    return capture_step(options, site);
  Zone zone(name(), Bucket::optimizer, site);
  if (Observer* o = observer()) [[unlikely]]
    return step_watched(*o, options, site);
  run_step(options, site);
}

void Optimizer::run_step(const StepOptions& options, const Site& site) {
  NoGradGuard quiet(site);
  SiteScope scope(site);
  for (size_t g = 0; g < groups_.size(); ++g) step_group(g, options, site);
  advance_step();
}

void Optimizer::step_watched(Observer& observer, const StepOptions& options, const Site& site) {
  std::vector<double> decay;
  for (size_t g = 0; g < groups_.size(); ++g)
    decay.insert(decay.end(), groups_[g].end - groups_[g].begin, *number_of(g, "weight_decay"));
  const std::vector<Tensor> all = params();
  const OptimizerStep step{this, name(), all, decay, effective_site(site)};
  observer.optimizer_begins(step);
  run_step(options, site);
  observer.optimizer_ends(step);
}

std::vector<Tensor> Optimizer::written_by_step() const {
  std::vector<Tensor> written;
  for (const Slot& slot : slots_) {
    if (!takes_part(slot.param)) continue;
    for (const Tensor& t : {slot.param, slot.state[0], slot.state[1], slot.state[2], slot.master})
      if (t.defined()) written.push_back(t);
  }
  return written;
}

void Optimizer::capture_step(const StepOptions& options, const Site& site) {
  CapturedCall call{name(), {}, {}, with_gradient(params()), false, effective_site(site)};
  {
    deft::detail::CapturePause pause;
    step(options, site);
    call.written = written_by_step();
  }
  note_call(std::move(call), [this, options, site, count = slots_.size()] {
    DEFT_CHECK(slots_.size() == count, CaptureError,
               "{}: has {} parameters, {} when its step was captured; compile the function again", name(),
               slots_.size(), count);
    step(options, site);
  });
}

void Optimizer::step_group(size_t group, const StepOptions& options, const Site& site) {
  active_.clear();
  for (size_t i = groups_[group].begin; i < groups_[group].end; ++i) {
    if (!takes_part(slots_[i].param)) continue;
    prepare(slots_[i], group, site);
    active_.push_back(i);
  }
  // Parameters that missed a step are behind the others: one call for each count of steps.
  std::sort(active_.begin(), active_.end(), [&](size_t a, size_t b) {
    return slots_[a].steps != slots_[b].steps ? slots_[a].steps < slots_[b].steps : a < b;
  });
  for (auto from = active_.begin(); from != active_.end();) {
    const int64_t steps = slots_[*from].steps;
    auto to = std::find_if(from, active_.end(), [&](size_t i) { return slots_[i].steps != steps; });
    step_batch(group, {from, to}, options, site);
    from = to;
  }
}

void Optimizer::step_batch(size_t group, std::span<const size_t> slots, const StepOptions& options, const Site& site) {
  struct Clear {  // keeps no gradient alive
    std::vector<UpdateTensor>& batch;
    ~Clear() { batch.clear(); }
  } clear{batch_};
  for (size_t i : slots) {
    const Slot& s = slots_[i];
    batch_.push_back({s.param, s.param.grad(), {s.state[0], s.state[1], s.state[2]}, s.master});
  }
  update(group, batch_, slots_[slots.front()].steps + 1, options.grad_scale, site);
  for (size_t i : slots) {
    ++slots_[i].steps;
    slots_[i].version = slots_[i].param.version();
  }
}

void Optimizer::prepare(Slot& slot, size_t group, const Site& site) {
  for (int k = 0; k < 3; ++k) {
    if (slot.state[k].defined() || !needs_state(group, k)) continue;
    slot.state[k] = optimizer_state(slot.param, site);
    if (initial_state(group) != 0) slot.state[k].fill_(initial_state(group), site);
    if (first_step_fills()) slot.steps = 0;
  }
  if (keeps_master(group) && size_of(slot.param.dtype()) == 2) prepare_master(slot, site);
}

void Optimizer::prepare_master(Slot& slot, const Site& site) {
  if (!slot.master.defined()) {
    slot.master = optimizer_state(slot.param, site);
    slot.master.copy_(slot.param, site);
  } else if (slot.version != slot.param.version()) {
    // The parameter was written elsewhere: elements that still equal the rounded master keep its low bits, the
    // others are copied to the master.
    Tensor same = slot.master.to(slot.param.dtype(), site) == slot.param;
    slot.master.copy_(where(same, slot.master, slot.param.to(DType::f32, site), site), site);
  }
}

// --- State -------------------------------------------------------------------------------------------------------

State Optimizer::state() const {
  State s;
  s.values["optimizer"] = std::string(name());
  s.values["groups"] = static_cast<int64_t>(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    s.values[group_key(g, "params")] = static_cast<int64_t>(groups_[g].end - groups_[g].begin);
    if (!std::isnan(groups_[g].initial_lr)) s.values[group_key(g, "initial_lr")] = groups_[g].initial_lr;
    const_cast<Optimizer*>(this)->each_option(g, [&](const Option& o) {
      s.values[group_key(g, o.name)] = o.number ? StateValue(*o.number) : StateValue(*o.flag);
    });
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.steps == 0) continue;
    s.values[key(i, "step")] = slot.steps;
    for (int k = 0; k < 3; ++k)
      if (slot.state[k].defined()) s.tensors.push_back({key(i, state_names()[k]), slot.state[k]});
    if (slot.master.defined()) s.tensors.push_back({key(i, kMaster), slot.master});
  }
  return s;
}

void Optimizer::check_fits(const State& state) const {
  const std::string kind = state.get<std::string>("optimizer");
  DEFT_CHECK(kind == name(), ValueError, "{}: this is the state of {}; load it into that kind of optimizer", name(),
             kind);
  const int64_t count = state.get<int64_t>("groups");
  DEFT_CHECK(count == static_cast<int64_t>(groups_.size()), ValueError,
             "{}: the state has {} groups, the optimizer {}; add the groups first", name(), count, groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t params = state.get<int64_t>(group_key(g, "params"));
    DEFT_CHECK(params == static_cast<int64_t>(groups_[g].end - groups_[g].begin), ValueError,
               "{}: group {} has {} parameters in the state, {} in the optimizer", name(), g, params,
               groups_[g].end - groups_[g].begin);
    const_cast<Optimizer*>(this)->each_option(g, [&](const Option& o) {
      o.number ? void(state.get<double>(group_key(g, o.name))) : void(state.get<bool>(group_key(g, o.name)));
    });
  }
}

Optimizer::Slot Optimizer::loaded(size_t index, const State& state) const {
  Slot slot;
  slot.param = slots_[index].param;
  slot.steps = state.has(key(index, "step")) ? state.get<int64_t>(key(index, "step")) : 0;
  slot.version = slot.param.version() - 1;  // the parameter may have been loaded too: compared at the next step
  auto take = [&](Tensor& to, const char* tensor) {
    const Tensor* from = find_tensor(state.tensors, key(index, tensor));
    if (!from) return;
    DEFT_CHECK(from->sizes() == slot.param.sizes(), ValueError,
               "{}: \"{}\" is {} in the state, its parameter is {}; is this the state of another model?", name(),
               key(index, tensor), describe(from->meta()), describe(slot.param.meta()));
    to = optimizer_state(slot.param);
    to.copy_(from->device() == to.device() ? *from : from->to(to.device()));
  };
  for (int k = 0; k < 3; ++k)
    if (state_names()[k]) take(slot.state[k], state_names()[k]);
  take(slot.master, kMaster);
  return slot;
}

void Optimizer::load_state(const State& state) {
  NoGradGuard quiet;
  check_fits(state);
  std::vector<Slot> fresh;
  for (size_t i = 0; i < slots_.size(); ++i) fresh.push_back(loaded(i, state));
  slots_ = std::move(fresh);
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].initial_lr = state.has(group_key(g, "initial_lr")) ? state.get<double>(group_key(g, "initial_lr"))
                                                                  : std::numeric_limits<double>::quiet_NaN();
    each_option(g, [&](const Option& o) {
      if (o.number)
        *o.number = state.get<double>(group_key(g, o.name));
      else
        *o.flag = state.get<bool>(group_key(g, o.name));
    });
  }
}

}  // namespace deft::optim
