// Gradients of matmuls that became one. In a training step with three projections of x, and g the gradient of each:
//   dx += g w                three times, with a pass over dx for each
//   dw = g^T x, db = sum(g)  three times
// become one of each, on gradients that are written side by side. H200, x of 4096 x 768, three of 768: dx 34 and 22 us,
// dw 36 and 24 in bf16, 77 and 52, 121 and 85 in TF32. (cuBLASLt's matmul with the sums of g in its epilogue takes 5
// to 13 us longer than the matmul alone in bf16, about as long as the sums by themselves.)
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "graph/edit.h"
#include "graph/regions.h"
#include "graph/siblings.h"
#include "graph/uses.h"
#include "ops/attention.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

namespace deft::graph {

namespace {

class GradientMerger {
 public:
  explicit GradientMerger(Graph& graph) : g_(graph), buffers_(buffer_uses(graph)) {}

  // Empty: done.
  std::string merge(const Siblings& s) {
    std::vector<Branch> branches;
    for (ValueId weight : s.weights) {
      std::optional<Branch> b = branch_of(weight);
      if (!b) return "their gradients are not matmuls alone";
      branches.push_back(*b);
    }
    if (std::string why = why_apart(branches, s); !why.empty()) return why;
    const std::optional<std::vector<size_t>> adds = adds_of(branches);
    if (!adds) return "their gradients are not summed one after the other";
    const bool weights = alike(branches, &Branch::weight), biases = alike(branches, &Branch::bias);
    if (!weights || !biases) return "the gradients of their weights are not of one form";
    put_side_by_side(branches);
    merge_inputs(branches, s, *adds);
    if (branches[0].weight.at) merge_parts(branches, &Branch::weight);
    if (branches[0].bias.at) merge_parts(branches, &Branch::bias);
    return "";
  }

 private:
  // An op that reads a gradient, and the cast of its result if that is all that reads it.
  struct Reader {
    std::optional<size_t> at, cast;
  };
  struct Branch {
    ValueId gradient;  // [..., out], what the matmul with the weight reads
    int64_t columns;   // out
    Reader input, weight, bias;
  };

  const BufferUses& uses_of(ValueId id) const { return buffers_[index(g_.value(id).buffer)]; }
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }
  const Instruction& instruction(size_t i) const { return g_.instructions[i]; }

  // --- Readers of a gradient.
  // The only cast that reads the result of `at`, all of it.
  std::optional<size_t> cast_after(size_t at) const {
    const ValueId result = instruction(at).outputs[0];
    const BufferUses& u = uses_of(result);
    if (u.is_output || u.reads.size() != 1 || u.writes.size() != 1) return {};
    const size_t reader = u.reads[0].at;
    const Instruction& x = instruction(reader);
    if (x.def != &op_def<Cast> || x.action != Action::make || x.inputs[0] != result) return {};
    return is_whole(g_, x.outputs[0]) ? std::optional(reader) : std::nullopt;
  }
  Reader reader(size_t at) { return {at, cast_after(at)}; }
  std::optional<Branch> branch_of(ValueId weight) {
    std::optional<size_t> matmul;
    for (const auto [i, input] : uses_of(weight).reads) {
      const Instruction& x = instruction(i);
      if (x.def != &op_def<Matmul> || x.action != Action::make || input != 1 || x.inputs[1] != weight) continue;
      if (matmul) return {};
      matmul = i;
    }
    if (!matmul) return {};
    const ValueId g = instruction(*matmul).inputs[0];
    if (g_.buffer_of(g).kind != BufferKind::temporary || !is_whole(g_, g)) return {};
    const BufferUses& u = uses_of(g);
    if (u.is_output || u.writes.size() != 1 || !writes_any_rows(instruction(u.writes[0]))) return {};
    Branch b{g, meta(g).sizes.back(), reader(*matmul), {}, {}};
    for (const BufferUses::Read& read : u.reads) {
      const size_t i = read.at;
      const Instruction& x = instruction(i);
      if (i == *matmul) continue;
      if (is_transposed_matmul(x, b) && !b.weight.at) {
        b.weight = reader(i);
      } else if (is_column_sum(x, b) && !b.bias.at) {
        b.bias = reader(i);
      } else {
        return {};
      }
    }
    return b;
  }
  // Ops whose results may have a larger row stride.
  static bool writes_any_rows(const Instruction& x) {
    return x.action == Action::make && (x.def == &op_def<ScaledDotProductAttentionBackward> || x.def == &op_def<Clone>);
  }
  // Whether `id` is a view of the gradient as a matrix of its rows, transposed or not.
  bool is_matrix(ValueId id, const Branch& b, bool transposed) const {
    const Value& v = g_.value(id);
    if (v.offset != 0 || v.meta.rank() != 2) return false;
    const int rows = transposed ? 1 : 0;
    return v.meta.sizes[1 - rows] == b.columns && v.meta.strides[1 - rows] == 1 && v.meta.strides[rows] == b.columns &&
           v.meta.numel == meta(b.gradient).numel;
  }
  bool is_transposed_matmul(const Instruction& x, const Branch& b) const {
    return x.def == &op_def<Matmul> && x.action == Action::make && is_matrix(x.inputs[0], b, true) &&
           g_.value(x.inputs[1]).buffer != g_.value(b.gradient).buffer && is_part(x.outputs[0]);
  }
  bool is_column_sum(const Instruction& x, const Branch& b) const {
    return x.def == &op_def<Sum> && x.action == Action::make && is_matrix(x.inputs[0], b, false) &&
           params_of<Sum::Params>(x) == Sum::Params{.dims = 1, .keepdim = false} && is_part(x.outputs[0]);
  }
  bool is_part(ValueId id) const { return g_.buffer_of(id).kind == BufferKind::temporary && is_whole(g_, id); }

