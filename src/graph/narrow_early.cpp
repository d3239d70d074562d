// y = f(x)[:, 0] becomes f(x[:, 0]) where f treats rows independently: a classifier that reads one token of the last
// layer needs that layer for one token only. Done where the other rows have no reader, so it always saves work.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "graph/edit.h"
#include "graph/passes.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace deft::graph {

namespace {

// Only [start, start + length) of a dimension is wanted.
struct Range {
  int dim = 0;
  int64_t start = 0, length = 0;
  auto operator<=>(const Range&) const = default;
};

std::optional<Range> range_of(const Graph& g, const Instruction& x) {
  if (x.action != Action::view) return std::nullopt;
  const Meta& in = g.value(x.inputs[0]).meta;
  auto dim_of = [&](int64_t dim) { return static_cast<int>(dim < 0 ? dim + in.rank() : dim); };
  if (x.def == &op_def<Select>) {
    auto p = params_of<Select::Params>(x);
    const int dim = dim_of(p.dim);
    return Range{dim, p.index < 0 ? p.index + in.sizes[dim] : p.index, 1};
  }
  if (x.def == &op_def<SliceOp>) {
    auto p = params_of<SliceOp::Params>(x);
    if (p.step != 1) return std::nullopt;
    const int dim = dim_of(p.dim);
    return Range{dim, p.start, g.value(x.outputs[0]).meta.sizes[dim]};
  }
  return std::nullopt;
}

struct CannotBeSeen {};  // a view of fewer rows would need a copy

class Narrower {
 public:
  explicit Narrower(Graph& graph) : g_(graph), readers_(graph.values.size()) {
    written_.assign(graph.buffers.size(), false);
    for (size_t i = 0; i < graph.instructions.size(); ++i) {
      const Instruction& x = graph.instructions[i];
      for (ValueId id : x.inputs)
        if (id != kNone) readers_[static_cast<size_t>(id)].push_back(i);
      if (x.action == Action::write || x.action == Action::call)
        for (ValueId id : written_values(x)) written_[static_cast<size_t>(graph.value(id).buffer)] = true;
    }
    for (ValueId id : graph.outputs) readers_[static_cast<size_t>(id)].push_back(graph.instructions.size());
  }

  // Narrows the producers of the view at `at`. Returns the number of instructions that do less now.
  size_t run(size_t at) {
    const Instruction& view = g_.instructions[at];
    std::optional<Range> range = range_of(g_, view);
    if (!range || !has_plain_readers(view.outputs[0])) return 0;
    if (range->length >= g_.value(view.inputs[0]).meta.sizes[range->dim]) return 0;
    wanted_.clear();
    taken_.clear();
    needs_.clear();
    wanted_[view.inputs[0]] = *range;
    bool pays = false;
    for (size_t i = at; i-- > 0;) {
      if (!take(i, at)) continue;
      pays |= g_.instructions[i].def->info.cost == Cost::compute_bound;
    }
    if (!pays) return 0;
    const Graph before = g_;
    try {
      rebuild(at);
    } catch (const CannotBeSeen&) {
      g_ = before;
      return 0;
    }
    return taken_.size();
  }

 private:
  // Views of it would have to move with it.
  bool has_plain_readers(ValueId id) const {
    for (size_t i : readers_[static_cast<size_t>(id)])
      if (i >= g_.instructions.size() || g_.instructions[i].action != Action::make) return false;
    return true;
  }

  // True if instruction i was narrowed to the wanted range. All its readers come later and were visited before.
  bool take(size_t i, size_t at) {
    const Instruction& x = g_.instructions[i];
    if (x.outputs.empty()) return false;
    auto wanted = wanted_.find(x.outputs[0]);
    if (wanted == wanted_.end() || !wanted->second || !only_read_narrowed(x, at)) return false;
    std::vector<std::optional<Range>> of_inputs;
    if (!ranges_of_inputs(x, *wanted->second, of_inputs)) return false;
    for (size_t n = 0; n < x.inputs.size(); ++n) {
      if (x.inputs[n] == kNone) continue;
      if (written_[static_cast<size_t>(g_.value(x.inputs[n]).buffer)]) return false;
    }
    for (size_t n = 0; n < x.inputs.size(); ++n)
      if (x.inputs[n] != kNone) want(x.inputs[n], of_inputs[n]);
    taken_.push_back(i);
    needs_[i] = std::move(of_inputs);
    return true;
  }
  void want(ValueId id, const std::optional<Range>& range) {
    auto [at, added] = wanted_.try_emplace(id, range);
    if (!added && at->second != range) at->second = std::nullopt;  // all of it, or two parts
  }
  bool only_read_narrowed(const Instruction& x, size_t at) const {
    if (x.action == Action::write || x.action == Action::call || draws(x)) return false;
    for (size_t n = 0; n < x.outputs.size(); ++n) {
      if (written_[static_cast<size_t>(g_.value(x.outputs[n]).buffer)]) return false;
      for (size_t reader : readers_[static_cast<size_t>(x.outputs[n])])
        if (n > 0 || (reader != at && std::find(taken_.begin(), taken_.end(), reader) == taken_.end())) return false;
    }
    return true;
  }

