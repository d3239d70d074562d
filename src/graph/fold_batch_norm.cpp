// Folds batch norm with fixed statistics, a scale and an offset per channel, into the weights before it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/grad_mode.h"
#include "graph/passes.h"
#include "graph/uses.h"
#include "ops/binary.h"
#include "ops/conv.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/norm.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace deft::graph {

namespace {

class BatchNormFolder {
 public:
  BatchNormFolder(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes)
      : g_(graph), uses_(graph), dependencies_(dependencies), notes_(notes) {}

  void run() {
    NoGradGuard no_grad;
    for (size_t i = 0; i < g_.instructions.size(); ++i)
      if (g_.instructions[i].def == &op_def<BatchNorm>) fold(i);
    remove_taken(g_);
    if (folded_) notes_.done.push_back(fmt::format("fold_batch_norm: {} into the convolutions before them", folded_));
  }

 private:
  void leave(const Instruction& x, const char* why) {
    notes_.left.push_back(fmt::format("fold_batch_norm: the one from {}: {}", to_string(x.site), why));
  }
  bool is_constant(ValueId id) const {
    return id == kNone || (g_.buffer_of(id).kind == BufferKind::constant && !g_.buffer_of(id).written);
  }
  bool is_read(ValueId id) const {
    for (const Instruction& x : g_.instructions)
      for (ValueId in : x.inputs)
        if (x.def && in == id) return true;
    for (ValueId out : g_.outputs)
      if (out == id) return true;
    return false;
  }

  void fold(size_t at) {
    Instruction& norm = g_.instructions[at];
    BatchNorm::Params p;
    std::memcpy(&p, norm.params.data(), sizeof p);
    if (p.training) return leave(norm, "its statistics come from the batch");
    int from = uses_.maker(norm.inputs[0], at);
    if (from < 0 || g_.instructions[static_cast<size_t>(from)].def != &op_def<Convolution>)
      return leave(norm, "there is no convolution before it");
    Instruction& conv = g_.instructions[static_cast<size_t>(from)];
    if (!uses_.only_between(norm.inputs[0], static_cast<size_t>(from), at))
      return leave(norm, "the convolution's result is used elsewhere too");
    if (!uses_.inputs_stand(static_cast<size_t>(from), at)) return leave(norm, "what the convolution reads is written");
    if (is_read(norm.outputs[1]) || is_read(norm.outputs[2])) return leave(norm, "its statistics are read");
    for (size_t i = 1; i < norm.inputs.size(); ++i)
      if (!is_constant(norm.inputs[i])) return leave(norm, "its weights are not constant");
    if (!is_constant(conv.inputs[1]) || !is_constant(conv.inputs[2]))
      return leave(norm, "the convolution's weights are not constant");
    join(conv, norm, p);
    g_.instructions[static_cast<size_t>(from)].def = nullptr;
    ++folded_;
  }

  // In f64, rounded once to the weight's type.
  void join(const Instruction& conv, Instruction& norm, const BatchNorm::Params& p) {
    Tensor w = read(conv.inputs[1]);
    DType type = w.dtype();
    auto wide = [&](ValueId id, double missing) {
      return id == kNone ? full({w.size(0)}, missing, {DType::f64, w.device()}) : read(id).to(DType::f64);
    };
    Tensor gamma = wide(norm.inputs[1], 1), beta = wide(norm.inputs[2], 0);
    Tensor mean = wide(norm.inputs[3], 0), var = wide(norm.inputs[4], 1), bias = wide(conv.inputs[2], 0);
    Tensor scale = gamma / (var + p.eps).sqrt();
    Tensor offset = ((bias - mean) * scale + beta).to(type);
    Instruction x = conv;
    x.inputs[1] = add_constant(times(w, scale, order_for(conv, w)));
    x.inputs[2] = add_constant(offset.contiguous());
    x.outputs = {norm.outputs[0]};
    x.site = norm.site;
    norm = std::move(x);
  }
  // A few channels at a time: intermediate results stay in the caches.
  static Tensor times(const Tensor& w, const Tensor& scale, MemoryFormat order) {
    constexpr int64_t kTogether = 32 * 1024;  // values
    Tensor result = empty(w.sizes(), {w.dtype(), w.device()});
    Shape along = w.sizes();
    for (int i = 1; i < along.size(); ++i) along[i] = 1;
    const Tensor scales = scale.reshape(along);
    const int64_t each = std::max<int64_t>(1, w.numel() / std::max<int64_t>(1, w.size(0)));
    const int64_t step = w.device().is_cpu() ? std::max<int64_t>(1, kTogether / each) : w.size(0);
    for (int64_t i = 0, count = 0; i < w.size(0); i += count) {
      count = std::min(step, w.size(0) - i);
      result.narrow(0, i, count).copy_(w.narrow(0, i, count).to(DType::f64) * scales.narrow(0, i, count));
    }
    return result.contiguous(order);
  }
  // The order in which the device's kernels read a weight: others would be copied in every run.
  static MemoryFormat order_for(const Instruction& conv, const Tensor& weight) {
    ConvGeometry p;
    std::memcpy(&p, conv.params.data(), sizeof p);
    const bool last = p.channels_last && weight.device().type == DeviceType::cuda;
    return last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  }
  Tensor read(ValueId id) {
    const Tensor& t = g_.buffer_of(id).constant;
    Storage* s = t.impl()->storage;
    bool known = false;
    for (const Dependency& d : dependencies_) known |= d.tensor.impl()->storage == s;
    if (!known) dependencies_.push_back({t, s->stamp()});
    return on_memory_of(t, g_.value(id));
  }
  ValueId add_constant(const Tensor& t) {
    return g_.add_value(t.meta(), g_.add_buffer(BufferKind::constant, t.impl()->storage->nbytes, t));
  }

  Graph& g_;
  Uses uses_;
  std::vector<Dependency>& dependencies_;
  Notes& notes_;
  size_t folded_ = 0;
};

}  // namespace

void fold_batch_norm(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes) {
  BatchNormFolder(graph, dependencies, notes).run();
}

}  // namespace deft::graph
