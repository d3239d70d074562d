// relu(conv(x) + y) in one pass: matmuls and convolutions end with bias, residual and activation while their results
// are in registers.
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "graph/edit.h"
#include "graph/passes.h"
#include "graph/uses.h"
#include "ops/activation.h"
#include "ops/binary.h"
#include "ops/conv.h"
#include "ops/copy.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"
#include "ops/unary.h"

namespace deft::graph {

namespace {

std::optional<FusedActivation> activation_of(const Instruction& x) {
  if (x.def == &op_def<Relu>) return FusedActivation::relu;
  if (x.def == &op_def<Silu>) return FusedActivation::silu;
  if (x.def == &op_def<Sigmoid>) return FusedActivation::sigmoid;
  if (x.def == &op_def<Tanh>) return FusedActivation::tanh;
  if (x.def == &op_def<Gelu>)
    return params_of<Gelu::Params>(x).approximate == GeluApproximation::tanh ? FusedActivation::gelu_tanh
                                                                             : FusedActivation::gelu;
  return std::nullopt;
}

// On a CPU the pass that is saved runs in a cache and the kernels are bound by arithmetic, so an epilogue must cost
// next to nothing: relu does, and the residual of 16-bit results. Measured on a Neoverse-V1 for 128 x 768 x 768 and 128
// x 3072 x 768: gelu of f32 in the epilogue takes 0.1 to 0.5 ns more for each value than as an op of its own, a
// residual in f32 0.9 to 1.4 (short pieces of rows come late from L2; ResNet-50's convolutions gain by it all the
// same). A call saved is worth a few hundred values; results larger than any cache are worth it again.
//
// On the way to bf16 Arm's tiles have a shorter gelu (kernels/cpu/aarch64/gelu_bf16.S): BERT-base in bf16, 128 tokens
// on two threads, takes 44.7 ms with it in the epilogue, 46.2 without. (x86 not measured.)
#if defined(__aarch64__)
constexpr bool kShortGelu = true;
#else
constexpr bool kShortGelu = false;
#endif
constexpr int64_t kFewValues = 512;
constexpr size_t kCacheBytes = size_t{32} << 20;
bool pays(const Meta& result, bool cheap) {
  if (!result.device.is_cpu() || cheap || result.numel <= kFewValues) return true;
  return static_cast<size_t>(result.numel) * size_of(result.dtype) > kCacheBytes;
}

class EpilogueFuser {
 public:
  EpilogueFuser(Graph& graph, Notes& notes, bool weigh) : g_(graph), uses_(graph), notes_(notes), weigh_(weigh) {}

  void run() {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      if (!x.def || x.action == Action::view || x.outputs.empty()) continue;
      if (activation_of(x)) {
        take_activation(i);
      } else if (x.def == &op_def<Add> && x.inputs.size() == 2) {
        take_residual(i);
      }
    }
    for (size_t i = 0; i < g_.instructions.size(); ++i)
      if (is_fusable(g_.instructions[i]) && is_on_cuda(g_.instructions[i])) prepare_for_cuda(i);
    remove_taken(g_);
    if (fused_) notes_.done.push_back(fmt::format("fuse_epilogues: {} ops into matmuls and convolutions", fused_));
    if (copies_) notes_.done.push_back(fmt::format("fuse_epilogues: {} copies that convolutions do without", copies_));
  }

 private:
  bool is_fusable(const Instruction& x) const {
    const bool known = x.def == &op_def<Convolution> || x.def == &op_def<FusedConvolution> ||
                       x.def == &op_def<Linear> || x.def == &op_def<FusedLinear>;
    return known && x.action == Action::make && is_floating(g_.value(x.outputs[0]).meta.dtype);
  }
  bool is_convolution(int at) const {
    const OpDef* def = g_.instructions[static_cast<size_t>(at)].def;
    return def == &op_def<Convolution> || def == &op_def<FusedConvolution>;
  }
  // One row with a weight too large for pack_rows(): an epilogue takes 2.5 us of a matmul of 784 x 1024.
  bool is_one_row(size_t at) const {
    const Instruction& x = g_.instructions[at];
    const Meta &row = g_.value(x.inputs[0]).meta, &weight = g_.value(x.inputs[1]).meta;
    return x.def == &op_def<Linear> && row.numel == weight.sizes[1] && !FusedLinear::fits_one_row(row, weight);
  }
  // One row that pack_rows() will make panels for: sums are finished in registers.
  bool is_packed_row(int at) const {
    const Instruction& x = g_.instructions[static_cast<size_t>(at)];
    return !is_convolution(at) && FusedLinear::fits_one_row(g_.value(x.inputs[0]).meta, g_.value(x.inputs[1]).meta);
  }
  bool is_on_cuda(const Instruction& x) const { return g_.value(x.outputs[0]).meta.device.type == DeviceType::cuda; }
  FusedActivation activation(const Instruction& x) const {
    if (x.def == &op_def<FusedConvolution>) return params_of<FusedConvolution::Params>(x).activation;
    if (x.def == &op_def<FusedLinear>) return params_of<FusedLinear::Params>(x).activation;
    return FusedActivation::none;
  }
  bool has_residual(const Instruction& x) const { return x.inputs.size() > 3 && x.inputs[3] != kNone; }

