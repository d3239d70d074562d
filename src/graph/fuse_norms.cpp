// relu(batch_norm(x) + residual) of training steps in one pass over memory, and the relu's gradient within the norm's.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "graph/edit.h"
#include "graph/passes.h"
#include "graph/uses.h"
#include "ops/binary.h"
#include "ops/elementwise_gradient.h"
#include "ops/norm.h"
#include "ops/op_table.h"
#include "ops/unary.h"

namespace deft::graph {

namespace {

// Elements lie in memory in the same order, without gaps.
bool same_place(const Meta& a, const Meta& b) {
  if (!(a.sizes == b.sizes) || a.dtype != b.dtype || a.device != b.device) return false;
  for (int d = 0; d < a.rank(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}
// The layout that kernels take without a copy.
bool is_image(const Meta& x) { return x.contiguous || x.is_channels_last(); }

#if defined(__x86_64__)
constexpr bool kMemoryBound = true;
#else
constexpr bool kMemoryBound = false;
#endif

class NormFuser {
 public:
  NormFuser(Graph& graph, Notes& notes, bool weigh) : g_(graph), uses_(graph), notes_(notes), weigh_(weigh) {}

  void run() {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      if (!x.def || x.outputs.empty()) continue;
      if (x.def == &op_def<Relu>) fuse_forward(i);
      if (x.def == &op_def<BatchNormBackward> && x.action == Action::make) fuse_backward(i);
    }
    remove_taken(g_);
    if (forward_) notes_.done.push_back(fmt::format("fuse_norms: {} batch norms with the relu after them", forward_));
    if (backward_) notes_.done.push_back(fmt::format("fuse_norms: {} gradients of them", backward_));
    if (dear_) notes_.left.push_back(fmt::format("fuse_norms: {} gradients, single ones are faster here", dear_));
  }

 private:
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }
  bool touches(std::span<const ValueId> ids, BufferId buffer) const {
    return std::any_of(ids.begin(), ids.end(),
                       [&](ValueId id) { return id != kNone && g_.value(id).buffer == buffer; });
  }
  // Whether the instruction `from` may run right before `to` instead, apart from `between`.
  bool can_wait(size_t from, size_t to, size_t between) const {
    const Instruction& x = g_.instructions[from];
    auto meets = [&](std::span<const ValueId> ids, std::span<const ValueId> others) {
      return std::any_of(ids.begin(), ids.end(),
                         [&](ValueId id) { return id != kNone && touches(others, g_.value(id).buffer); });
    };
    for (size_t i = from + 1; i < to; ++i) {
      const Instruction& y = g_.instructions[i];
      if (!y.def || y.action == Action::view || i == between) continue;
      if (meets(written_values(y), x.inputs) || meets(written_values(y), written_values(x)) ||
          meets(y.inputs, written_values(x)))
        return false;
    }
    return true;
  }
  // The last maker of `id` before `at`, if it has no other reader in between or afterwards.
  std::optional<size_t> only_maker(ValueId id, size_t at) const {
    int from = uses_.maker(id, at);
    if (from < 0 || !uses_.only_between(id, index(from), at)) return std::nullopt;
    return index(from);
  }
  // A sum of two tensors that goes into `id`; written over one of them, it must be `id` that was there before.
  bool is_sum(const Instruction& x) const {
    return x.def == &op_def<Add> && x.inputs.size() == 2 && x.inputs[0] != x.inputs[1];
  }
  bool is_norm(const Instruction& x) const {
    return x.def == &op_def<BatchNorm> && x.action == Action::make && params_of<BatchNorm::Params>(x).training &&
           is_image(meta(x.inputs[0]));
  }

  void fuse_forward(size_t at) {
    const Instruction& relu = g_.instructions[at];
    std::optional<size_t> before = only_maker(relu.inputs[0], at);
    if (!before) return;
    const Instruction& last = g_.instructions[*before];
    if (is_norm(last)) return put_forward(*before, at, at, kNone);
    if (!is_sum(last)) return;
    for (size_t side : {0, 1}) {
      const ValueId made = last.inputs[side], residual = last.inputs[1 - side];
      if (last.action == Action::write && last.outputs[0] != made) continue;
      std::optional<size_t> norm = only_maker(made, *before);
      if (!norm || !is_norm(g_.instructions[*norm]) || g_.instructions[*norm].outputs[0] != made) continue;
      if (!same_place(meta(residual), meta(made)) || !can_wait(*before, at, at)) continue;
      return put_forward(*norm, at, *before, residual);
    }
  }
  // The norm and what is between, a sum or nothing, go into the relu.
  void put_forward(size_t norm, size_t at, size_t between, ValueId residual) {
    Instruction& relu = g_.instructions[at];
    const Instruction& x = g_.instructions[norm];
    if (between == at && relu.inputs[0] != x.outputs[0]) return;
    if (!same_place(meta(relu.outputs[0]), meta(x.outputs[0])) || !can_wait(norm, at, between)) return;
    Instruction fused = x;
    fused.def = &op_def<FusedBatchNorm>;
    fused.inputs.push_back(residual);
    fused.outputs[0] = relu.outputs[0];
    fused.outputs.push_back(add_temporary(
        Meta::dense({2, meta(x.inputs[0]).sizes[1]}, meta(x.outputs[1]).dtype, meta(x.outputs[1]).device)));
    fused.site = relu.site;
    note_effects(fused);
    take(norm, at);
    if (between != at) take(between, at);
    relu = std::move(fused);
    ++forward_;
  }

  void fuse_backward(size_t at) {
    const Instruction& x = g_.instructions[at];
    if (!params_of<BatchNormBackward::Params>(x).training || !is_image(meta(x.inputs[1]))) return;
    const ValueId masked = x.inputs[0];
    const int from = uses_.maker(masked, at);
    if (from < 0) return;
    const Instruction& relu = g_.instructions[index(from)];
    if (relu.def != &op_def<ElementwiseGradient> || relu.action != Action::make ||
        params_of<ElementwiseGradient::Params>(relu).op != op_index(op_def<Relu>) || relu.outputs[0] != masked)
      return;
    for (ValueId id : {relu.inputs[0], relu.inputs[2], masked})
      if (!same_place(meta(id), meta(x.inputs[1]))) return;
    if (uses_.only_between(masked, index(from), at) && uses_.inputs_stand(index(from), at)) {
      if (std::optional<ValueId> affine = affine_of(relu.inputs[2], at)) {
        if (pays(meta(masked), true)) put_backward(index(from), at, {*affine, kNone, kNone}, empty_like(masked));
        return;
      }
    }
    if (can_wait(index(from), at, at) && pays(meta(masked), false)) take_masked(index(from), at);
  }
  // On Arm the arithmetic of the sums is the bound, not memory, where a cache holds the data between two passes. For
  // [8, 64, 56, 56] on a Neoverse-V1, NHWC: the norm's gradient and a pass like the relu's take 1.14 ms in f32 and 1.44
  // in bf16, fused 1.20 and 1.32; with a stored mask 1.39 and 1.35. On a Sapphire Rapids core all of them gain: the
  // norms of ResNet-50 at batch 2 take 50 instead of 58 ms in f32, 30 instead of 35 under autocast.
  bool pays(const Meta& x, bool from_x) {
    const bool good = kMemoryBound || !weigh_ || !x.device.is_cpu() || (from_x && size_of(x.dtype) == 2);
    dear_ += !good;
    return good;
  }
  // Where y is relu(batch_norm(x)) of the same x, which the mask is found from.
  std::optional<ValueId> affine_of(ValueId y, size_t at) const {
    const Instruction& x = g_.instructions[at];
    const int from = uses_.maker(y, at);
    if (from < 0) return std::nullopt;
    const Instruction& norm = g_.instructions[index(from)];
    if (norm.def != &op_def<FusedBatchNorm> || norm.outputs[0] != y || norm.inputs[5] != kNone) return std::nullopt;
    if (norm.inputs[0] != x.inputs[1] || norm.outputs[1] != x.inputs[3] || norm.outputs[2] != x.inputs[4])
      return std::nullopt;
    return uses_.inputs_stand(index(from), at) ? std::optional(norm.outputs[3]) : std::nullopt;
  }
  // The gradient before the relu is stored, for others. It takes a sum before it, which would otherwise go into one
  // pass with the relu's gradient; so would other elementwise ops, which are left there: fewer passes over memory.
  void take_masked(size_t relu, size_t at) {
    const ValueId g = g_.instructions[relu].inputs[0], y = g_.instructions[relu].inputs[2],
                  masked = g_.instructions[relu].outputs[0];
    std::optional<size_t> before = only_maker(g, relu);
    if (!before || !is_elementwise(g_.instructions[*before])) return put_backward(relu, at, {kNone, y, kNone}, masked);
    const Instruction& sum = g_.instructions[*before];
    const bool fits = is_sum(sum) && same_place(meta(sum.inputs[0]), meta(y)) &&
                      same_place(meta(sum.inputs[1]), meta(y)) && can_wait(*before, at, relu);
    if (!fits) {
      notes_.left.push_back(fmt::format("fuse_norms: the gradient of the relu from {}: {} goes into it",
                                        to_string(g_.instructions[relu].site), sum.def->info.name));
      return;
    }
    g_.instructions[relu].inputs[0] = sum.inputs[0];
    const ValueId more = sum.inputs[1];
    take(*before, at);
    put_backward(relu, at, {kNone, y, more}, masked);
  }
  static bool is_elementwise(const Instruction& x) {
    return x.action != Action::view && x.action != Action::call &&
           (x.def->elementwise || x.def == &op_def<ElementwiseGradient>);
  }
  void put_backward(size_t relu, size_t at, const std::vector<ValueId>& more_inputs, ValueId masked) {
    Instruction& x = g_.instructions[at];
    x.def = &op_def<FusedBatchNormBackward>;
    x.inputs[0] = g_.instructions[relu].inputs[0];
    x.inputs.insert(x.inputs.end(), more_inputs.begin(), more_inputs.end());
    x.outputs.push_back(masked);
    take(relu, at);
    ++backward_;
  }

  ValueId add_temporary(const Meta& m) {
    const size_t bytes = static_cast<size_t>(m.numel) * size_of(m.dtype);
    return g_.add_value(m, g_.add_buffer(BufferKind::temporary, bytes));
  }
  ValueId empty_like(ValueId id) { return add_temporary(Meta::dense({0}, meta(id).dtype, meta(id).device)); }
  void take(size_t from, size_t at) {
    g_.instructions[from].def = nullptr;
    uses_.moved(from, at);
  }

  Graph& g_;
  Uses uses_;
  Notes& notes_;
  bool weigh_;
  size_t forward_ = 0, backward_ = 0, dear_ = 0;
};

}  // namespace

void fuse_norms(Graph& graph, Notes& notes, bool weigh) { NormFuser(graph, notes, weigh).run(); }

}  // namespace deft::graph
