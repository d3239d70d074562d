// Softmax and the norms with the elementwise op or chain before and after them, and sums of rows with the one before, a
// few rows at a time. Same bits: the same kernels run on strips that stay in cache.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "graph/cost.h"
#include "graph/edit.h"
#include "graph/passes.h"
#include "graph/uses.h"
#include "ops/copy.h"
#include "ops/elementwise_chain.h"
#include "ops/fused_rows.h"
#include "ops/norm.h"
#include "ops/op_table.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace deft::graph {

namespace {

using Part = FusedRows::Part;
static_assert(sizeof(ElementwiseChain::Params) <= FusedRows::kPartBytes);

class RowFuser {
 public:
  RowFuser(Graph& graph, Notes& notes, bool weigh)
      : g_(graph), uses_(graph), notes_(notes), weigh_(weigh), reads_(graph.buffers.size()) {
    for (size_t i = 0; i < graph.instructions.size(); ++i) {
      const Instruction& x = graph.instructions[i];
      if (x.action == Action::view) continue;
      for (ValueId id : x.inputs)
        if (id != kNone) reads_[static_cast<size_t>(graph.value(id).buffer)].push_back(i);
    }
    for (ValueId id : graph.outputs)
      reads_[static_cast<size_t>(graph.value(id).buffer)].push_back(graph.instructions.size());
  }

  void run() {
    for (size_t i = 0; i < g_.instructions.size(); ++i)
      if (std::optional<Shape> row = row_of(g_.instructions[i])) fuse(i, *row);
    remove_taken(g_);
    if (fused_) notes_.done.push_back(fmt::format("fuse_rows: {} passes over memory saved", fused_));
    for (const std::string& why : left_) notes_.left.push_back("fuse_rows: " + why);
  }

 private:
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }
  bool is_read(ValueId id) const { return !reads_[static_cast<size_t>(g_.value(id).buffer)].empty(); }

  static bool reduces(const Instruction& x) {
    return x.def == &op_def<Sum> || x.def == &op_def<Mean> || x.def == &op_def<Amax> || x.def == &op_def<Amin>;
  }
  // The last dims, where these are what is reduced. Longer rows are reduced in pieces if there are only a few.
  std::optional<Shape> reduced_row(const Instruction& x) const {
    const Meta& in = meta(x.inputs[0]);
    if (!in.device.is_cpu() || !in.contiguous || in.numel == 0) return {};
    const uint32_t dims = params_of<ReduceParams>(x).dims;
    Shape row;
    for (int d = 0; d < in.rank(); ++d) {
      if (dims >> d & 1)
        row.push_back(in.sizes[d]);
      else if (!row.empty())
        return {};
    }
    const bool fits = !row.empty() && row.size() < in.rank() && values_in(row) <= kLongestRow;
    return fits ? std::optional(row) : std::nullopt;
  }
  static constexpr int64_t kLongestRow = 64 * 1024;
  static int64_t values_in(const Shape& row) {
    int64_t n = 1;
    for (int d = 0; d < row.size(); ++d) n *= row[d];
    return n;
  }
  // As large as the rows that go through the op.
  const Meta& rows_of(const Instruction& x) const { return meta(reduces(x) ? x.inputs[0] : x.outputs[0]); }

  // The sizes of a row of softmax over the last dim, of a norm or of a reduction; nothing for others, and where
  // statistics are read.
  std::optional<Shape> row_of(const Instruction& x) const {
    if (!x.def || x.action != Action::make) return {};
    if (reduces(x)) return reduced_row(x);
    const Meta& y = meta(x.outputs[0]);
    if (!y.device.is_cpu() || !y.contiguous || y.numel == 0 || y.rank() < 2) return {};
    if (x.inputs.empty() || x.inputs[0] == kNone || !meta(x.inputs[0]).contiguous) return {};
    if (x.def == &op_def<Softmax> || x.def == &op_def<LogSoftmax>) {
      const int64_t dim = params_of<SoftmaxParams>(x).dim;
      return dim == y.rank() - 1 ? std::optional(Shape{y.sizes.back()}) : std::nullopt;
    }
    if (x.def != &op_def<LayerNorm> && x.def != &op_def<RmsNorm>) return {};
    for (size_t i = 1; i < x.outputs.size(); ++i)
      if (is_read(x.outputs[i])) return {};
    const Shape row = params_of<LayerNorm::Params>(x).normalized_shape;
    return row.size() < y.rank() ? std::optional(row) : std::nullopt;
  }

