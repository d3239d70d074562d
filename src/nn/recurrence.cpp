#include "nn/recurrence.h"

#include <optional>

#include "core/engine.h"
#include "core/function.h"
#include "core/grad_mode.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace deft::nn {

namespace {

// Steps in the order they are taken.
struct Steps {
  int64_t count;
  bool reverse;
  int64_t operator[](int64_t i) const { return reverse ? count - 1 - i : i; }
  int64_t last() const { return (*this)[count - 1]; }
};

// For each step the state before it: `first`, then those of `states` [steps, ...] but the last.
Tensor states_before(const Steps& steps, const Tensor& first, const Tensor& states) {
  Tensor one = first.unsqueeze(0);
  if (steps.reverse) return cat({states.narrow(0, 1, steps.count - 1), one});
  return cat({one, states.narrow(0, 0, steps.count - 1)});
}

// The k-th of the gates that lie side by side.
Tensor gate(const Tensor& gates, int64_t k, int64_t hidden) { return gates.narrow(-1, k * hidden, hidden); }

// --- The same in plain ops: gradients of gradients go through it.

Tensors composed(const Recurrence& kind, const Tensors& in) {
  const Tensor &gates = in[0], &weight = in[3], &bias = in[4];
  Tensor h = in[1], c = in[2];
  Steps steps{gates.size(0), kind.reverse};
  int64_t n = h.size(-1);
  Tensors outputs(static_cast<size_t>(steps.count));
  for (int64_t i = 0; i < steps.count; ++i) {
    int64_t t = steps[i];
    Tensor x = gates[t], side = linear(h, weight, bias);
    if (kind.cell == Cell::gru) {
      Tensor r = sigmoid(gate(x, 0, n) + gate(side, 0, n)), z = sigmoid(gate(x, 1, n) + gate(side, 1, n));
      Tensor fresh = tanh(gate(x, 2, n) + r * gate(side, 2, n));
      h = fresh + z * (h - fresh);
    } else if (kind.cell == Cell::lstm) {
      Tensor all = x + side;
      c = sigmoid(gate(all, 1, n)) * c + sigmoid(gate(all, 0, n)) * tanh(gate(all, 2, n));
      h = sigmoid(gate(all, 3, n)) * tanh(c);
    } else {
      h = kind.cell == Cell::relu ? relu(x + side) : tanh(x + side);
    }
    outputs[static_cast<size_t>(t)] = h;
  }
  Tensor all = stack(outputs);
  return kind.cell == Cell::lstm ? Tensors{all, c} : Tensors{all};
}

Tensors composed_backward(const Recurrence& kind, const Tensors& saved, const Tensors& grads,
                          const FunctionContext& ctx) {
  Tensors in = saved, wanted;
  std::vector<size_t> at;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].defined() || !ctx.needs_input_grad(i)) continue;
    in[i] = view(in[i], in[i].sizes());  // an input may depend on another one, and that path is not ours
    wanted.push_back(in[i]);
    at.push_back(i);
  }
  Tensors result(in.size());
  Tensors found =
      grad(composed(kind, in), wanted, grads, {.retain_graph = true, .create_graph = true, .allow_unused = true});
  for (size_t i = 0; i < found.size(); ++i) result[at[i]] = found[i];
  return result;
}

// --- Forward and backward through all steps with what is needed kept in whole tensors. Per step only the product with
// the hidden side and a few elementwise passes are left; everything else is done for all steps at once.

// x times the transpose of one weight, step after step. Packed once if there are enough steps to pay for it, and more
// rows than the kernels for few read the weight as it lies for: packed, an LSTM of 100 steps, one row and 64 units
// took 1.5 ms instead of 1.2 for forward and backward.
class StepProduct {
 public:
  StepProduct(const Tensor& weight, const Tensor& bias, int64_t steps, int64_t rows)
      : weight_(weight.detach()), bias_(bias.defined() ? bias.detach() : bias) {
    if (steps >= 4 && rows > 3) packed_.emplace(weight_, bias_);
  }
  Tensor operator()(const Tensor& x, const Tensor& plus = {},
                    FusedActivation activation = FusedActivation::none) const {
    if (packed_) return (*packed_)(x, activation, plus);
    Tensor y = linear(x, weight_, bias_);
    if (plus.defined()) y.add_(plus);
    return activation == FusedActivation::relu ? y.relu_() : activation == FusedActivation::tanh ? y.tanh_() : y;
  }

 private:
  Tensor weight_, bias_;
  std::optional<PackedLinear> packed_;
};

struct Kept {
  Tensor gates;  // after their nonlinearities
  Tensor extra;  // lstm: cells of all steps; gru: the hidden side of the new state
};