  // The range of each input that `x` needs for `r` of its result; false where it needs all.
  bool ranges_of_inputs(const Instruction& x, const Range& r, std::vector<std::optional<Range>>& in) const {
    in.assign(x.inputs.size(), std::nullopt);
    const Meta& out = g_.value(x.outputs[0]).meta;
    if (x.action == Action::view) return through_view(x, r, in[0]);
    if (x.def->elementwise) {
      for (size_t n = 0; n < x.inputs.size(); ++n) {
        if (x.inputs[n] == kNone) return false;
        in[n] = broadcast(g_.value(x.inputs[n]).meta, out, r);
      }
      return true;
    }
    const bool inner = r.dim == out.rank() - 1;
    if (x.def == &op_def<Linear>) return !inner && (in[0] = r, true);
    if (x.def == &op_def<LayerNorm>) {
      const auto dims = static_cast<int>(params_of<LayerNorm::Params>(x).normalized_shape.size());
      return r.dim < out.rank() - dims && (in[0] = r, true);
    }
    if (x.def == &op_def<ScaledDotProductAttention>) {
      auto p = params_of<ScaledDotProductAttention::Params>(x);
      if (r.dim != out.rank() - 2 || p.causal || p.drop_p > 0) return false;
      const Meta& query = g_.value(x.inputs[0]).meta;
      in[0] = Range{query.rank() - 2, r.start, r.length};
      if (x.inputs[3] != kNone) in[3] = broadcast(g_.value(x.inputs[3]).meta, out, r);
      return true;
    }
    return false;
  }
  static std::optional<Range> broadcast(const Meta& in, const Meta& out, const Range& r) {
    const int dim = r.dim - (out.rank() - in.rank());
    if (dim < 0 || in.sizes[dim] != out.sizes[r.dim]) return std::nullopt;
    return Range{dim, r.start, r.length};
  }
  bool through_view(const Instruction& x, const Range& r, std::optional<Range>& in) const {
    const Meta &from = g_.value(x.inputs[0]).meta, &to = g_.value(x.outputs[0]).meta;
    if (x.def == &op_def<Permute>) {
      auto p = params_of<Permute::Params>(x);
      in = Range{static_cast<int>(p.dims[r.dim] < 0 ? p.dims[r.dim] + from.rank() : p.dims[r.dim]), r.start, r.length};
      return true;
    }
    if (x.def != &op_def<View>) return false;
    for (int d = 0; d <= r.dim; ++d)
      if (d >= from.rank() || from.sizes[d] != to.sizes[d]) return false;
    in = r;
    return true;
  }

