#include "graph/ir.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "core/describe.h"
#include "core/tensor_impl.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace deft::graph {

const OpDef kOutsideCall{
    .info = {.name = "call"}, .node = {"call", nullptr, nullptr}, .params_bytes = 0, .infer = nullptr};

std::span<const ValueId> written_values(const Instruction& x) {
  switch (x.action) {
    case Action::view:
      return {};
    case Action::call:
      return std::span(x.inputs).first(x.outside->written);
    default:
      return x.effects.empty() ? x.outputs : x.effects;
  }
}
std::span<const ValueId> rewritten_values(const Instruction& x) {
  std::span<const ValueId> all = written_values(x);
  return x.action == Action::make ? all.subspan(x.outputs.size()) : all;
}

void note_effects(Instruction& x) {
  if (x.def != &op_def<BatchNorm> && x.def != &op_def<FusedBatchNorm>) return;
  BatchNorm::Params p;
  std::memcpy(&p, x.params.data(), sizeof p);
  if (!p.training) return;
  x.effects = x.outputs;
  for (size_t i : {3, 4})
    if (x.inputs[i] != kNone) x.effects.push_back(x.inputs[i]);
}

ValueId Graph::add_value(const Meta& meta, BufferId buffer, int64_t offset) {
  values.push_back({meta, buffer, offset});
  return static_cast<ValueId>(values.size() - 1);
}

BufferId Graph::add_buffer(BufferKind kind, size_t bytes, Tensor constant) {
  buffers.push_back({kind, bytes, std::move(constant), false});
  return static_cast<BufferId>(buffers.size() - 1);
}

Tensor on_memory_of(const Tensor& t, const Value& value) {
  ImplPtr alias = make_alias(*t.impl(), value.meta, 0);
  alias->data = static_cast<char*>(t.impl()->storage->data) + value.offset;
  return Tensor(alias);
}

namespace {

// The result of a view op on `x` by its own rule; nothing where `def` is no view op.
template <class... Op>
std::optional<ViewSpec> view_by(const OpDef& def, const Meta& x, void* params) {
  std::optional<ViewSpec> spec;
  auto one_of = [&]<class O>() {
    if (&def == &op_def<O>) spec = O::view(x, *static_cast<typename O::Params*>(params));
  };
  (one_of.template operator()<Op>(), ...);
  return spec;
}
std::optional<ViewSpec> view_by_rule(const OpDef& def, const Meta& x, void* params) {
  return view_by<View, Permute, Expand, Squeeze, Unsqueeze, SliceOp, Select, AsStrided, Diagonal>(def, x, params);
}

class Verifier {
 public:
  Verifier(const Graph& graph, const char* after) : g_(graph), after_(after), known_(graph.buffers.size(), false) {}

  void run() {
    for (size_t i = 0; i < g_.values.size(); ++i) check_value(static_cast<ValueId>(i));
    for (size_t i = 0; i < g_.buffers.size(); ++i) known_[i] = g_.buffers[i].kind != BufferKind::temporary;
    for (const Instruction& x : g_.instructions) {
      at_ = &x;
      check_instruction(x);
    }
    at_ = nullptr;
    for (ValueId id : g_.inputs) {
      require(in_range(id) && g_.buffer_of(id).kind == BufferKind::input, "an input is not in an input buffer");
    }
    for (ValueId id : g_.outputs) require(in_range(id) && is_known(id), "an output is never made");
  }

 private:
  void require(bool good, const std::string& what) const {
    DEFT_CHECK(good, InternalError, "graph after {}: {}{}", after_, what,
               at_ ? fmt::format(", at {} from {}", at_->def->info.name, to_string(at_->site)) : "");
  }
  bool in_range(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < g_.values.size(); }
  bool is_known(ValueId id) const { return known_[static_cast<size_t>(g_.value(id).buffer)]; }

  void check_value(ValueId id) const {
    const Value& v = g_.value(id);
    require(v.buffer >= 0 && static_cast<size_t>(v.buffer) < g_.buffers.size(),
            fmt::format("value {} has no buffer", id));
    auto end = v.offset + v.meta.span() * static_cast<int64_t>(size_of(v.meta.dtype));
    require(v.offset >= 0 && (v.meta.numel == 0 || end <= static_cast<int64_t>(g_.buffer_of(id).bytes)),
            fmt::format("value {} {} lies outside its buffer", id, describe(v.meta)));
  }