  // --- Whether they can be one.
  std::string why_apart(const std::vector<Branch>& all, const Siblings& s) {
    int64_t width = 0;
    for (const Branch& b : all) {
      width += b.columns;
      if (meta(b.gradient).dtype != meta(all[0].gradient).dtype) return "their gradients have several types";
      if (!same_rows(meta(b.gradient), meta(all[0].gradient))) return "their gradients have several shapes";
    }
    for (const Branch& b : all)
      for (ValueId id : uses_of(b.gradient).values)
        if (meta(id).dtype != meta(b.gradient).dtype || !widened(g_.value(id), b.columns, width))
          return "a gradient is read across its rows";
    const size_t stacked = uses_of(s.all).writes.back(), last = ends_of(all, &Branch::input).second;
    for (ValueId weight : s.weights)
      if (uses_of(weight).written_within(stacked, last)) return "a weight is written before";
    return "";
  }
  static bool same_rows(const Meta& a, const Meta& b) {
    if (a.rank() != b.rank()) return false;
    for (int d = 0; d + 1 < a.rank(); ++d)
      if (a.sizes[d] != b.sizes[d]) return false;
    return true;
  }
  // All have this reader, or none; their second operands and types are the same, and no result is read before the last
  // of them is computed.
  bool alike(const std::vector<Branch>& all, Reader Branch::*which) {
    const Reader& first = all[0].*which;
    for (const Branch& b : all) {
      const Reader& r = b.*which;
      if (r.at.has_value() != first.at.has_value() || r.cast.has_value() != first.cast.has_value()) return false;
    }
    if (!first.at) return true;
    const auto [begin, end] = ends_of(all, which);
    size_t done = 0;
    for (const Branch& b : all) done = std::max(done, (b.*which).cast.value_or(end));
    const std::vector<ValueId>& inputs = instruction(*first.at).inputs;
    for (const Branch& b : all) {
      const Reader& r = b.*which;
      if (inputs.size() > 1) {
        const Value &p = g_.value(inputs[1]), &q = g_.value(instruction(*r.at).inputs[1]);
        if (p.buffer != q.buffer || !same_place(p, q)) return false;
      }
      const ValueId result = result_of(r);
      if (is_output(result) || is_seen_before(result, done) || meta(result).dtype != meta(result_of(first)).dtype)
        return false;
    }
    return inputs.size() < 2 || !uses_of(inputs[1]).written_within(begin, end);
  }
  bool is_seen_before(ValueId id, size_t at) {
    const BufferUses& u = uses_of(id);
    return (!u.reads.empty() && u.reads[0].at < at) || (!u.views.empty() && u.views[0] < at);
  }
  // The first and the last of such readers.
  static std::pair<size_t, size_t> ends_of(const std::vector<Branch>& all, Reader Branch::*which) {
    std::pair<size_t, size_t> ends{SIZE_MAX, 0};
    for (const Branch& b : all) {
      ends.first = std::min(ends.first, *(b.*which).at);
      ends.second = std::max(ends.second, *(b.*which).at);
    }
    return ends;
  }
  bool is_output(ValueId id) { return uses_of(id).is_output; }
  ValueId result_of(const Reader& r) const { return instruction(r.cast.value_or(*r.at)).outputs[0]; }

