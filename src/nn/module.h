// A module: named parameters, buffers and children, and whether it trains. Derive from it and add members:
//
//   struct Net : nn::Module {
//     nn::Linear& hidden = add<nn::Linear>("hidden", 784, 128);
//     nn::Linear& out = add<nn::Linear>("out", 128, 10);
//     Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
//   };
//
// A module has an identity: it is not copied. Moving it hands over what it holds, before it is used: into a Sequential,
// out of a function. It owns its children; references to them and to parameters stay valid, also when it moves.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/state.h"
#include "core/tensor.h"

namespace deft::nn {

class Module;

namespace detail {
class WatchedCall;  // nn/watched_call.h
struct ModuleHooks;
Tensor call_hooked(Module& module, const Tensor& x, const std::function<Tensor(const Tensor&)>& forward);
}  // namespace detail

// Functions called with every call of a module (nn/module_hooks.h).
using ForwardPreHook = std::function<void(Module& module, std::vector<Tensor>& inputs)>;
using ForwardHook = std::function<void(Module& module, const std::vector<Tensor>& inputs, Tensor& output)>;
using BackwardHook =
    std::function<void(Module& module, std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs)>;
// Takes a hook off again. May outlive the module; forgetting it leaves the hook on.
class ModuleHookHandle {
 public:
  ModuleHookHandle() = default;
  void remove();

 private:
  friend class Module;
  ModuleHookHandle(std::weak_ptr<detail::ModuleHooks> hooks, uint64_t id) : hooks_(std::move(hooks)), id_(id) {}
  std::weak_ptr<detail::ModuleHooks> hooks_;
  uint64_t id_ = 0;
};

// What did not fit when a state was loaded.
struct LoadReport {
  std::vector<std::string> missing;     // the module has it, the state has not
  std::vector<std::string> unexpected;  // the state has it, the module has not
  std::vector<std::string> mismatched;  // "name: [found shape] in the state, [shape] in the module"
  bool ok() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
  std::string to_string() const;  // the whole difference, one line each
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  Module(Module&&) = default;

  // For modules of one input; others bring a forward() of their own and hide this one.
  virtual Tensor forward(const Tensor& x);
  // Calls forward(). Ops inside a layer belong to the line `site`, those inside a module of the user's to its own
  // lines.
  Tensor operator()(const Tensor& x, Site site = Site::current());

  // The name of the type as users write it, "Linear(in=784, out=128)".
  virtual std::string describe() const;
  std::string to_string() const;  // the tree of modules, one line each

  // --- What it holds. Names are dotted paths, "layer1.0.conv1.weight"; a tensor or module reached twice is listed
  // once, under its first name.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;
  NamedTensors named_buffers() const;
  std::vector<std::pair<std::string, Module*>> named_modules();  // itself first, as ""
  int64_t parameter_count() const;
  void apply(const std::function<void(Module&)>& fn);  // children first, then itself
  // Changes with the mode of a module in the tree and with the tensors it holds, not with their values. Cheap.
  uint64_t fingerprint() const;

  // --- State. Parameters and persistent buffers, without history, sharing the module's memory. As in PyTorch, what is
  // reached twice is here under each of its names.
  NamedTensors state_dict() const;
  // Copies values in, converting the type. Strict: anything missing, unexpected or of another shape throws ValueError
  // with the whole difference, before anything is written. Otherwise what fits is written, and the report says the
  // rest. Of a tensor with several names one is enough.
  LoadReport load_state_dict(const NamedTensors& state, bool strict = true);

  // --- Hooks, in the order of registration. They run in calls `module(x)` of one tensor, not in forward(x).
  // Before forward(); may replace its input.
  ModuleHookHandle register_forward_pre_hook(ForwardPreHook hook);
  // After forward(); may replace its output.
  ModuleHookHandle register_forward_hook(ForwardHook hook);
  // Once the gradient of the input is known, or that of the output where the input needs none (grad_inputs then holds
  // an undefined tensor); may replace the gradient of the input. Neither input nor output may be written in place.
  ModuleHookHandle register_full_backward_hook(BackwardHook hook);

