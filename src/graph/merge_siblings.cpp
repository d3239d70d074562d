// Matmuls of the same input, such as the projections to query, key and value, become one: x is packed once, and one
// kernel is called. Their results are then columns of a wider one, which not all readers take. Constant weights are
// joined now. Those that are trained: their casts write one buffer, or they are copied to one in every call. H200, 4096
// x 768 x 768, three times and as one: bf16 32 and 25 us, TF32 66 and 45.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "graph/cost.h"
#include "graph/edit.h"
#include "graph/passes.h"
#include "graph/regions.h"
#include "graph/siblings.h"
#include "graph/uses.h"
#include "ops/attention.h"
#include "ops/copy.h"
#include "ops/matmul.h"
#include "ops/shape_ops.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft::graph {

namespace {

constexpr double kLeastGain = 0.01;  // the plan keeps a second copy of the weights for it
constexpr int64_t kFewRows = 3;      // that GEMV kernels read in place
constexpr int64_t kColumns = 32;     // parts of trained weights are multiples, so that all begin at a cache line

class SiblingMerger {
 public:
  SiblingMerger(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh)
      : g_(graph), dependencies_(dependencies), notes_(notes), weigh_(weigh), buffers_(buffer_uses(graph)) {}

  std::vector<Siblings> run() {
    ContextGuard plain([] {
      ExecContext c = context();
      c.bits = (c.bits & ~(kAutocast | kInference)) | kGradOff;
      return c;
    }());
    find_groups();
    for (auto& [key, members] : groups_)
      if (members.size() > 1) merge(members);
    place();
    if (merged_ > 0)
      notes_.done.push_back(fmt::format("merge_siblings: {} matmuls into {}", merged_, replaced_.size()));
    for (const std::string& why : left_) notes_.left.push_back("merge_siblings: " + why);
    return std::move(trained_);
  }

 private:
  const BufferUses& uses_of(ValueId id) const { return buffers_[static_cast<size_t>(g_.value(id).buffer)]; }
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }

  bool is_matmul(const Instruction& x) const {
    if (x.action != Action::make || (x.def != &op_def<Linear> && x.def != &op_def<Matmul>)) return false;
    const Meta &w = meta(x.inputs[1]), &y = meta(x.outputs[0]);
    if (w.rank() != 2 || meta(x.inputs[0]).rank() < 2 || !y.contiguous || y.numel == 0 || y.sizes.back() == 1)
      return false;
    return has_constant_weights(x) || (x.def == &op_def<Linear> && y.sizes.back() % kColumns == 0);
  }
  bool has_constant_weights(const Instruction& x) const {
    return is_constant(g_, x.inputs[1]) && (x.inputs.size() < 3 || is_constant(g_, x.inputs[2]));
  }