  // The additions dx += each, one after the other, with no other reader of dx in between. The first may be dx itself,
  // then there is one less.
  std::optional<std::vector<size_t>> adds_of(const std::vector<Branch>& all) {
    const std::vector<Branch> order = in_order(all);
    std::vector<size_t> adds;
    ValueId to = kNone;
    for (const Branch& b : order) {
      const ValueId term = result_of(b.input);
      if (!same_kind(meta(term), meta(result_of(order[0].input)))) return {};
      if (const std::optional<size_t> add = add_after(term)) {
        adds.push_back(*add);
        const ValueId target = instruction(*add).outputs[0];
        if (to != kNone && target != to) return {};
        to = target;
      } else if (to == kNone) {
        to = term;
      } else {
        return {};
      }
    }
    const size_t begin = *order[0].input.at, end = adds.empty() ? 0 : adds.back();
    if (adds.size() + 1 < all.size() || !std::is_sorted(adds.begin(), adds.end()) || is_output(to)) return {};
    auto is_own = [&](size_t i) {
      const Reader& first = order[0].input;
      return i == *first.at || i == first.cast || std::find(adds.begin(), adds.end(), i) != adds.end();
    };
    auto is_foreign = [&](size_t i) { return i > begin && i < end && !is_own(i); };
    const BufferUses& u = uses_of(to);
    const bool seen =
        std::any_of(u.reads.begin(), u.reads.end(), [&](const auto& read) { return is_foreign(read.at); }) ||
        std::any_of(u.writes.begin(), u.writes.end(), is_foreign) ||
        std::any_of(u.views.begin(), u.views.end(), is_foreign);
    return seen ? std::nullopt : std::optional(adds);
  }
  static std::vector<Branch> in_order(std::vector<Branch> all) {
    std::sort(all.begin(), all.end(), [](const Branch& a, const Branch& b) { return *a.input.at < *b.input.at; });
    return all;
  }
  static bool same_kind(const Meta& a, const Meta& b) {
    return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
  }
  // The only reader of `term`, and adds it in place to something else.
  std::optional<size_t> add_after(ValueId term) {
    const BufferUses& u = uses_of(term);
    if (u.is_output || u.writes.size() != 1 || u.reads.size() != 1) return {};
    const size_t reader = u.reads[0].at;
    const Instruction& x = instruction(reader);
    const bool plain =
        x.def == &op_def<Add> && x.action == Action::write && x.inputs.size() == 2 && x.inputs[1] == term;
    if (!plain || !(meta(x.outputs[0]).sizes == meta(term).sizes)) return {};
    return reader;
  }

