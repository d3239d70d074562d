#include "nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "core/grad_mode.h"
#include "nn/module_hooks.h"
#include "nn/watched_call.h"

namespace deft::nn {

// --- Describing ------------------------------------------------------------------------------------------------

namespace {

// The name of a type without its namespaces.
std::string short_type_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  size_t last = name.rfind("::", name.find('<'));
  return last == std::string::npos ? name : name.substr(last + 2);
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void append_lines(std::string& text, const char* title, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) text += std::string(text.empty() ? "" : "\n") + title + " " + line;
}

}  // namespace

std::string LoadReport::to_string() const {
  std::string text;
  append_lines(text, "missing:", missing);
  append_lines(text, "unexpected:", unexpected);
  append_lines(text, "of another shape:", mismatched);
  return text;
}

Tensor Module::forward(const Tensor&) {
  DEFT_FAIL(UnsupportedError, "{}: has no forward() of one tensor; call the forward() it brings", describe());
}

namespace {

// While a module of the user's runs, ops belong to its own lines again.
class OwnLines {
 public:
  OwnLines() : had_(std::exchange(context().has_outer_site, false)) {}
  ~OwnLines() { context().has_outer_site = had_; }
  OwnLines(const OwnLines&) = delete;
  OwnLines& operator=(const OwnLines&) = delete;

 private:
  bool had_;
};

}  // namespace

namespace detail {

WatchedCall::WatchedCall(const Module& module, const Site& site)
    : observer_(deft::observer()), zone_("module", Bucket::other, site) {
  if (!observer_) [[likely]]
    return;
  call_ = {.module = &module,
           .describe = [](const void* m) { return static_cast<const Module*>(m)->describe(); },
           .tree =
               [](const void* m) {
                 std::vector<std::pair<std::string, const void*>> all;
                 for (auto& [name, child] : const_cast<Module*>(static_cast<const Module*>(m))->named_modules())
                   all.emplace_back(name, child);
                 return all;
               },
           .training = module.is_training(),
           .frozen = module.is_frozen(),
           .layer = module.is_layer_,
           .site = effective_site(site)};
  observer_->module_begins(call_);
}
WatchedCall::~WatchedCall() {
  if (observer_) [[unlikely]]
    observer_->module_ends(call_);
}

}  // namespace detail

Tensor Module::operator()(const Tensor& x, Site site) {
  DEFT_CHECK(x.defined(), ValueError, "{}: the input is an undefined tensor", describe());
  detail::WatchedCall watched(*this, site);
  if (hooks_) [[unlikely]]
    return detail::call_hooked(*this, x, [&](const Tensor& input) { return call_forward(input, site); });
  return call_forward(x, site);
}

Tensor Module::call_forward(const Tensor& x, const Site& site) {
  if (is_layer_) {
    SiteScope scope(site);
    return forward(x);
  }
  OwnLines scope;
  return forward(x);
}

std::string Module::describe() const { return short_type_name(typeid(*this)); }

std::string Module::to_string() const {
  std::string text;
  walk(
      [&](const std::string& path, const Module& m) {
        size_t last = path.rfind('.');
        auto depth = static_cast<size_t>(std::count(path.begin(), path.end(), '.')) + !path.empty();
        text += std::string(2 * depth, ' ');
        if (!path.empty()) text += path.substr(last == std::string::npos ? 0 : last + 1) + ": ";
        text += m.describe() + "\n";
      },
      false);
  text.pop_back();
  return text;
}

// --- Walking the tree ------------------------------------------------------------------------------------------

void Module::walk(const Visitor& fn, bool once) const {
  std::unordered_set<const Module*> seen;
  auto visit = [&](auto& self, const std::string& prefix, const Module& m) -> void {
    if (once && !seen.insert(&m).second) return;
    fn(prefix, m);
    for (const Child& child : m.children_) self(self, join(prefix, child.name), *child.module);
  };
  visit(visit, "", *this);
}

std::vector<Module*> Module::all_modules() const {
  std::vector<Module*> modules;
  walk([&](const std::string&, const Module& m) { modules.push_back(const_cast<Module*>(&m)); });
  return modules;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> modules;
  walk([&](const std::string& path, const Module& m) { modules.emplace_back(path, const_cast<Module*>(&m)); });
  return modules;
}

uint64_t Module::fingerprint() const {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15;
  uint64_t hash = training_ ? 3 : 5;
  // A sum, since x is the hash itself where a child is of the same kind: combined by ^ both would go.
  auto mix = [&](uint64_t x) { hash = hash * kPrime + x, hash ^= hash >> 29; };
  if (hooks_) mix(hooks_->changes);
  for (const Entry& e : tensors_) mix(reinterpret_cast<uintptr_t>(e.tensor.impl()));
  for (const Child& c : children_) mix(c.module->fingerprint());
  return hash;
}