  // The matmul or convolution that ends in `id`, if it can take more.
  int producer_before(ValueId id, size_t at) const {
    int from = uses_.maker(id, at);
    if (from < 0 || !is_fusable(g_.instructions[static_cast<size_t>(from)])) return -1;
    auto maker = static_cast<size_t>(from);
    if (activation(g_.instructions[maker]) != FusedActivation::none) return -1;
    return uses_.only_between(id, maker, at) && uses_.inputs_stand(maker, at) ? from : -1;
  }

  // The op as the fused op of its kind.
  static Instruction as_fused(const Instruction& x) {
    Instruction fused = x;
    fused.inputs.resize(4, kNone);
    if (x.def == &op_def<Convolution>) {
      fused.def = &op_def<FusedConvolution>;
      FusedConvolution::Params p{};
      p.geometry = params_of<ConvGeometry>(x);
      set_params(fused, p);
    } else if (x.def == &op_def<Linear>) {
      fused.def = &op_def<FusedLinear>;
      set_params(fused, FusedLinear::Params{});
    }
    return fused;
  }

  void take_activation(size_t at) {
    Instruction& x = g_.instructions[at];
    int from = producer_before(x.inputs[0], at);
    if (from < 0) return;
    FusedActivation a = *activation_of(x);
    const bool short_gelu = kShortGelu && a == FusedActivation::gelu && g_.value(x.outputs[0]).meta.dtype == bf16;
    const bool cheap = (a == FusedActivation::relu || short_gelu) && !is_one_row(static_cast<size_t>(from));
    if (weigh_ && !pays(g_.value(x.outputs[0]).meta, cheap)) return leave(x);
    Instruction fused = as_fused(g_.instructions[static_cast<size_t>(from)]);
    if (fused.def == &op_def<FusedConvolution>) {
      auto p = params_of<FusedConvolution::Params>(fused);
      p.activation = a;
      set_params(fused, p);
    } else {
      auto p = params_of<FusedLinear::Params>(fused);
      p.activation = a;
      set_params(fused, p);
    }
    put(static_cast<size_t>(from), at, std::move(fused));
  }

  void leave(const Instruction& x) {
    notes_.left.push_back(
        fmt::format("fuse_epilogues: {} from {}: as fast on its own", x.def->info.name, to_string(x.site)));
  }
  bool fits(const Meta& residual, const Meta& result) const {
    return residual.sizes == result.sizes && residual.dtype == result.dtype &&
           (residual.strides == result.strides || (residual.contiguous && result.contiguous));
  }
  void take_residual(size_t at) {
    Instruction& x = g_.instructions[at];
    for (int side : {0, 1}) {
      ValueId term = x.inputs[static_cast<size_t>(side)], other = x.inputs[static_cast<size_t>(1 - side)];
      int from = term == other ? -1 : producer_before(term, at);
      if (from < 0 || has_residual(g_.instructions[static_cast<size_t>(from)])) continue;
      const Meta& result = g_.value(x.outputs[0]).meta;
      if (!fits(g_.value(other).meta, result) || !fits(g_.value(term).meta, result)) continue;
      if (weigh_ && !pays(result, size_of(result.dtype) == 2 || is_convolution(from) || is_packed_row(from)))
        return leave(x);
      // The sum may be written over the residual: each element is read before it is written.
      Instruction fused = as_fused(g_.instructions[static_cast<size_t>(from)]);
      fused.inputs[3] = other;
      put(static_cast<size_t>(from), at, std::move(fused));
      return;
    }
  }

  // The fused ops choose their kernels by timing, which pays for all matmuls and convolutions of a plan. A convolution
  // over few channels reads its input in any layout: an image need not be copied into channels_last before.
  void prepare_for_cuda(size_t at) {
    g_.instructions[at] = as_fused(g_.instructions[at]);
    Instruction& x = g_.instructions[at];
    if (x.def != &op_def<FusedConvolution> || g_.value(x.inputs[0]).meta.sizes[1] > kFewChannels) return;
    int from = uses_.maker(x.inputs[0], at);
    if (from < 0 || !params_of<FusedConvolution::Params>(x).geometry.channels_last) return;
    auto maker = static_cast<size_t>(from);
    Instruction& copy = g_.instructions[maker];
    if (copy.def != &op_def<Clone> || copy.action != Action::make) return;
    if (!uses_.only_between(x.inputs[0], maker, at) || !uses_.inputs_stand(maker, at)) return;
    x.inputs[0] = copy.inputs[0];
    copy.def = nullptr;
    ++copies_;
  }

  void put(size_t from, size_t at, Instruction fused) {
    Instruction& x = g_.instructions[at];
    // A result written over another tensor stays a write of that: only ops with a result of their own are fused.
    if (x.action == Action::write && x.outputs[0] != g_.instructions[from].outputs[0]) return;
    fused.outputs = x.outputs;
    fused.site = x.site;
    fused.action = Action::make;
    g_.instructions[from].def = nullptr;
    uses_.moved(from, at);
    x = std::move(fused);
    ++fused_;
  }

  static constexpr int64_t kFewChannels = 4;
  Graph& g_;
  Uses uses_;
  Notes& notes_;
  bool weigh_;
  size_t fused_ = 0, copies_ = 0;
};

}  // namespace

void fuse_epilogues(Graph& graph, Notes& notes, bool weigh) { EpilogueFuser(graph, notes, weigh).run(); }

}  // namespace deft::graph
