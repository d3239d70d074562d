// Products of the same input with constant weights, such as the projections to query, key and value, become one: x is
// packed once, and one kernel is called. Their results are then columns of a wider one, which not all readers take.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "graph/cost.h"
#include "graph/edit.h"
#include "graph/passes.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/shape_ops.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft::graph {

namespace {

constexpr double kLeastGain = 0.01;  // the plan keeps a second copy of the weights for it
constexpr int64_t kFewRows = 3;      // that are read where they lie

// What a value becomes as a part of a wider row.
struct Place {
  Meta meta;
  int64_t offset;
};

class Merger {
 public:
  Merger(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh)
      : g_(graph), dependencies_(dependencies), notes_(notes), weigh_(weigh), buffers_(graph.buffers.size()) {}

  void run() {
    ContextGuard plain([] {
      ExecContext c = context();
      c.bits = (c.bits & ~(kAutocast | kInference)) | kGradOff;
      return c;
    }());
    find_uses();
    for (auto& [key, members] : groups_)
      if (members.size() > 1) merge(members);
    place();
    if (merged_ > 0)
      notes_.done.push_back(fmt::format("merge_siblings: {} products into {}", merged_, replaced_.size()));
    for (const std::string& why : left_) notes_.left.push_back("merge_siblings: " + why);
  }

 private:
  struct Use {
    size_t at, input;
  };
  struct BufferUses {
    std::vector<Use> reads;
    std::vector<ValueId> values;
    int writes = 0;
    bool is_output = false;
  };
  BufferUses& uses_of(ValueId id) { return buffers_[static_cast<size_t>(g_.value(id).buffer)]; }
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }

  bool is_product(const Instruction& x) const {
    if (x.action != Action::make || (x.def != &op_def<Linear> && x.def != &op_def<Matmul>)) return false;
    const Meta &w = meta(x.inputs[1]), &y = meta(x.outputs[0]);
    return w.rank() == 2 && meta(x.inputs[0]).rank() >= 2 && y.contiguous && y.numel > 0 && y.sizes.back() > 1 &&
           is_constant(g_, x.inputs[1]) && (x.inputs.size() < 3 || is_constant(g_, x.inputs[2]));
  }

  // The input with how often it was written before, the op, the weight's type, whether there is a bias.
  using Key = std::tuple<ValueId, int, const OpDef*, DType, bool>;
  void find_uses() {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      for (size_t n = 0; n < x.inputs.size(); ++n) {
        if (x.inputs[n] == kNone) continue;
        BufferUses& u = uses_of(x.inputs[n]);
        if (x.action != Action::view) u.reads.push_back({i, n});
        u.values.push_back(x.inputs[n]);
      }
      for (ValueId id : x.outputs) uses_of(id).values.push_back(id);
      for (ValueId id : written_values(x)) ++uses_of(id).writes;
      if (is_product(x)) {
        const ValueId from = x.inputs[0];
        const bool bias = x.inputs.size() > 2 && x.inputs[2] != kNone;
        groups_[Key(from, uses_of(from).writes, x.def, meta(x.inputs[1]).dtype, bias)].push_back(i);
      }
    }
    for (ValueId id : g_.outputs) uses_of(id).is_output = true;
    for (BufferUses& u : buffers_) {
      std::sort(u.values.begin(), u.values.end());
      u.values.erase(std::unique(u.values.begin(), u.values.end()), u.values.end());
    }
  }

  // `v` in rows of `from` elements, as a part of rows of `to` elements. False where it runs on over the end of a row.
  static bool widen(const Value& v, int64_t from, int64_t to, Place& out) {
    auto size = static_cast<int64_t>(size_of(v.meta.dtype));
    const int64_t first = v.offset / size, column = first % from;
    Shape strides = v.meta.strides;
    int64_t reach = column;
    for (int d = 0; d < v.meta.rank(); ++d) {
      if (strides[d] % from == 0) {
        strides[d] = strides[d] / from * to;
      } else {
        reach += (v.meta.sizes[d] - 1) * strides[d];
      }
    }
    if (reach >= from || v.meta.numel == 0) return false;
    out = {v.meta, (first / from * to + column) * size};
    out.meta.set_strides(strides);
    return true;
  }

  // What it costs the readers that the result lies in rows of `width` elements. Empty `why`: it can.
  double cost_to_readers(ValueId result, int64_t width, std::string& why) {
    const BufferUses& u = uses_of(result);
    const int64_t own = meta(result).sizes.back();
    if (u.is_output) why = "a result goes to the caller";
    if (u.writes > 1) why = "a result is written later";
    for (ValueId id : u.values) {
      Place p;
      if (meta(id).dtype != meta(result).dtype || !widen(g_.value(id), own, width, p))
        why = "a result is read across its rows";
    }
    double cost = 0;
    if (!why.empty()) return cost;
    for (const Use& use : u.reads) {
      const Instruction& x = g_.instructions[use.at];
      if (x.action == Action::call) why = "code outside the graph reads a result";
      cost += cost_to_reader(x, use.input, own, width);
    }
    return cost;
  }
  double cost_to_reader(const Instruction& x, size_t input, int64_t own, int64_t width) const {
    const Value& v = g_.value(x.inputs[input]);
    Place p;
    widen(v, own, width, p);
    const double pass = 2 * static_cast<double>(v.meta.numel * static_cast<int64_t>(size_of(v.meta.dtype)));
    if (x.def->elementwise) return kCallNs + pass / kBytesPerNs;  // the product's epilogue could have taken it
    const bool rows = p.meta.sizes.back() <= 1 || p.meta.strides.back() == 1;
    if (x.def == &op_def<ScaledDotProductAttention> && input < 3 && rows) return 0;
    if (x.def == &op_def<Matmul>) return 0;
    return p.meta.contiguous ? 0 : pass / kBytesPerNs;
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
    if (why.empty() && weigh_ && x.device.is_cpu() && gain < kLeastGain * total)
      why = fmt::format("{:.1f} of {:.1f} us would be saved, {:.1f} of them lost to readers", (gain + cost) / 1e3,
                        total / 1e3, cost / 1e3);
    // A launch less and x read once, on devices where that was not measured.
    if (why.empty() && weigh_ && !x.device.is_cpu() && cost > 0) why = "a reader would copy its columns";
    if (!why.empty()) {
      left_.insert(fmt::format("{} products from {}: {}", members.size(), to_string(first.site), why));
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
    Instruction product{first.def, Action::make, first.inputs, {wide}, first.params, first.site};
    product.inputs[1] = add_constant(g_, side_by_side(members, 1, first.def == &op_def<Linear> ? 0 : 1));
    if (product.inputs.size() > 2 && product.inputs[2] != kNone)
      product.inputs[2] = add_constant(g_, side_by_side(members, 2, 0));
    std::vector<Instruction>& list = replaced_[members[0]];
    list.push_back(std::move(product));
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
    Value& v = g_.values[static_cast<size_t>(id)];
    Place p;
    widen(v, own, width, p);
    v = {p.meta, to, p.offset + by};
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
  std::vector<BufferUses> buffers_;
  std::map<Key, std::vector<size_t>> groups_;
  std::map<size_t, std::vector<Instruction>> replaced_;  // what comes in place of the first of a group
  std::set<size_t> taken_;
  std::set<std::string> left_;
  size_t merged_ = 0;
};

}  // namespace

void merge_siblings(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes, bool weigh) {
  Merger(graph, dependencies, notes, weigh).run();
}

}  // namespace deft::graph