  // --- Train and eval. A frozen module stays in eval mode whatever train() is called on its parents.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  // Frozen means frozen: no gradients (and none left over, so that no optimizer decays or moves it), batch-norm
  // statistics stand still, dropout is off. Holds for all submodules; each may be unfrozen on its own.
  void freeze();
  // Parameters that required no gradients before freeze() still require none. Train or eval mode is what the last
  // train() or eval() on this module or one above it asked for.
  void unfreeze();
  bool is_frozen() const { return frozen_; }
  void zero_grad(bool set_to_none = true);

  // --- Where and how it is stored. Call these before handing parameters to an optimizer: they replace the tensors.
  Module& to(Device device);
  Module& to(DType dtype);          // floating parameters and buffers
  Module& to(MemoryFormat format);  // 4-D parameters

 protected:
  explicit Module(bool is_layer) : is_layer_(is_layer) {}
  // Adds a child; the reference stays valid as long as this module lives.
  template <class M, class... Args>
  M& add(std::string name, Args&&... args) {
    auto child = std::make_shared<M>(std::forward<Args>(args)...);
    M& result = *child;
    add_child(std::move(name), std::move(child));
    return result;
  }
  // A child that others hold too.
  void add_child(std::string name, std::shared_ptr<Module> child);
  // Adds a parameter and makes it require gradients. An undefined tensor stands for one that is switched off (bias =
  // false).
  Tensor& parameter(std::string name, Tensor value);
  // Adds a tensor that is no parameter. Only persistent ones are part of the state.
  Tensor& buffer(std::string name, Tensor value, bool persistent = true);
  size_t child_count() const { return children_.size(); }
  Module& child(size_t i) const { return *children_[i].module; }

 private:
  friend class EvalGuard;
  friend class detail::WatchedCall;
  friend Tensor detail::call_hooked(Module&, const Tensor&, const std::function<Tensor(const Tensor&)>&);
  detail::ModuleHooks& hooks();
  Tensor call_forward(const Tensor& x, const Site& site);
  struct Entry {
    std::string name;
    Tensor tensor;
    bool is_parameter;
    bool persistent;
    bool thaws = false;  // required gradients when it was frozen
  };
  struct Child {
    std::string name;
    std::shared_ptr<Module> module;
  };
  Tensor& add_tensor(std::string name, Tensor value, bool is_parameter, bool persistent);
  void check_name(const std::string& name) const;
  // fn(prefix, module) for every module of the tree, parents first; a module reached twice only once if `once`.
  using Visitor = std::function<void(const std::string&, const Module&)>;
  void walk(const Visitor& fn, bool once = true) const;
  std::vector<Module*> all_modules() const;
  NamedTensors list_tensors(bool parameters) const;
  NamedTensors state_tensors() const;
  Module& replace_tensors(const std::function<Tensor(const Tensor&, bool is_parameter)>& fn);

  std::deque<Entry> tensors_;  // a deque: references to its elements stay valid
  std::vector<Child> children_;
  std::shared_ptr<detail::ModuleHooks> hooks_;  // none until one is registered
  bool training_ = true, wanted_training_ = true, frozen_ = false, is_layer_ = false;
};

// The modules of Deft itself: errors and profiles name the line that calls one, not the lines inside.
class Layer : public Module {
 protected:
  Layer() : Module(true) {}
};

// Puts a module into eval mode and, when it goes, every submodule back into the mode it had.
class EvalGuard {
 public:
  explicit EvalGuard(Module& module);
  ~EvalGuard();
  EvalGuard(const EvalGuard&) = delete;
  EvalGuard& operator=(const EvalGuard&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> saved_;
};

}  // namespace deft::nn
