#include "core/function.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "core/core_ops.h"
#include "core/describe.h"
#include "core/observer.h"
#include "core/stale_view.h"
#include "runtime/context.h"

namespace deft {

namespace {

struct Payload {
  FunctionContext* ctx = nullptr;  // owned
};

// Takes the place of a gradient that cannot be differentiated again.
void once_vjp(VjpContext& c) {
  const auto* type = c.node.payload_as<const detail::FunctionType*>();
  DEFT_FAIL(GradError,
            "{}: is once_differentiable, so there is no gradient of its gradient (forward at {}); write backward() in "
            "ops and drop "
            "once_differentiable",
            type->name, to_string(c.node.site));
}
constexpr NodeType kOnceDifferentiable{"once_differentiable", once_vjp, nullptr};

void copy_edges(Node& to, Node& from) {
  for (int i = 0; i < from.inputs; ++i) {
    to.edges()[i] = from.edges()[i];
    if (to.edges()[i].node) to.edges()[i].node->retain();
  }
}

int index_of(const Tensors& list, const Tensor& t) {
  for (size_t i = 0; i < list.size(); ++i)
    if (t.defined() && list[i].is_same(t)) return static_cast<int>(i);
  return -1;
}

}  // namespace

// Turns the results of forward() into outputs of a node.
struct FunctionBuilder {
  const detail::FunctionType& type;
  const Tensors& inputs;
  Tensors& outputs;
  FunctionContext& ctx;
  Site site;
  const char* name() const { return type.name; }

  void check_counts() const {
    DEFT_CHECK(!outputs.empty() && outputs.size() <= 255, ValueError,
               "{}: forward() returned {} tensors; 1 to 255 are possible", name(), outputs.size());
    DEFT_CHECK(inputs.size() <= 65535, ValueError, "{}: {} tensor arguments are more than the 65535 possible", name(),
               inputs.size());
    DEFT_CHECK(ctx.to_save_.size() <= 255, ValueError,
               "{}: save_for_backward() got {} tensors; at most 255 are possible", name(), ctx.to_save_.size());
  }

  void count_writes(bool recorded) const {
    for (const Tensor& t : ctx.dirty_) {
      DEFT_CHECK(index_of(inputs, t) >= 0, GradError, "{}: mark_dirty() got a tensor that is not an input", name());
      DEFT_CHECK(index_of(outputs, t) >= 0, GradError, "{}: an input marked dirty must be returned by forward()",
                 name());
      check_inplace(*t.impl(), recorded, name(), site);
      if (!t.is_inference()) t.impl()->storage->bump_version(name(), site);
    }
  }

  bool shares_with_input(const Tensor& t) const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const Tensor& i) { return i.defined() && i.shares_storage_with(t); });
  }
  bool is_dirty(const Tensor& t) const { return index_of(ctx.dirty_, t) >= 0; }

  // Outputs must be headers of their own: giving an input (or a tensor that has a history) a new grad_fn would change
  // it.
  void separate_outputs() const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      Tensor& out = outputs[i];
      if (!out.defined() || is_dirty(out)) continue;
      DEFT_CHECK(!out.is_inference(), InferenceError,
                 "{}: forward() returned a tensor {} made inside inference_mode, which cannot have a gradient (at {}); "
                 "clone() it "
                 "outside",
                 name(), describe(out.meta()), to_string(site));
      bool seen = std::any_of(outputs.begin(), outputs.begin() + static_cast<int64_t>(i),
                              [&](const Tensor& o) { return o.defined() && o.is_same(out); });
      bool taken = seen || index_of(inputs, out) >= 0 || out.impl()->has(kRequiresGrad);
      if (!taken && !out.is_view()) continue;
      TensorImpl& source = *out.impl();
      ImplPtr alias = make_alias(source, source.meta, 0);
      if (taken || shares_with_input(out)) {
        alias->base = source.base ? source.base : &source;
        alias->base->retain();
        alias->view_origin = ViewOrigin::custom_function;
      }
      alias->view_version.store(source.storage->current_version(), std::memory_order_relaxed);
      alias->site = site;
      for (Tensor& t : ctx.to_save_)
        if (t.defined() && t.is_same(out) && index_of(inputs, t) < 0) t = Tensor(alias);
      if (int n = index_of(ctx.non_differentiable_, out); n >= 0)
        ctx.non_differentiable_[static_cast<size_t>(n)] = Tensor(alias);
      out = Tensor(alias);
    }
  }

  // A tensor kept by name that is an output would own its own node: keep its bytes only.
  void cut_cycles() const {
    auto cut = [&](Tensor& t) {
      if (t.defined() && index_of(outputs, t) >= 0) t = Tensor(make_alias(*t.impl(), t.meta(), 0));
    };
    for (auto& [key, value] : ctx.values_) {
      if (auto* t = std::any_cast<Tensor>(&value)) cut(*t);
      if (auto* list = std::any_cast<Tensors>(&value)) std::for_each(list->begin(), list->end(), cut);
    }
  }

  void save(Node& node) const {
    for (size_t i = 0; i < ctx.to_save_.size(); ++i) {
      const Tensor& t = ctx.to_save_[i];
      if (!t.defined()) continue;
      check_savable(*t.impl(), name(), site);
      int output = index_of(outputs, t), input = index_of(inputs, t);
      bool is_output = output >= 0;
      int number = is_output ? output : input >= 0 && input < kSavedElse ? input : kSavedElse;
      node.save(static_cast<int>(i), t.impl(), is_output, number);
    }
    ctx.to_save_.clear();
  }

  void set_histories(const NodePtr& node) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      Tensor& out = outputs[i];
      if (!out.defined() || !is_floating(out.dtype()) || index_of(ctx.non_differentiable_, out) >= 0) continue;
      auto number = static_cast<uint32_t>(i);
      if (is_dirty(out)) {
        bool simple = index_of(inputs, out) == 0 && outputs.size() == 1;
        DEFT_CHECK(!out.is_view() || simple, GradError,
                   "{}: a view can be marked dirty only if it is the first argument and the only output; clone() it",
                   name());
        rebase_history(*out.impl(), node, number);
        for (const Tensor& t : inputs)
          if (t.defined()) mark_stale(*t.impl(), *out.impl());
      } else {
        set_history(*out.impl(), node, number);
      }
    }
  }
};