  // The input with how often it was written before, the op, the weight's type, whether there is a bias, and whether
  // both are constant.
  using Key = std::tuple<ValueId, size_t, const OpDef*, DType, bool, bool>;
  void find_groups() {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      if (!is_matmul(x)) continue;
      const std::vector<size_t>& writes = uses_of(x.inputs[0]).writes;
      const auto before = static_cast<size_t>(std::lower_bound(writes.begin(), writes.end(), i) - writes.begin());
      const bool bias = x.inputs.size() > 2 && x.inputs[2] != kNone;
      groups_[Key(x.inputs[0], before, x.def, meta(x.inputs[1]).dtype, bias, has_constant_weights(x))].push_back(i);
    }
  }

  // The cost to the readers of a result with rows of `width` elements. Empty `why`: possible.
  double cost_to_readers(ValueId result, int64_t width, std::string& why) {
    const BufferUses& u = uses_of(result);
    const int64_t own = meta(result).sizes.back();
    if (u.is_output) why = "a result goes to the caller";
    if (u.writes.size() > 1) why = "a result is written later";
    for (ValueId id : u.values) {
      if (meta(id).dtype != meta(result).dtype || !widened(g_.value(id), own, width))
        why = "a result is read across its rows";
    }
    double cost = 0;
    if (!why.empty()) return cost;
    for (const BufferUses::Read& use : u.reads) {
      const Instruction& x = g_.instructions[use.at];
      if (x.action == Action::call) why = "code outside the graph reads a result";
      cost += cost_to_reader(x, use.input, own, width);
    }
    return cost;
  }
  double cost_to_reader(const Instruction& x, size_t input, int64_t own, int64_t width) const {
    const Value& v = g_.value(x.inputs[input]);
    const Meta wide = widened(v, own, width)->meta;
    const double pass = 2 * static_cast<double>(v.meta.numel * static_cast<int64_t>(size_of(v.meta.dtype)));
    const bool rows = wide.sizes.back() <= 1 || wide.strides.back() == 1;
    const bool own_pass = !v.meta.device.is_cpu() && !v.meta.contiguous && rows;  // in another order than the matmul
    if (x.def->elementwise && own_pass) return 0;
    if (x.def->elementwise) return kCallNs + pass / kBytesPerNs;  // the matmul's epilogue could have taken it
    if (x.def == &op_def<ScaledDotProductAttention> && input < 3 && rows) return 0;
    if (x.def == &op_def<ScaledDotProductAttentionBackward> && input >= 1 && input < 4 && rows) return 0;
    if (x.def == &op_def<Matmul>) return 0;
    return wide.contiguous ? 0 : pass / kBytesPerNs;
  }

  void merge(const std::vector<size_t>& members) {
    const Instruction& first = g_.instructions[members[0]];
    const Meta& x = meta(first.inputs[0]);
    int64_t width = 0;
    for (size_t i : members) width += meta(g_.instructions[i].outputs[0]).sizes.back();
    double total = 0, cost = 0;
    std::string why;
    for (size_t i : members) {
      total += nanoseconds(g_, g_.instructions[i]);
      cost += cost_to_readers(g_.instructions[i].outputs[0], width, why);
    }
    const int64_t rows = x.numel / std::max<int64_t>(1, x.sizes.back());
    const double each = kCallNs + (rows > kFewRows ? pack_ns(x.numel, x.dtype) : 0);
    const double gain = static_cast<double>(members.size() - 1) * each - cost;
    const bool constant = has_constant_weights(first);
    if (why.empty() && !constant) why = why_not_stacked(members);
    if (why.empty() && weigh_ && x.device.is_cpu() && gain < kLeastGain * total)
      why = fmt::format("{:.1f} of {:.1f} us would be saved, {:.1f} of them lost to readers", (gain + cost) / 1e3,
                        total / 1e3, cost / 1e3);
    // On devices: a launch less, and x is read once (not measured).
    if (why.empty() && weigh_ && !x.device.is_cpu() && cost > 0) why = "a reader would copy its columns";
    if (!why.empty()) {
      left_.insert(fmt::format("{} matmuls from {}: {}", members.size(), to_string(first.site), why));
      return;
    }
    join(members, width);
    merged_ += members.size();
  }

  Tensor side_by_side(const std::vector<size_t>& members, size_t input, int64_t dim) {
    std::vector<Tensor> parts;
    for (size_t i : members) parts.push_back(read_constant(g_, g_.instructions[i].inputs[input], dependencies_));
    return cat(parts, dim);
  }
  void join(const std::vector<size_t>& members, int64_t width) {
    const Instruction& first = g_.instructions[members[0]];
    Meta m = meta(first.outputs[0]);
    Shape sizes = m.sizes;
    sizes[sizes.size() - 1] = width;
    m = Meta::dense(sizes, m.dtype, m.device);
    auto size = static_cast<int64_t>(size_of(m.dtype));
    const BufferId buffer = g_.add_buffer(BufferKind::temporary, static_cast<size_t>(m.numel * size));
    const ValueId wide = g_.add_value(m, buffer);
    Instruction matmul{first.def, Action::make, first.inputs, {wide}, first.params, first.site};
    std::vector<Instruction>& list = replaced_[members[0]];
    const bool constant = has_constant_weights(first);
    for (size_t input = 1; input < matmul.inputs.size(); ++input) {
      if (matmul.inputs[input] == kNone) continue;
      const int64_t dim = input == 1 && first.def != &op_def<Linear> ? 1 : 0;
      matmul.inputs[input] =
          constant ? add_constant(g_, side_by_side(members, input, dim)) : stack(members, input, list);
    }
    if (!constant) {
      Siblings& s = trained_.emplace_back(Siblings{.weights = {}, .all = matmul.inputs[1]});
      for (size_t i : members) s.weights.push_back(g_.instructions[i].inputs[1]);
    }
    list.push_back(std::move(matmul));
    int64_t column = 0;
    for (size_t i : members) {
      const Instruction& x = g_.instructions[i];
      const ValueId result = x.outputs[0];
      const int64_t own = meta(result).sizes.back();
      for (ValueId id : uses_of(result).values) move(id, own, width, buffer, column * size);
      Instruction part{&op_def<SliceOp>, Action::view, {wide}, {result}, {}, x.site};
      set_params(part, SliceOp::Params{m.rank() - 1, column, column + own, 1});
      list.push_back(std::move(part));
      taken_.insert(i);
      column += own;
    }
  }
  void move(ValueId id, int64_t own, int64_t width, BufferId to, int64_t by) {
    const Value wide = *widened(g_.value(id), own, width);
    g_.values[static_cast<size_t>(id)] = {wide.meta, to, wide.offset + by};
  }

  // --- Weights that change from call to call.
  // The cast of a weight that makes `id` and nothing else.
  std::optional<size_t> cast_before(ValueId id) const {
    if (g_.buffer_of(id).kind != BufferKind::temporary || !is_whole(g_, id)) return {};
    const BufferUses& u = uses_of(id);
    if (u.writes.size() != 1 || u.is_output) return {};
    const Instruction& x = g_.instructions[u.writes[0]];
    const bool cast = x.def == &op_def<Cast> && x.action == Action::make && x.outputs[0] == id;
    if (!cast || g_.buffer_of(x.inputs[0]).kind != BufferKind::constant) return {};
    return u.writes[0];
  }
  bool all_cast(const std::vector<size_t>& members, size_t input) const {
    return std::all_of(members.begin(), members.end(),
                       [&](size_t i) { return cast_before(g_.instructions[i].inputs[input]).has_value(); });
  }
  std::string why_not_stacked(const std::vector<size_t>& members) const {
    const Instruction& first = g_.instructions[members[0]];
    // BERT-base on two cores of a Neoverse-V1, batch 8, in bf16: 1.22 s with it, 1.22 without.
    if (weigh_ && meta(first.inputs[0]).device.is_cpu()) return "as fast one by one where weights are trained";
    for (size_t input = 1; input < first.inputs.size(); ++input) {
      if (first.inputs[input] == kNone) continue;
      std::set<ValueId> different;
      for (size_t i : members) {
        const ValueId id = g_.instructions[i].inputs[input];
        if (static_cast<size_t>(g_.value(id).buffer) >= buffers_.size() || !different.insert(id).second)
          return "they share weights with others";
        const auto cast = cast_before(id);
        const ValueId source = cast ? g_.instructions[*cast].inputs[0] : id;
        if (g_.buffer_of(source).kind != BufferKind::constant || !meta(source).contiguous)
          return "a weight is made in the call";
        if (uses_of(source).written_within(members[0], members.back())) return "a weight is written in between";
      }
    }
    return "";
  }
  // One value of all of an input, one after the other: the casts write it, or a copy does.
  ValueId stack(const std::vector<size_t>& members, size_t input, std::vector<Instruction>& list) {
    Meta all = meta(g_.instructions[members[0]].inputs[input]);
    Shape sizes = all.sizes;
    sizes[0] = 0;
    for (size_t i : members) sizes[0] += meta(g_.instructions[i].inputs[input]).sizes[0];
    all = Meta::dense(sizes, all.dtype, all.device);
    const auto size = static_cast<int64_t>(size_of(all.dtype));
    const BufferId buffer = g_.add_buffer(BufferKind::temporary, static_cast<size_t>(all.numel * size));
    const ValueId id = g_.add_value(all, buffer);
    const bool cast = all_cast(members, input);
    Instruction copy{&op_def<Cat>, Action::make, {}, {id}, {}, g_.instructions[members[0]].site};
    set_params(copy, Cat::Params{0});
    int64_t offset = 0;
    for (size_t i : members) {
      const ValueId part = g_.instructions[i].inputs[input];
      hoist_cast(part, members[0], list);
      copy.inputs.push_back(part);
      if (!cast) continue;
      const int64_t bytes = meta(part).numel * size;
      for (ValueId moved : uses_of(part).values) {
        Value& v = g_.values[static_cast<size_t>(moved)];
        v = {v.meta, buffer, v.offset + offset};
      }
      offset += bytes;
    }
    if (!cast) list.push_back(std::move(copy));
    return id;
  }
  // To where the first of the matmuls was.
  void hoist_cast(ValueId of, size_t to, std::vector<Instruction>& list) {
    const std::optional<size_t> cast = cast_before(of);
    if (!cast || *cast < to) return;
    list.push_back(g_.instructions[*cast]);
    taken_.insert(*cast);
  }

  void place() {
    if (replaced_.empty()) return;
    std::vector<Instruction> all;
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      if (auto r = replaced_.find(i); r != replaced_.end())
        std::move(r->second.begin(), r->second.end(), std::back_inserter(all));
      if (!taken_.contains(i)) all.push_back(std::move(g_.instructions[i]));
    }
    g_.instructions = std::move(all);
  }

  Graph& g_;
  std::vector<Dependency>& dependencies_;
  Notes& notes_;
  bool weigh_;
  const std::vector<BufferUses> buffers_;  // as the pass found them
  std::map<Key, std::vector<size_t>> groups_;
  std::map<size_t, std::vector<Instruction>> replaced_;  // what comes in place of the first of a group
  std::set<size_t> taken_;
  std::set<std::string> left_;
  std::vector<Siblings> trained_;
  size_t merged_ = 0;
};

}  // namespace

void merge_siblings(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh) {
  merge_gradients(graph, SiblingMerger(graph, dependencies, notes, weigh).run(), notes);
}

}  // namespace deft::graph