  // --- One in place of all.
  void put_side_by_side(const std::vector<Branch>& all) {
    const Meta first = meta(all[0].gradient);
    const auto size = static_cast<int64_t>(size_of(first.dtype));
    int64_t width = 0;
    for (const Branch& b : all) width += b.columns;
    Shape sizes = first.sizes;
    sizes[sizes.size() - 1] = width;
    const Meta wide = Meta::dense(sizes, first.dtype, first.device);
    const BufferId buffer = g_.add_buffer(BufferKind::temporary, static_cast<size_t>(wide.numel * size));
    gradient_ = g_.add_value(wide, buffer);
    int64_t column = 0;
    for (const Branch& b : all) {
      for (ValueId id : uses_of(b.gradient).values) {
        const Value v = *widened(g_.value(id), b.columns, width);
        g_.values[index(id)] = {v.meta, buffer, v.offset + column * size};
      }
      column += b.columns;
    }
  }
  // As a matrix of its rows.
  ValueId gradient_matrix(bool transposed) {
    const Value v = g_.value(gradient_);
    const int64_t width = v.meta.sizes.back(), rows = v.meta.numel / width;
    Meta m = Meta::dense({rows, width}, v.meta.dtype, v.meta.device);
    if (transposed) {
      m = Meta::dense({width, rows}, v.meta.dtype, v.meta.device);
      m.set_strides({1, width});
    }
    return g_.add_value(m, v.buffer);
  }
  // The last matmul makes the sum of all.
  void merge_inputs(const std::vector<Branch>& all, const Siblings& s, std::vector<size_t> adds) {
    const std::vector<Branch> order = in_order(all);
    const Reader first = order[0].input, last = order.back().input;
    const ValueId sum = result_of(first);
    for (const Branch& b : order) {
      if (*b.input.at == *last.at) continue;
      take(*b.input.at);
      if (b.input.cast) take(*b.input.cast);
    }
    g_.instructions[*last.at].inputs = {gradient_, s.all};
    if (adds.size() == all.size()) {
      adds.pop_back();
    } else {
      g_.instructions[last.cast.value_or(*last.at)].outputs[0] = sum;
    }
    for (size_t i : adds) take(i);
  }
  // Results of `which` become parts, one after the other, of a single one in the place of the last.
  void merge_parts(const std::vector<Branch>& all, Reader Branch::*which) {
    const size_t last = ends_of(all, which).second;
    const bool has_cast = (all[0].*which).cast.has_value();
    size_t cast = 0;
    Instruction x = instruction(last);
    x.inputs[0] = gradient_matrix(x.inputs.size() > 1);
    x.outputs[0] = make_whole(all, x.outputs[0], !has_cast, which);
    for (const Branch& b : all) cast = std::max(cast, (b.*which).cast.value_or(0));
    Instruction c = instruction(cast);
    if (has_cast) {
      c.inputs[0] = x.outputs[0];
      c.outputs[0] = make_whole(all, c.outputs[0], true, which);
    }
    for (const Branch& b : all) {
      take(*(b.*which).at);
      if (has_cast) take(*(b.*which).cast);
    }
    g_.instructions[last] = std::move(x);
    if (has_cast) g_.instructions[cast] = std::move(c);
  }
  // A value like `one` for all branches. With `parts` their results are placed in it.
  ValueId make_whole(const std::vector<Branch>& all, ValueId one, bool parts, Reader Branch::*which) {
    const Meta m = meta(one);
    const auto size = static_cast<int64_t>(size_of(m.dtype));
    int64_t width = 0;
    for (const Branch& b : all) width += b.columns;
    Shape sizes = m.sizes;
    sizes[0] = width;
    const Meta whole = Meta::dense(sizes, m.dtype, m.device);
    const BufferId buffer = g_.add_buffer(BufferKind::temporary, static_cast<size_t>(whole.numel * size));
    const ValueId id = g_.add_value(whole, buffer);
    if (!parts) return id;
    int64_t offset = 0;
    for (const Branch& b : all) {
      const ValueId result = result_of(b.*which);
      const int64_t bytes = meta(result).numel * size;
      for (ValueId v : uses_of(result).values) {
        g_.values[index(v)].buffer = buffer;
        g_.values[index(v)].offset += offset;
      }
      offset += bytes;
    }
    return id;
  }
  void take(size_t i) { g_.instructions[i].def = nullptr; }

  Graph& g_;
  const std::vector<BufferUses> buffers_;
  ValueId gradient_ = kNone;  // of all siblings
};

}  // namespace

void merge_gradients(Graph& graph, const std::vector<Siblings>& siblings, Notes& notes) {
  std::map<std::string, size_t> left;
  size_t count = 0;
  for (const Siblings& s : siblings) {
    const std::string why = GradientMerger(graph).merge(s);
    why.empty() ? ++count : ++left[why];
    if (why.empty()) remove_taken(graph);
  }
  if (count) notes.done.push_back(fmt::format("merge_siblings: the gradients of {} of these", count));
  for (const auto& [why, n] : left) notes.left.push_back(fmt::format("merge_siblings: gradients of {}: {}", n, why));
}

}  // namespace deft::graph