void Module::apply(const std::function<void(Module&)>& fn) {
  std::unordered_set<Module*> seen;
  auto visit = [&](auto& self, Module& m) -> void {
    if (!seen.insert(&m).second) return;
    for (Child& child : m.children_) self(self, *child.module);
    fn(m);
  };
  visit(visit, *this);
}

NamedTensors Module::list_tensors(bool parameters) const {
  NamedTensors list;
  std::unordered_set<const TensorImpl*> seen;
  walk([&](const std::string& path, const Module& m) {
    for (const Entry& e : m.tensors_)
      if (e.is_parameter == parameters && e.tensor.defined() && seen.insert(e.tensor.impl()).second)
        list.push_back({join(path, e.name), e.tensor});
  });
  return list;
}

NamedTensors Module::named_parameters() const { return list_tensors(true); }
NamedTensors Module::named_buffers() const { return list_tensors(false); }

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> list;
  for (NamedTensor& p : list_tensors(true)) list.push_back(std::move(p.tensor));
  return list;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

// --- Building --------------------------------------------------------------------------------------------------

void Module::check_name(const std::string& name) const {
  DEFT_CHECK(!name.empty() && name.find('.') == std::string::npos, ValueError,
             "{}: \"{}\" cannot be a name; names are not empty and without dots", describe(), name);
  bool taken = std::any_of(tensors_.begin(), tensors_.end(), [&](const Entry& e) { return e.name == name; }) ||
               std::any_of(children_.begin(), children_.end(), [&](const Child& c) { return c.name == name; });
  DEFT_CHECK(!taken, ValueError, "{}: the name \"{}\" is taken; give each parameter, buffer and child its own",
             describe(), name);
}

void Module::add_child(std::string name, std::shared_ptr<Module> child) {
  check_name(name);
  DEFT_CHECK(child, ValueError, "{}: the child \"{}\" is null", describe(), name);
  for (const Module* m : child->all_modules())
    DEFT_CHECK(m != this, ValueError, "{}: the child \"{}\" contains its parent; modules form a tree", describe(),
               name);
  children_.push_back({std::move(name), std::move(child)});
}

Tensor& Module::add_tensor(std::string name, Tensor value, bool is_parameter, bool persistent) {
  check_name(name);
  // A module built inside inference_mode is a normal one all the same.
  if (value.defined() && value.is_inference()) {
    InferenceModeGuard off(false);
    NoGradGuard no_grad;
    value = value.clone();
  }
  tensors_.push_back({std::move(name), std::move(value), is_parameter, persistent});
  return tensors_.back().tensor;
}

Tensor& Module::parameter(std::string name, Tensor value) {
  DEFT_CHECK(!value.defined() || value.is_leaf(), ValueError,
             "{}: the parameter \"{}\" is the result of {}; a parameter has no history: detach() it", describe(), name,
             value.grad_fn_name());
  Tensor& added = add_tensor(std::move(name), std::move(value), true, true);
  if (added.defined()) added.requires_grad_(true, Site());
  return added;
}

Tensor& Module::buffer(std::string name, Tensor value, bool persistent) {
  return add_tensor(std::move(name), std::move(value), false, persistent);
}

// --- State -----------------------------------------------------------------------------------------------------

NamedTensors Module::state_tensors() const {
  NamedTensors list;
  walk(
      [&](const std::string& path, const Module& m) {
        for (bool parameters : {true, false})
          for (const Entry& e : m.tensors_)
            if (e.is_parameter == parameters && e.persistent && e.tensor.defined())
              list.push_back({join(path, e.name), e.tensor});
      },
      false);
  return list;
}

NamedTensors Module::state_dict() const {
  NamedTensors list = state_tensors();
  for (NamedTensor& t : list) t.tensor = t.tensor.detach();
  return list;
}

