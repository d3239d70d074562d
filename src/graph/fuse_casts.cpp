// Casts after 16-bit matmuls, as autocast makes them in training steps: a result that is only widened is stored in
// f32, gradients of weights above all. 768 x 768 x 256 takes 1.19 ms instead of 1.40 and 0.06 for the cast on a
// Neoverse-V1: sums go to memory as they are.
//
// Casts of weights, f32 to bf16 in every step, stay. Rounding them while matmuls pack them was measured: packing waits
// for memory as the cast does, twice in a step, and BERT's step takes as long.
#include <fmt/format.h>

#include <algorithm>

#include "graph/edit.h"
#include "graph/passes.h"
#include "graph/uses.h"
#include "ops/conv.h"
#include "ops/copy.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"
#include "ops/view.h"

namespace deft::graph {

namespace {

// Rows and columns of a matmul that packs both sides for certain: others have quicker ways than FusedLinear's.
constexpr int64_t kLeastSize = 32;

class CastFuser {
 public:
  CastFuser(Graph& graph, Notes& notes, bool weigh)
      : g_(graph), uses_(graph), notes_(notes), weigh_(weigh), places_(graph.buffers.size()) {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      for (const auto* list : {&g_.instructions[i].inputs, &g_.instructions[i].outputs}) {
        for (ValueId id : *list) {
          if (id != kNone) note_place(g_.value(id).buffer, i);
        }
      }
    }
    for (ValueId id : g_.outputs) note_place(g_.value(id).buffer, g_.instructions.size());
  }

  void run() {
    const size_t count = g_.instructions.size();
    for (size_t i = 0; i < count; ++i) {
      const Instruction& x = g_.instructions[i];
      if (x.def == &op_def<Cast> && x.action == Action::make) take(i);
    }
    insert_views();
    remove_taken(g_);
    if (fused_) notes_.done.push_back(fmt::format("fuse_casts: {} results of matmuls stored in f32", fused_));
  }

 private:
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }

  void note_place(BufferId buffer, size_t place) {
    std::vector<size_t>& places = places_[index(buffer)];
    if (places.empty() || places.back() != place) places.push_back(place);
  }

  // The matmul before the cast stores the cast's result.
  void take(size_t at) {
    const ValueId narrow = g_.instructions[at].inputs[0], wide = g_.instructions[at].outputs[0];
    const Meta &from = meta(narrow), &to = meta(wide);
    if (size_of(from.dtype) != 2 || to.dtype != DType::f32) return;
    if (take_transposed(at, narrow, wide) || !to.contiguous) return;
    const int maker = uses_.maker(narrow, at);
    if (maker < 0 || !uses_.only_between(narrow, index(maker), at)) return;
    Instruction& x = g_.instructions[index(maker)];
    if (x.action != Action::make || x.outputs[0] != narrow) return;
    if (x.def == &op_def<ConvBackwardWeight>) {
      if (!to.device.is_cpu() || params_of<ConvBackwardWeight::Params>(x).geometry.groups != 1) return;
      widen<ConvBackwardWeight>(x);
    } else if (is_matmul(x)) {
      as_fused_linear(index(maker));
      widen<FusedLinear>(x);
    } else {
      return;
    }
    x.outputs[0] = wide;
    g_.instructions[at].def = nullptr;
    ++fused_;
  }
  // The same where a view transposes the matmul before the cast: the gradient of a weight that is used transposed.
  bool take_transposed(size_t at, ValueId narrow, ValueId wide) {
    const Value from = g_.value(narrow), to = g_.value(wide);
    const std::vector<size_t>& places = places_[index(from.buffer)];
    if (g_.buffer_of(narrow).kind != BufferKind::temporary || places.size() != 3 || places[2] != at) return false;
    Instruction &x = g_.instructions[places[0]], &view = g_.instructions[places[1]];
    if (x.action != Action::make || view.def != &op_def<Permute> || view.outputs[0] != narrow) return false;
    if (view.inputs[0] != x.outputs[0] || !is_matmul(x) || !(to.meta.strides == from.meta.strides)) return false;
    Meta matmul = meta(x.outputs[0]);
    matmul.dtype = DType::f32;
    if (!matmul.contiguous || to.offset != 0) return false;
    as_fused_linear(places[0]);
    widen<FusedLinear>(x);
    x.outputs[0] = g_.add_value(matmul, to.buffer, to.offset);
    g_.instructions[at] = view;
    g_.instructions[at].inputs[0] = x.outputs[0];
    g_.instructions[at].outputs[0] = wide;
    view.def = nullptr;
    ++fused_;
    return true;
  }
  bool is_matmul(const Instruction& x) const {
    if (x.def != &op_def<Linear> && x.def != &op_def<FusedLinear> && x.def != &op_def<Matmul>) return false;
    if (x.inputs.size() > 3 && x.inputs[3] != kNone) return false;  // a residual of the narrow type
    const Meta &left = meta(x.inputs[0]), &right = meta(x.inputs[1]), &out = meta(x.outputs[0]);
    if (!is_floating(out.dtype) || right.rank() != 2 || left.rank() < 2 || out.numel == 0) return false;
    if (left.rank() > 2 && !left.contiguous) return false;
    if (!out.device.is_cpu() && !is_plain(x)) return false;
    return !weigh_ || (out.sizes.back() >= kLeastSize && out.numel / out.sizes.back() >= kLeastSize);
  }
  // cuBLASLt stores nothing else wider than its inputs in one kernel.
  static bool is_plain(const Instruction& x) {
    if (x.inputs.size() > 2 && x.inputs[2] != kNone) return false;
    return x.def != &op_def<FusedLinear> || params_of<FusedLinear::Params>(x).activation == FusedActivation::none;
  }
  template <class Op>
  static void widen(Instruction& x) {
    auto p = params_of<typename Op::Params>(x);
    p.wide_result = true;
    set_params(x, p);
  }
  void as_fused_linear(size_t at) {
    if (g_.instructions[at].def == &op_def<FusedLinear>) return;
    if (g_.instructions[at].def == &op_def<Matmul>) transpose_right(at);
    Instruction& x = g_.instructions[at];
    x.def = &op_def<FusedLinear>;
    x.inputs.resize(4, kNone);
    set_params(x, FusedLinear::Params{});
  }
  // By a view, made right before the instruction.
  void transpose_right(size_t at) {
    Instruction& x = g_.instructions[at];
    Instruction view{&op_def<Permute>, Action::view, {x.inputs[1]}, {}, {}, x.site};
    Permute::Params p{{1, 0}};
    const Value from = g_.value(x.inputs[1]);
    x.inputs[1] = g_.add_value(Permute::view(from.meta, p).meta, from.buffer, from.offset);
    view.outputs.push_back(x.inputs[1]);
    set_params(view, p);
    views_.emplace_back(at, std::move(view));
  }
  void insert_views() {
    std::stable_sort(views_.begin(), views_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Instruction> all;
    auto next = views_.begin();
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      for (; next != views_.end() && next->first == i; ++next) all.push_back(std::move(next->second));
      all.push_back(std::move(g_.instructions[i]));
    }
    g_.instructions = std::move(all);
  }

  Graph& g_;
  Uses uses_;
  Notes& notes_;
  bool weigh_;
  std::vector<std::vector<size_t>> places_;            // instructions that read, write or show each buffer
  std::vector<std::pair<size_t, Instruction>> views_;  // and where they go
  size_t fused_ = 0;
};

}  // namespace

void fuse_casts(Graph& graph, Notes& notes, bool weigh) { CastFuser(graph, notes, weigh).run(); }

}  // namespace deft::graph