// Turns z into its gates and c into the next cell; returns the next state.
Tensor lstm_step(const Tensor& z, Tensor& c) {
  int64_t n = c.size(-1);
  z.narrow(1, 0, 2 * n).sigmoid_();
  gate(z, 2, n).tanh_();
  gate(z, 3, n).sigmoid_();
  c = (gate(z, 1, n) * c).addcmul_(gate(z, 0, n), gate(z, 2, n));
  return gate(z, 3, n) * tanh(c);
}

// z is the input's side and becomes the gates.
Tensor gru_step(const Tensor& z, const Tensor& side, const Tensor& h) {
  int64_t n = h.size(-1);
  z.narrow(1, 0, 2 * n).add_(side.narrow(1, 0, 2 * n)).sigmoid_();
  Tensor fresh = gate(z, 2, n);
  fresh.addcmul_(gate(z, 0, n), gate(side, 2, n)).tanh_();
  return (h - fresh).mul_(gate(z, 1, n)).add_(fresh);
}

struct ForwardResult {
  Tensor output, cell;
  Kept kept;  // only if `keep`
};

ForwardResult run_forward(const Recurrence& kind, const Tensors& in, bool keep) {
  const Tensor &gates = in[0], &first = in[1];
  Steps steps{gates.size(0), kind.reverse};
  int64_t batch = first.size(0), n = first.size(1);
  TensorOptions like(gates.dtype(), gates.device());
  bool lstm = kind.cell == Cell::lstm, gru = kind.cell == Cell::gru;
  ForwardResult r{.output = empty({steps.count, batch, n}, like), .cell = in[2], .kept = {}};
  if (keep && (lstm || gru)) {
    r.kept.gates = empty(gates.sizes(), like);
    r.kept.extra = empty({steps.count, batch, n}, like);
  }
  StepProduct product(in[3], in[4], steps.count, batch);
  FusedActivation end = kind.cell == Cell::relu ? FusedActivation::relu : FusedActivation::tanh;
  Tensor h = first;
  for (int64_t i = 0; i < steps.count; ++i) {
    int64_t t = steps[i];
    Tensor z, extra;
    if (lstm) {
      z = product(h, gates[t]);
      h = lstm_step(z, r.cell);
      extra = r.cell;
    } else if (gru) {
      z = gates[t].clone();
      Tensor side = product(h);
      h = gru_step(z, side, h);
      extra = gate(side, 2, n);
    } else {
      h = product(h, gates[t], end);
    }
    r.output[t].copy_(h);
    if (!r.kept.gates.defined()) continue;
    r.kept.gates[t].copy_(z);
    r.kept.extra[t].copy_(extra);
  }
  return r;
}

struct StepGrads {
  Tensor gates;  // of the input's side
  Tensor side;   // of the hidden side before bias; the same tensor unless gru
  Tensor h, c;   // of the first states
};

// The slope of sigmoid and tanh from their results.
Tensor sigmoid_slope(const Tensor& s) { return s * (1 - s); }
Tensor tanh_slope(const Tensor& t) { return 1 - t.square(); }

StepGrads lstm_backward(const Steps& steps, const Tensors& in, const Kept& kept, const Tensors& grads) {
  const Tensor &weight = in[3], &z = kept.gates;
  int64_t n = in[1].size(1), batch = in[1].size(0);
  Tensor input = gate(z, 0, n), forget = gate(z, 1, n), fresh = gate(z, 2, n), out = gate(z, 3, n);
  Tensor before = states_before(steps, in[2], kept.extra), bounded = tanh(kept.extra);
  // Gradient of the gates: these factors times that of the cell (three of them) or of h (the last).
  Tensor factors = stack({fresh * sigmoid_slope(input), before * sigmoid_slope(forget), input * tanh_slope(fresh),
                          bounded * sigmoid_slope(out)},
                         2);
  Tensor to_cell = out * tanh_slope(bounded);
  StepGrads d{.gates = empty_like(z), .side = {}, .h = grads[0][steps.last()], .c = grads[1]};
  StepProduct product(weight.t(), {}, steps.count, in[1].size(0));
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    int64_t t = steps[i];
    Tensor dh = d.h;
    Tensor dc = addcmul(d.c, dh, to_cell[t]), f = factors[t];
    Tensor dz = d.gates[t], split = dz.view({batch, 4, n});
    split.narrow(1, 0, 3).copy_(f.narrow(1, 0, 3) * dc.unsqueeze(1));
    split.select(1, 3).copy_(f.select(1, 3) * dh);
    d.c = dc * forget[t];
    d.h = product(dz, i > 0 ? grads[0][steps[i - 1]] : Tensor());
  }
  d.side = d.gates;
  return d;
}

