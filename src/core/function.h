// Custom functions with a gradient of their own:
//
//   struct Scale : Function<Scale> {
//     static Tensor forward(FunctionContext& ctx, const Tensor& x, double factor) {
//       ctx.set("factor", factor);
//       return x * factor;
//     }
//     static Tensors backward(FunctionContext& ctx, const Tensors& grads) { return {grads[0] *
//     ctx.get<double>("factor")}; }
//   };
//   Tensor y = Scale::apply(x, 2.0);
//
// forward() runs with gradients off and returns a Tensor or Tensors. backward() gets one gradient per output and
// returns one per Tensor argument of forward(), in order; a list of tensors counts as that many. An undefined gradient
// means zero. If backward() is written in ops, gradients of gradients work; otherwise say
//   static constexpr bool once_differentiable = true;
#pragma once

#include <any>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "base/function_ref.h"
#include "core/node.h"
#include "core/tensor.h"

namespace deft {

using Tensors = std::vector<Tensor>;

class FunctionContext;
namespace detail {

// One per custom function, constant.
struct FunctionType : NodeType {
  Tensors (*backward)(FunctionContext&, const Tensors&);
  bool once;
};
void function_vjp(VjpContext& c);
void destroy_function(Node& n) noexcept;
std::string type_name_in(const char* signature);  // "MyExp" out of a function signature that names it last
[[noreturn]] void throw_no_such_value(const std::string& name);
Tensors apply_function(const FunctionType& type, Tensors&& inputs, FunctionRef<Tensors(FunctionContext&)> forward,
                       const Site& site);

}  // namespace detail

// The state that forward() leaves for backward(). Freed after backward, and when the result is dropped.
class FunctionContext {
 public:
  // Inputs are checked for writes in between; outputs may be saved too. At most 255.
  void save_for_backward(const Tensors& tensors) { to_save_ = tensors; }
  // In backward: what was saved, in the same order.
  Tensors saved() const;

  // In forward: these inputs were written in place; they must be returned as outputs.
  void mark_dirty(const Tensors& inputs) { dirty_ = inputs; }
  // In forward: these outputs have no gradient (indices, masks).
  void mark_non_differentiable(const Tensors& outputs) { non_differentiable_ = outputs; }
  // Whether backward() sees zeros (default) or undefined tensors for outputs that got no gradient.
  void set_materialize_grads(bool on) { materialize_ = on; }
  // Whether the gradient of the i-th Tensor argument is wanted at all.
  bool needs_input_grad(size_t i) const { return i < needs_.size() && needs_[i]; }

  // Values of any copyable type under a name. A tensor that is an output should go to save_for_backward().
  template <class T>
  void set(const std::string& name, T value) {
    values_[name] = std::move(value);
  }
  template <class T>
  const T& get(const std::string& name) const {
    auto it = values_.find(name);
    const T* value = it == values_.end() ? nullptr : std::any_cast<T>(&it->second);
    if (!value) detail::throw_no_such_value(name);
    return *value;
  }

 private:
  friend void detail::function_vjp(VjpContext& c);
  friend Tensors detail::apply_function(const detail::FunctionType&, Tensors&&, FunctionRef<Tensors(FunctionContext&)>,
                                        const Site&);
  friend struct FunctionBuilder;
  Node* node_ = nullptr;
  Tensors to_save_, dirty_, non_differentiable_;
  std::vector<bool> needs_;
  std::vector<Meta> output_metas_;
  bool materialize_ = true;
  std::map<std::string, std::any> values_;
};

namespace detail {

inline void collect_tensors(Tensors& to, const Tensor& t) { to.push_back(t); }
inline void collect_tensors(Tensors& to, const Tensors& list) { to.insert(to.end(), list.begin(), list.end()); }
template <class T>
void collect_tensors(Tensors&, const T&) {}

inline Tensors as_list(Tensor&& t) { return {std::move(t)}; }
inline Tensors as_list(Tensors&& list) { return std::move(list); }

template <class F>
const FunctionType& function_type() {
  // Never destroyed: graph nodes may outlive static destruction.
  static const std::string& name = *new std::string(type_name_in(Site::current().function_name()));
  static const FunctionType type{{name.c_str(), &function_vjp, &destroy_function}, &F::backward, [] {
                                   if constexpr (requires { F::once_differentiable; }) return F::once_differentiable;
                                   return false;
                                 }()};
  return type;
}

}  // namespace detail

template <class Derived>
struct Function {
  // The first argument carries the line of the call.
  template <class... Args>
  static auto apply(SitedTensor first, Args&&... rest) {
    return run(first.site, first.tensor, rest...);
  }
  // The same for functions whose first argument is something else; errors then name no line.
  template <class First, class... Args>
  requires(!std::is_convertible_v<const First&, const Tensor&>) static auto apply(const First& first, Args&&... rest) {
    return run(Site{}, first, rest...);
  }

 private:
  template <class... Args>
  static auto run(const Site& site, Args&... args) {
    using Result = decltype(Derived::forward(std::declval<FunctionContext&>(), args...));
    Tensors inputs;
    (detail::collect_tensors(inputs, args), ...);
    auto forward = [&](FunctionContext& ctx) { return detail::as_list(Derived::forward(ctx, args...)); };
    Tensors outputs = detail::apply_function(detail::function_type<Derived>(), std::move(inputs), forward, site);
    if constexpr (std::is_same_v<std::remove_cvref_t<Result>, Tensor>)
      return Tensor(std::move(outputs[0]));
    else
      return outputs;
  }
};

}  // namespace deft