namespace detail {

std::string type_name_in(const char* signature) {
  std::string s = signature;  // "... [with F = ns::MyExp]"
  size_t from = s.rfind("F = ");
  if (from == s.npos) return "custom function";
  s = s.substr(from + 4);
  s = s.substr(0, s.find_first_of(";]"));
  if (s.find('<') == s.npos)
    if (size_t scope = s.rfind("::"); scope != s.npos) s = s.substr(scope + 2);
  return s;
}

void throw_no_such_value(const std::string& name) {
  DEFT_FAIL(ValueError, "FunctionContext: there is no value \"{}\" of the type asked for; call ctx.set() in forward()",
            name);
}

void destroy_function(Node& n) noexcept { delete std::exchange(n.payload_as<Payload>().ctx, nullptr); }

Tensors apply_function(const FunctionType& type, Tensors&& inputs, FunctionRef<Tensors(FunctionContext&)> forward,
                       const Site& at) {
  Site site = effective_site(at);
  auto ctx = std::make_unique<FunctionContext>();
  bool recording = !(context().bits & (kGradOff | kInference)), any = false;
  for (const Tensor& t : inputs) {
    bool needs = recording && t.defined() && is_floating(t.dtype()) && needs_grad(*t.impl());
    ctx->needs_.push_back(needs);
    any |= needs;
  }
  Tensors outputs;
  {
    ExecContext quiet = context();
    if (!(quiet.bits & kGradOff)) quiet.grad_site = site;
    quiet.bits |= kGradOff;
    ContextGuard guard(quiet);
    outputs = forward(*ctx);
  }
  FunctionBuilder build{type, inputs, outputs, *ctx, site};
  build.check_counts();
  build.count_writes(any);
  if (!any) return outputs;
  build.separate_outputs();
  build.cut_cycles();
  for (const Tensor& t : outputs) ctx->output_metas_.push_back(t.defined() ? t.meta() : Meta::undefined());

  NodePtr node = make_node(&type, static_cast<int>(inputs.size()), static_cast<int>(outputs.size()),
                           static_cast<int>(ctx->to_save_.size()), sizeof(Payload), site);
  for (const Tensor& t : outputs)
    if (t.defined()) node->runs_on(t.device());
  new (node->payload()) Payload;
  for (size_t i = 0; i < inputs.size(); ++i) {
    node->edges()[i] = Edge{};
    if (inputs[i].defined()) set_edge(node->edges()[i], *inputs[i].impl());
  }
  build.save(*node);
  build.set_histories(node);
  ctx->dirty_.clear();
  ctx->non_differentiable_.clear();
  node->payload_as<Payload>().ctx = ctx.release();
  if (Observer* o = observer()) [[unlikely]]
    o->function_ran(*node);
  return outputs;
}

void function_vjp(VjpContext& c) {
  const auto& type = static_cast<const FunctionType&>(*c.node.type);
  FunctionContext& ctx = *c.node.payload_as<Payload>().ctx;
  Tensors grads;
  for (int i = 0; i < c.node.outputs; ++i) {
    const Meta& m = ctx.output_metas_[static_cast<size_t>(i)];
    bool zero = !c.grad(i).defined() && ctx.materialize_ && m.defined && is_floating(m.dtype);
    grads.push_back(zero ? zeros(m.sizes, {m.dtype, m.device}, c.node.site) : c.grad(i));
  }
  ctx.node_ = &c.node;
  bool forbid = type.once && c.create_graph;
  Tensors results;
  {
    ExecContext inside = context();
    inside.has_outer_site = false;  // errors inside backward() name its own lines
    if (forbid) inside.bits |= kGradOff;
    ContextGuard guard(inside);
    results = type.backward(ctx, grads);
  }
  DEFT_CHECK(results.size() == c.node.inputs, GradError,
             "{}: backward() returned {} gradients for {} tensor arguments (forward at {}); return one for each, "
             "undefined ones "
             "for zero",
             type.name, results.size(), int{c.node.inputs}, to_string(c.node.site));
  for (int i = 0; i < c.node.inputs; ++i) {
    Tensor& g = results[static_cast<size_t>(i)];
    if (!g.defined() || !c.needs(i)) continue;
    if (forbid) {
      NodePtr error = make_node(&kOnceDifferentiable, c.node.inputs, 1, 0, sizeof(const FunctionType*), c.node.site);
      new (error->payload()) const FunctionType*(&type);
      copy_edges(*error, c.node);
      g = g.detach(c.node.site);
      set_history(*g.impl(), error, 0);
    }
    c.grad_in(i) = g;
  }
}

}  // namespace detail

Tensors FunctionContext::saved() const {
  DEFT_CHECK(node_, GradError, "FunctionContext: saved() is for backward(); in forward() use the tensors themselves");
  Tensors list;
  for (int i = 0; i < node_->saved; ++i) list.push_back(unpack_saved(*node_, i));
  return list;
}

}  // namespace deft