  void check_instruction(const Instruction& x) {
    for (ValueId id : x.inputs) {
      if (id == kNone) continue;
      require(in_range(id), "an input is out of range");
      require(is_known(id), fmt::format("value {} is read before it is made", id));
    }
    for (ValueId id : x.outputs) require(in_range(id), "an output is out of range");
    require(x.params.size() == x.def->params_bytes, "the parameters have the wrong size");
    switch (x.action) {
      case Action::view:
        require(x.inputs.size() == 1 && x.outputs.size() == 1 &&
                    g_.value(x.inputs[0]).buffer == g_.value(x.outputs[0]).buffer,
                "a view leaves its buffer");
        check_view(x);
        return;
      case Action::write:
        require(x.outputs.size() == 1 && x.inputs.size() >= 1 && x.outputs[0] == x.inputs[0],
                "a write does not write its first input");
        check_written(x.outputs[0]);
        return;
      case Action::make:
        check_made(x);
        return;
      case Action::call:
        require(x.outside && x.outside->run && x.outside->written <= x.inputs.size() && x.outputs.empty(),
                "a call has no code, or outputs");
        for (ValueId id : written_values(x)) check_written(id);
        return;
    }
  }
  void check_view(const Instruction& x) const {
    const Value &from = g_.value(x.inputs[0]), &to = g_.value(x.outputs[0]);
    std::vector<std::byte> params = x.params;
    const auto spec = view_by_rule(*x.def, from.meta, params.data());
    if (!spec) return;
    bool same = spec->meta.sizes == to.meta.sizes && spec->meta.dtype == to.meta.dtype;
    if (same && to.meta.numel > 0)
      same = from.offset + spec->offset * static_cast<int64_t>(size_of(to.meta.dtype)) == to.offset;
    for (int d = 0; same && d < to.meta.rank(); ++d)
      same = to.meta.sizes[d] <= 1 || to.meta.numel == 0 || spec->meta.strides[d] == to.meta.strides[d];
    require(same, fmt::format("a view of {} is {}, its op gives {}", describe(from.meta), describe(to.meta),
                              describe(spec->meta)));
  }
  void check_written(ValueId id) const {
    const Buffer& b = g_.buffer_of(id);
    require(b.kind != BufferKind::constant || b.written, "a constant is written that is not marked so");
  }
  void check_made(const Instruction& x) {
    require(x.outputs.size() == static_cast<size_t>(x.def->info.outputs), "the number of outputs is wrong");
    check_metas(x);
    const std::span<const ValueId> written = written_values(x);
    require(written.size() >= x.outputs.size() && std::equal(x.outputs.begin(), x.outputs.end(), written.begin()),
            "what it writes does not begin with its results");
    for (ValueId id : x.outputs) {
      require(g_.buffer_of(id).kind == BufferKind::temporary, "a result is not in a temporary buffer");
      known_[static_cast<size_t>(g_.value(id).buffer)] = true;
    }
    for (ValueId id : rewritten_values(x)) check_written(id);
  }
  void check_metas(const Instruction& x) const {
    if (!x.def->infer) return;
    std::vector<const Meta*> in;
    static const Meta undefined = Meta::undefined();
    for (ValueId id : x.inputs) in.push_back(id == kNone ? &undefined : &g_.value(id).meta);
    std::vector<std::byte> params = x.params;  // infer() may complete them
    params.resize(std::max<size_t>(1, params.size()));
    Meta out[kMaxOutputs];
    x.def->infer(in.data(), static_cast<int>(in.size()), params.data(), out);
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      const Meta& have = g_.value(x.outputs[i]).meta;
      require(have.sizes == out[i].sizes && have.dtype == out[i].dtype && have.device == out[i].device,
              fmt::format("output {} is {}, its op infers {}", i, describe(have), describe(out[i])));
    }
  }

  const Graph& g_;
  const char* after_;
  std::vector<bool> known_;
  const Instruction* at_ = nullptr;
};

}  // namespace

void verify(const Graph& graph, const char* after) { Verifier(graph, after).run(); }

}  // namespace deft::graph