  // --- The narrowed instructions take the place of the view.
  void rebuild(size_t at) {
    std::vector<Instruction> made;
    narrowed_.clear();
    slices_.clear();
    std::sort(taken_.begin(), taken_.end());
    for (size_t i : taken_) made.push_back(narrow(g_.instructions[i], needs_.at(i), made));
    Instruction view = g_.instructions[at];
    const Range r = *wanted_.at(view.inputs[0]);
    view.inputs[0] = narrowed_.at(view.inputs[0]);
    if (view.def == &op_def<Select>) set_params(view, Select::Params{r.dim, 0});
    if (view.def == &op_def<SliceOp>) set_params(view, SliceOp::Params{r.dim, 0, r.length, 1});
    g_.values[static_cast<size_t>(view.outputs[0])] = view_value(view, view.inputs[0]);
    made.push_back(std::move(view));
    for (size_t i : taken_) g_.instructions[i].def = nullptr;
    auto place = g_.instructions.begin() + static_cast<std::ptrdiff_t>(at);
    *place = std::move(made.back());
    made.pop_back();
    g_.instructions.insert(place, std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    std::erase_if(g_.instructions, [](const Instruction& x) { return x.def == nullptr; });
  }
  // It reads the range it needs of an input, independent of other readers.
  Instruction narrow(const Instruction& old, const std::vector<std::optional<Range>>& needs,
                     std::vector<Instruction>& made) {
    Instruction x = old;
    for (size_t n = 0; n < x.inputs.size(); ++n)
      if (x.inputs[n] != kNone && needs[n]) x.inputs[n] = part_of(x.inputs[n], *needs[n], x.site, made);
    const Range r = *wanted_.at(old.outputs[0]);
    if (x.action == Action::view) {
      if (x.def == &op_def<View>) {
        auto p = params_of<View::Params>(x);
        p.sizes = g_.value(old.outputs[0]).meta.sizes;
        p.sizes[r.dim] = r.length;
        set_params(x, p);
      }
      const Value v = view_value(x, x.inputs[0]);
      x.outputs[0] = g_.add_value(v.meta, v.buffer, v.offset);
    } else {
      make_outputs(x);
    }
    narrowed_[old.outputs[0]] = x.outputs[0];
    return x;
  }
  // The narrowed form of a value: computed already, or a slice of the existing value.
  ValueId part_of(ValueId id, const Range& r, const Site& site, std::vector<Instruction>& made) {
    auto known = narrowed_.find(id);
    if (known != narrowed_.end()) return known->second;
    auto [slice, added] = slices_.try_emplace({id, r}, kNone);
    if (!added) return slice->second;
    Instruction x{&op_def<SliceOp>, Action::view, {id}, {}, {}, site};
    set_params(x, SliceOp::Params{r.dim, r.start, r.start + r.length, 1});
    const Value v = view_value(x, id);
    x.outputs.push_back(g_.add_value(v.meta, v.buffer, v.offset));
    made.push_back(x);
    return slice->second = x.outputs[0];
  }
  Value view_value(Instruction& x, ValueId of) const {
    const Value& from = g_.value(of);
    ViewSpec spec;
    auto see = [&]<class Op>(Op) {
      auto p = params_of<typename Op::Params>(x);
      spec = Op::view(from.meta, p);
      set_params(x, p);
    };
    if (x.def == &op_def<Select>) see(Select());
    if (x.def == &op_def<SliceOp>) see(SliceOp());
    if (x.def == &op_def<Permute>) see(Permute());
    if (x.def == &op_def<View>) {
      Shape strides;
      if (!View::strides_for(from.meta, params_of<View::Params>(x).sizes, strides)) throw CannotBeSeen();
      see(View());
    }
    return {spec.meta, from.buffer, from.offset + spec.offset * static_cast<int64_t>(size_of(from.meta.dtype))};
  }
  void make_outputs(Instruction& x) {
    static const Meta undefined = Meta::undefined();
    std::vector<const Meta*> in;
    for (ValueId id : x.inputs) in.push_back(id == kNone ? &undefined : &g_.value(id).meta);
    x.params.resize(std::max<size_t>(1, x.params.size()));
    Meta out[kMaxOutputs];
    x.def->infer(in.data(), static_cast<int>(in.size()), x.params.data(), out);
    x.params.resize(x.def->params_bytes);
    for (size_t n = 0; n < x.outputs.size(); ++n) {
      const auto bytes = static_cast<size_t>(out[n].numel) * size_of(out[n].dtype);
      x.outputs[n] = g_.add_value(out[n], g_.add_buffer(BufferKind::temporary, bytes));
    }
  }

  Graph& g_;
  std::vector<std::vector<size_t>> readers_;
  std::vector<bool> written_;
  std::map<ValueId, std::optional<Range>> wanted_;  // nothing: all of it
  std::vector<size_t> taken_;
  std::map<size_t, std::vector<std::optional<Range>>> needs_;  // of the inputs of those taken
  std::map<ValueId, ValueId> narrowed_;
  std::map<std::pair<ValueId, Range>, ValueId> slices_;
};

}  // namespace

void narrow_early(Graph& graph, Notes& notes) {
  size_t narrowed = 0;
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    if (!range_of(graph, graph.instructions[i])) continue;
    const size_t before = graph.instructions.size();
    size_t did = Narrower(graph).run(i);
    narrowed += did;
    if (did) i += graph.instructions.size() - before;
  }
  if (narrowed) notes.done.push_back(fmt::format("narrow_early: {} ops compute only the rows that are read", narrowed));
}

}  // namespace deft::graph