StepGrads gru_backward(const Steps& steps, const Tensors& in, const Kept& kept, const Tensors& grads,
                       const Tensor& before) {
  const Tensor &weight = in[3], &z = kept.gates;
  int64_t n = in[1].size(1);
  Tensor reset = gate(z, 0, n), update = gate(z, 1, n), fresh = gate(z, 2, n);
  // Gradients of the three gates are these factors times that of h; the hidden side differs in the last.
  Tensor to_fresh = (1 - update) * tanh_slope(fresh);
  Tensor to_reset = to_fresh * kept.extra * sigmoid_slope(reset), to_update = (before - fresh) * sigmoid_slope(update);
  Tensor factors = stack({to_reset, to_update, to_fresh * reset}, 2);
  StepGrads d{.gates = empty_like(z), .side = empty_like(z), .h = grads[0][steps.last()], .c = {}};
  StepProduct product(weight.t(), {}, steps.count, in[1].size(0));
  Tensor dh_all = empty_like(grads[0]);
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    int64_t t = steps[i];
    Tensor dh = d.h;
    Tensor ds = d.side[t];
    ds.view({dh.size(0), 3, n}).copy_(factors[t] * dh.unsqueeze(1));
    dh_all[t].copy_(dh);
    d.h = product(ds, i > 0 ? grads[0][steps[i - 1]] : Tensor()).addcmul_(dh, update[t]);
  }
  d.gates.narrow(-1, 0, 2 * n).copy_(d.side.narrow(-1, 0, 2 * n));
  gate(d.gates, 2, n).copy_(to_fresh * dh_all);
  return d;
}

StepGrads plain_backward(const Recurrence& kind, const Steps& steps, const Tensors& in, const Tensor& y,
                         const Tensors& grads) {
  Tensor slope = kind.cell == Cell::relu ? (y > 0).to(y.dtype()) : tanh_slope(y);
  StepGrads d{.gates = empty_like(y), .side = {}, .h = grads[0][steps.last()], .c = {}};
  StepProduct product(in[3].t(), {}, steps.count, in[1].size(0));
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    int64_t t = steps[i];
    Tensor dz = d.gates[t].copy_(d.h * slope[t]);
    d.h = product(dz, i > 0 ? grads[0][steps[i - 1]] : Tensor());
  }
  d.side = d.gates;
  return d;
}

struct RecurrentSteps : Function<RecurrentSteps> {
  static Tensors forward(FunctionContext& ctx, const Tensor& gates, const Tensor& h, const Tensor& c,
                         const Tensor& weight, const Tensor& bias, const Recurrence& kind) {
    bool keep = false;
    for (size_t i = 0; i < 5; ++i) keep |= ctx.needs_input_grad(i);
    ForwardResult r = run_forward(kind, {gates, h, c, weight, bias}, keep);
    Tensors result = kind.cell == Cell::lstm ? Tensors{r.output, r.cell} : Tensors{r.output};
    if (!keep) return result;
    ctx.set("kind", kind);
    Tensors to_save, all{gates, h, c, weight, bias, r.output, r.kept.gates, r.kept.extra};
    std::vector<bool> there;
    for (const Tensor& t : all) {
      there.push_back(t.defined());
      if (t.defined()) to_save.push_back(t);
    }
    ctx.set("there", there);
    ctx.save_for_backward(to_save);
    return result;
  }

  static Tensors backward(FunctionContext& ctx, const Tensors& given) {
    const auto& kind = ctx.get<Recurrence>("kind");
    const auto& there = ctx.get<std::vector<bool>>("there");
    Tensors saved = ctx.saved(), in(there.size());
    for (size_t i = 0, k = 0; i < there.size(); ++i)
      if (there[i]) in[i] = saved[k++];
    Tensor y = in[5];
    Kept kept{in[6], in[7]};
    in.resize(5);
    if (is_grad_enabled()) return composed_backward(kind, in, given, ctx);

    Tensors grads = given;
    grads[0] = grads[0].contiguous();
    Steps steps{y.size(0), kind.reverse};
    Tensor before = states_before(steps, in[1], y);
    StepGrads d = kind.cell == Cell::lstm  ? lstm_backward(steps, in, kept, grads)
                  : kind.cell == Cell::gru ? gru_backward(steps, in, kept, grads, before)
                                           : plain_backward(kind, steps, in, y, grads);
    int64_t rows = y.size(0) * y.size(1);
    Tensor side = d.side.reshape({rows, -1});
    Tensors result{d.gates, d.h, d.c, {}, {}};
    if (ctx.needs_input_grad(3)) result[3] = matmul(side.t(), before.reshape({rows, -1}));
    if (ctx.needs_input_grad(4)) result[4] = side.sum({0});
    return result;
  }
};

}  // namespace

RecurrenceResult run_recurrence(const Recurrence& kind, const Tensor& gates, const Tensor& h, const Tensor& c,
                                const Tensor& weight, const Tensor& bias) {
  Tensors out = RecurrentSteps::apply(gates, h, c, weight, bias, kind);
  return {out[0], kind.cell == Cell::lstm ? out[1] : Tensor()};
}

}  // namespace deft::nn