LoadReport Module::load_state_dict(const NamedTensors& state, bool strict) {
  LoadReport report;
  std::unordered_map<std::string_view, const Tensor*> given;
  for (const NamedTensor& t : state)
    if (!t.tensor.defined() || !given.emplace(t.name, &t.tensor).second)
      report.unexpected.push_back(t.name + (t.tensor.defined() ? " (a second time)" : " (undefined)"));

  NamedTensors own = state_tensors();
  std::unordered_set<std::string_view> known;
  std::unordered_set<const TensorImpl*> found;
  std::vector<std::pair<Tensor*, const Tensor*>> copies;
  for (NamedTensor& mine : own) {
    known.insert(mine.name);
    auto it = given.find(mine.name);
    if (it == given.end()) continue;
    found.insert(mine.tensor.impl());
    const Shape &sizes = mine.tensor.sizes(), &theirs = it->second->sizes();
    if (theirs == sizes) {
      copies.emplace_back(&mine.tensor, it->second);
      continue;
    }
    report.mismatched.push_back(mine.name + ": " + deft::to_string(theirs) + " in the state, " +
                                deft::to_string(sizes) + " in the module");
  }
  for (const NamedTensor& mine : own)
    if (!found.contains(mine.tensor.impl())) report.missing.push_back(mine.name);
  for (const NamedTensor& t : state)
    if (t.tensor.defined() && !known.contains(t.name)) report.unexpected.push_back(t.name);
  DEFT_CHECK(!strict || report.ok(), ValueError,
             "load_state_dict: the state does not fit {}; nothing was loaded (strict = false takes what fits):\n{}",
             describe(), report.to_string());

  NoGradGuard no_grad;
  for (auto [to, from] : copies) to->copy_(from->to(to->device()));
  return report;
}

// --- Modes -----------------------------------------------------------------------------------------------------

void Module::train(bool on) {
  for (Module* m : all_modules()) {
    m->wanted_training_ = on;
    m->training_ = on && !m->frozen_;
  }
}

void Module::freeze() {
  for (Module* m : all_modules()) {
    for (Entry& e : m->tensors_) {
      if (!e.is_parameter || !e.tensor.defined()) continue;
      if (!m->frozen_) e.thaws = e.tensor.requires_grad();
      e.tensor.requires_grad_(false);
      e.tensor.zero_grad();
      e.tensor.set_memory_category(MemoryCategory::parameter);  // it is one still
    }
    m->frozen_ = true;
    m->training_ = false;
  }
}

void Module::unfreeze() {
  for (Module* m : all_modules()) {
    if (!m->frozen_) continue;
    for (Entry& e : m->tensors_)
      if (e.thaws) e.tensor.requires_grad_(true, Site());
    m->frozen_ = false;
    m->training_ = m->wanted_training_;
  }
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& p : parameters()) p.zero_grad(set_to_none);
}

EvalGuard::EvalGuard(Module& module) {
  for (Module* m : module.all_modules()) {
    saved_.emplace_back(m, m->training_);
    m->training_ = false;
  }
}

EvalGuard::~EvalGuard() {
  for (auto [m, training] : saved_) m->training_ = training && !m->frozen_;
}

// --- Type, place and order -------------------------------------------------------------------------------------

Module& Module::replace_tensors(const std::function<Tensor(const Tensor&, bool is_parameter)>& fn) {
  InferenceModeGuard normal(false);
  NoGradGuard no_grad;
  // Allocates all new tensors first: if memory runs out, the module is unchanged. Tied tensors stay tied.
  std::unordered_map<const TensorImpl*, Tensor> replaced;
  std::vector<Module*> modules = all_modules();
  for (Module* m : modules) {
    for (Entry& e : m->tensors_) {
      if (!e.tensor.defined() || replaced.contains(e.tensor.impl())) continue;
      Tensor made = fn(e.tensor, e.is_parameter);
      if (!made.is_same(e.tensor)) {
        made.requires_grad_(e.tensor.requires_grad(), Site());
        if (e.is_parameter) made.set_memory_category(MemoryCategory::parameter);
        if (Tensor g = e.tensor.grad(); g.defined()) made.set_grad(fn(g, e.is_parameter));
      }
      replaced.emplace(e.tensor.impl(), std::move(made));
    }
  }
  std::vector<Tensor> old;  // the keys stay alive until all are replaced
  for (Module* m : modules)
    for (Entry& e : m->tensors_)
      if (e.tensor.defined()) old.push_back(std::exchange(e.tensor, replaced.at(e.tensor.impl())));
  return *this;
}

Module& Module::to(Device device) {
  return replace_tensors([&](const Tensor& t, bool) { return t.to(device); });
}

Module& Module::to(DType dtype) {
  DEFT_CHECK(is_floating(dtype), DTypeError, "{}: to() takes a floating type, found {}; integers cannot be trained",
             describe(), name_of(dtype));
  return replace_tensors([&](const Tensor& t, bool) { return is_floating(t.dtype()) ? t.to(dtype) : t; });
}

Module& Module::to(MemoryFormat format) {
  return replace_tensors(
      [&](const Tensor& t, bool is_parameter) { return is_parameter && t.dim() == 4 ? t.contiguous(format) : t; });
}

}  // namespace deft::nn