  // An elementwise op, cast or chain on rows: every input is as large as the result, a number, or a row.
  bool fits(const Instruction& x, const Shape& row, const Meta& y) const {
    if (!x.def || x.action != Action::make || x.inputs.size() > 8) return false;
    const Meta& out = meta(x.outputs[0]);
    if (!(out.sizes == y.sizes) || !out.contiguous || !out.device.is_cpu()) return false;
    const bool chain = x.def == &op_def<ElementwiseChain>;
    if (!chain && !x.def->elementwise && x.def != &op_def<Cast>) return false;
    if (op_index(*x.def) < 0 || x.def->params_bytes > FusedRows::kPartBytes || x.def->redraw) return false;
    const int64_t n = values_in(row);
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      if (x.inputs[i] == kNone) return false;
      const Meta& in = meta(x.inputs[i]);
      if (!in.device.is_cpu()) return false;
      if (in.numel == y.numel ? !(in.sizes == y.sizes && in.contiguous) : !repeats(in, row, n)) return false;
      if (chain) {
        const int64_t period = params_of<ElementwiseChain::Params>(x).period[i];
        if (period > 1 && n % period != 0) return false;
      }
    }
    return true;
  }
  static bool repeats(const Meta& in, const Shape& row, int64_t n) {
    if (in.numel == 1) return in.rank() <= 1;
    const int lead = in.rank() - row.size();
    if (in.numel != n || lead < 0 || !in.contiguous) return false;
    for (int d = 0; d < row.size(); ++d)
      if (in.sizes[lead + d] != row[d]) return false;
    return true;
  }

  int before(size_t at, const Shape& row) const {
    const Instruction& x = g_.instructions[at];
    const ValueId in = x.inputs[0];
    const int from = uses_.maker(in, at);
    if (from < 0 || !fits(g_.instructions[static_cast<size_t>(from)], row, rows_of(x))) return -1;
    const auto maker = static_cast<size_t>(from);
    return uses_.only_between(in, maker, at) && uses_.inputs_stand(maker, at) ? from : -1;
  }
  // The first reader of the rows, if it can take them.
  int after(size_t at, const Shape& row, int from) const {
    const Instruction& x = g_.instructions[at];
    const ValueId y = x.outputs[0];
    const auto& reads = reads_[static_cast<size_t>(g_.value(y).buffer)];
    auto next = std::find_if(reads.begin(), reads.end(), [&](size_t i) { return i > at; });
    if (next == reads.end() || *next == g_.instructions.size()) return -1;
    const Instruction& reader = g_.instructions[*next];
    if (!fits(reader, row, meta(y)) || std::count(reader.inputs.begin(), reader.inputs.end(), y) == 0) return -1;
    for (size_t i = at + 1; i < *next; ++i)
      if (g_.instructions[i].action == Action::view && g_.instructions[i].inputs[0] == y) return -1;  // made by then
    if (!uses_.inputs_stand(at, *next) || uses_.maker(y, *next) != static_cast<int>(at)) return -1;
    if (from >= 0 && !uses_.inputs_stand(static_cast<size_t>(from), *next)) return -1;
    return static_cast<int>(*next);
  }

  void fuse(size_t at, const Shape& row) {
    const Instruction& x = g_.instructions[at];
    const int first = before(at, row), last = reduces(x) ? -1 : after(at, row, first);
    if (first < 0 && last < 0) return;
    const ValueId y = x.outputs[0];
    const bool keeps = last >= 0 && !uses_.only_between(y, at, static_cast<size_t>(last));
    if (!pays(x, first, last)) return;
    FusedRows::Params p{};
    p.row = row;
    p.keeps_rows = keeps;
    Instruction fused{&op_def<FusedRows>, Action::make, {}, {}, {}, x.site};
    if (first >= 0) add(p, 0, g_.instructions[static_cast<size_t>(first)], kNone, fused);
    Instruction middle = x;
    if (x.def == &op_def<Softmax> || x.def == &op_def<LogSoftmax>) set_params(middle, SoftmaxParams{1});
    if (reduces(x)) set_params(middle, ReduceParams{((1u << row.size()) - 1) << 1, false});
    add(p, 1, middle, first >= 0 ? x.inputs[0] : kNone, fused);
    if (last >= 0) add(p, 2, g_.instructions[static_cast<size_t>(last)], y, fused);
    p.like = like(fused, rows_of(x));
    set_params(fused, p);
    if (reduces(x) && params_of<ReduceParams>(x).keepdim) return place_before_view(at, first, std::move(fused));
    place(at, first, last, keeps, std::move(fused));
  }
  void add(FusedRows::Params& p, size_t at, const Instruction& x, ValueId made_before, Instruction& fused) const {
    Part& part = p.part[at];
    part.op = op_index(*x.def);
    part.inputs = static_cast<int32_t>(x.inputs.size());
    part.made = meta(x.outputs[0]).dtype;
    if (!x.params.empty()) std::memcpy(part.params.data(), x.params.data(), x.params.size());
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      const bool last = x.inputs[i] != kNone && x.inputs[i] == made_before;
      if (last) part.from_last |= 1u << i;
      fused.inputs.push_back(last ? kNone : x.inputs[i]);
    }
  }
  int32_t like(const Instruction& fused, const Meta& y) const {
    for (size_t i = 0; i < fused.inputs.size(); ++i)
      if (fused.inputs[i] != kNone && meta(fused.inputs[i]).sizes == y.sizes) return static_cast<int32_t>(i);
    return -1;
  }

  void place(size_t at, int first, int last, bool keeps, Instruction fused) {
    Instruction& x = g_.instructions[at];
    const ValueId y = x.outputs[0];
    const size_t to = last >= 0 ? static_cast<size_t>(last) : at;
    if (last >= 0) {
      fused.outputs = {g_.instructions[to].outputs[0], keeps ? y : nothing(meta(y))};
      fused.site = g_.instructions[to].site;
    } else {
      fused.outputs = {y, nothing(meta(y))};
    }
    fused_ += (first >= 0) + (last >= 0);
    if (first >= 0) g_.instructions[static_cast<size_t>(first)].def = nullptr;
    x.def = nullptr;
    g_.instructions[to] = std::move(fused);
  }
  // With keepdim, the value with dims of size 1 is a view of the result.
  void place_before_view(size_t at, int first, Instruction fused) {
    const ValueId y = g_.instructions[at].outputs[0];
    const Meta& rows = meta(g_.instructions[at].inputs[0]);
    Shape sizes = rows.sizes;
    sizes.resize(rows.rank() - params_of<FusedRows::Params>(fused).row.size());
    const ValueId plain = g_.add_value(Meta::dense(sizes, meta(y).dtype, meta(y).device), g_.value(y).buffer);
    fused.outputs = {plain, nothing(meta(y))};
    Instruction view{&op_def<View>, Action::view, {plain}, {y}, {}, fused.site};
    set_params(view, View::Params{meta(y).sizes});
    g_.instructions[static_cast<size_t>(first)] = std::move(fused);
    g_.instructions[at] = std::move(view);
    ++fused_;
  }
  ValueId nothing(const Meta& y) {
    return g_.add_value(Meta::dense({0}, y.dtype, y.device), g_.add_buffer(BufferKind::temporary, 0));
  }

  // Arithmetic bounds these kernels more than memory does. Rows of 768 in f32, one thread: sum and layer_norm of 6 MB
  // take 815 us instead of 787, of 25 MB 3.4 ms instead of 3.2; with a cast after them 4.3 ms instead of 4.5, and
  // scale, softmax and cast 8.6 ms instead of 8.8. Strips of a fourth of the size lose up to a tenth more.
  // Before a sum of rows the elementwise result is gone altogether: with the product of two tensors of 256 KB 16.1 us
  // instead of 15.1, of 1 MB 59 instead of 66, of 64 MB 5.5 ms instead of 6.9; |x - y| of 64 MB 7.1 instead of 12.6.
  bool pays(const Instruction& x, int first, int last) {
    const Meta& y = rows_of(x);
    const double bytes = static_cast<double>(y.numel) * static_cast<double>(size_of(y.dtype));
    const bool both = first >= 0 && last >= 0;
    if (!weigh_ || (reduces(x) ? bytes >= kLeastSummed : both && bytes >= kLeastBytes)) return true;
    left_.insert(fmt::format("{} from {}: {} of {:.0f} bytes would be saved, which gains nothing", x.def->info.name,
                             to_string(x.site), both ? "two passes" : "a pass", bytes));
    return false;
  }
  static constexpr double kLeastBytes = 16 << 20, kLeastSummed = 1 << 20;

  Graph& g_;
  Uses uses_;
  Notes& notes_;
  bool weigh_;
  std::vector<std::vector<size_t>> reads_;  // of each buffer, in order
  std::set<std::string> left_;
  size_t fused_ = 0;
};

}  // namespace

void fuse_rows(Graph& graph, Notes& notes, bool weigh) { RowFuser(graph, notes, weigh).run(); }

}  // namespace deft::graph
