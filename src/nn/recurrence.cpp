#include "nn/recurrence.h"

#include <optional>

#include "core/engine.h"
#include "core/function.h"
#include "core/grad_mode.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace deft::nn {

namespace {

// Steps in the order they are taken. Where sequences differ in length, a step has the first rows of the batch only:
// states of the others wait to begin (in reverse) or stay what they are at the end.
class Steps {
 public:
  explicit Steps(const Recurrence& kind) : count(static_cast<int64_t>(kind.rows.size())), rows_(kind.rows) {
    for (int64_t n : kind.rows) begin_.push_back(begin_.back() + n);
    even = rows_.front() == rows_.back();
    reverse_ = kind.reverse;
  }
  int64_t count;
  bool even = true;  // all rows take part in every step

  int64_t batch() const { return rows_.front(); }
  int64_t rows(int64_t i) const { return rows_[time(i)]; }
  // What belongs to the i-th step taken.
  Tensor of(const Tensor& all, int64_t i) const { return all.narrow(0, begin_[time(i)], rows(i)); }
  // For each row of each step the state before it: `first`, then one of `states`.
  Tensor states_before(const Tensor& first, const Tensor& states) const {
    int64_t rest = states.size(0) - batch();
    if (even && reverse_) return cat({states.narrow(0, batch(), rest), first});
    if (even) return cat({first, states.narrow(0, 0, rest)});
    std::vector<int64_t> from;  // in first and states, one after the other
    for (size_t t = 0; t < rows_.size(); ++t) {
      size_t before = reverse_ ? t + 1 : t - 1;  // past the end where there is none
      for (int64_t row = 0; row < rows_[t]; ++row)
        from.push_back(before < rows_.size() && row < rows_[before] ? batch() + begin_[before] + row : row);
    }
    return index_select(cat({first, states}), 0, tensor(from).to(states.device()));
  }

 private:
  size_t time(int64_t i) const { return static_cast<size_t>(reverse_ ? count - 1 - i : i); }
  std::vector<int64_t> rows_, begin_{0};
  bool reverse_ = false;
};

// The rows of a state that take part in a step, and the state after they changed. Only an owned state may be written.
Tensor top(const Tensor& state, int64_t rows) { return state.size(0) == rows ? state : state.narrow(0, 0, rows); }
void put(Tensor& state, const Tensor& changed) {
  if (changed.size(0) == state.size(0))
    state = changed;
  else
    state.narrow(0, 0, changed.size(0)).copy_(changed);
}

// The k-th of the gates that lie side by side.
Tensor gate(const Tensor& gates, int64_t k, int64_t hidden) { return gates.narrow(-1, k * hidden, hidden); }

// --- The same in plain ops: gradients of gradients go through it.

Tensors composed(const Recurrence& kind, const Tensors& in) {
  const Tensor &gates = in[0], &weight = in[3], &bias = in[4];
  Tensor all_h = in[1], all_c = in[2];
  Steps steps(kind);
  int64_t n = all_h.size(-1);
  Tensors outputs(static_cast<size_t>(steps.count));
  auto changed = [](const Tensor& state, const Tensor& part) {
    int64_t rows = part.size(0), rest = state.size(0) - rows;
    return rest ? cat({part, state.narrow(0, rows, rest)}) : part;
  };
  for (int64_t i = 0; i < steps.count; ++i) {
    Tensor h = top(all_h, steps.rows(i)), c = all_c.defined() ? top(all_c, steps.rows(i)) : all_c;
    Tensor x = steps.of(gates, i), side = linear(h, weight, bias);
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
    outputs[static_cast<size_t>(kind.reverse ? steps.count - 1 - i : i)] = h;
    all_h = changed(all_h, h);
    if (c.defined()) all_c = changed(all_c, c);
  }
  return kind.cell == Cell::lstm ? Tensors{cat(outputs), all_h, all_c} : Tensors{cat(outputs), all_h};
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

// --- Forward and backward through all steps with what is needed kept in whole tensors. Per step only the matmul with
// the hidden side and a few elementwise passes are left; everything else is done for all steps at once.

// x times the transpose of one weight, step after step. The weight is packed once if there are enough steps to pay for
// it, and too many rows for the GEMV kernels, which read it in place: packed, an LSTM of 100 steps, one row and 64
// units took 1.5 ms instead of 1.2 for forward and backward.
class StepMatmul {
 public:
  StepMatmul(const Tensor& weight, const Tensor& bias, int64_t steps, int64_t rows)
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
  Tensor output, hidden, cell;
  Kept kept;  // only if `keep`
};

ForwardResult run_forward(const Recurrence& kind, const Tensors& in, bool keep) {
  const Tensor& gates = in[0];
  Steps steps(kind);
  int64_t n = in[1].size(1);
  TensorOptions like(gates.dtype(), gates.device());
  bool lstm = kind.cell == Cell::lstm, gru = kind.cell == Cell::gru;
  auto own = [&](const Tensor& state) { return steps.even || !state.defined() ? state : state.clone(); };
  ForwardResult r{.output = empty({gates.size(0), n}, like), .hidden = own(in[1]), .cell = own(in[2]), .kept = {}};
  if (keep && (lstm || gru)) {
    r.kept.gates = empty(gates.sizes(), like);
    r.kept.extra = empty(r.output.sizes(), like);
  }
  StepMatmul matmul(in[3], in[4], steps.count, steps.batch());
  FusedActivation end = kind.cell == Cell::relu ? FusedActivation::relu : FusedActivation::tanh;
  for (int64_t i = 0; i < steps.count; ++i) {
    Tensor x = steps.of(gates, i), h = top(r.hidden, steps.rows(i)), z, extra;
    if (lstm) {
      z = matmul(h, x);
      extra = top(r.cell, steps.rows(i));
      h = lstm_step(z, extra);
      put(r.cell, extra);
    } else if (gru) {
      z = x.clone();
      Tensor side = matmul(h);
      h = gru_step(z, side, h);
      extra = gate(side, 2, n);
    } else {
      h = matmul(h, x, end);
    }
    put(r.hidden, h);
    steps.of(r.output, i).copy_(h);
    if (!r.kept.gates.defined()) continue;
    steps.of(r.kept.gates, i).copy_(z);
    steps.of(r.kept.extra, i).copy_(extra);
  }
  return r;
}

struct StepGrads {
  Tensor gates;  // of the input's side
  Tensor side;   // of the hidden side before bias; the same tensor unless gru
  Tensor h, c;   // of the first states
};

// The gradient of the state on its way from the last step to the first. `outputs` and `last` are what came from
// outside.
class StateGrad {
 public:
  StateGrad(const Steps& steps, const Tensor& outputs, const Tensor& last) : steps_(steps), outputs_(outputs) {
    state_ = steps.even ? last + steps.of(outputs, steps.count - 1) : last.clone();
  }
  // After the i-th step.
  Tensor after(int64_t i) const { return steps_.even ? state_ : top(state_, steps_.rows(i)) + steps_.of(outputs_, i); }
  // Before it, dz times the weight. If all rows take part, what came from outside is added on the way.
  Tensor before(int64_t i, const StepMatmul& matmul, const Tensor& dz) const {
    return matmul(dz, steps_.even && i > 0 ? steps_.of(outputs_, i - 1) : Tensor());
  }
  void set(const Tensor& before) { put(state_, before); }
  const Tensor& first() const { return state_; }

 private:
  const Steps& steps_;
  const Tensor& outputs_;
  Tensor state_;
};

// The slope of tanh from its results; that of sigmoid, from s, is s (1 - s).
Tensor tanh_slope(const Tensor& t) { return 1 - t.square(); }

StepGrads lstm_backward(const Steps& steps, const Tensors& in, const Kept& kept, const Tensors& grads) {
  const Tensor &weight = in[3], &z = kept.gates;
  int64_t n = in[1].size(1);
  Tensor input = gate(z, 0, n), forget = gate(z, 1, n), fresh = gate(z, 2, n), out = gate(z, 3, n);
  Tensor before = steps.states_before(in[2], kept.extra), bounded = tanh(kept.extra);
  // Gradient of the gates: these factors, then times that of the cell (three of them) or of h (the last).
  StepGrads d{.gates = z * (1 - z), .side = {}, .h = {}, .c = steps.even ? grads[2] : grads[2].clone()};
  gate(d.gates, 0, n).mul_(fresh);
  gate(d.gates, 1, n).mul_(before);
  gate(d.gates, 2, n).copy_(tanh_slope(fresh)).mul_(input);
  gate(d.gates, 3, n).mul_(bounded);
  Tensor to_cell = out * tanh_slope(bounded);
  StateGrad state(steps, grads[0], grads[1]);
  StepMatmul matmul(weight.t(), {}, steps.count, steps.batch());
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    Tensor dh = state.after(i);
    Tensor dc = addcmul(top(d.c, steps.rows(i)), dh, steps.of(to_cell, i));
    Tensor dz = steps.of(d.gates, i), split = dz.view({steps.rows(i), 4, n});
    split.narrow(1, 0, 3).mul_(dc.unsqueeze(1));
    split.select(1, 3).mul_(dh);
    put(d.c, dc.mul_(steps.of(forget, i)));
    state.set(state.before(i, matmul, dz));
  }
  d.side = d.gates;
  d.h = state.first();
  return d;
}

StepGrads gru_backward(const Steps& steps, const Tensors& in, const Kept& kept, const Tensors& grads,
                       const Tensor& before) {
  const Tensor &weight = in[3], &z = kept.gates;
  int64_t n = in[1].size(1);
  Tensor reset = gate(z, 0, n), update = gate(z, 1, n), fresh = gate(z, 2, n);
  // Gradients of the three gates are these factors, then times that of h; the hidden side differs in the last.
  Tensor to_fresh = (1 - update) * tanh_slope(fresh);
  StepGrads d{.gates = empty_like(z), .side = z * (1 - z), .h = {}, .c = {}};
  gate(d.side, 0, n).mul_(to_fresh * kept.extra);
  gate(d.side, 1, n).mul_(before - fresh);
  gate(d.side, 2, n).copy_(to_fresh).mul_(reset);
  StateGrad state(steps, grads[0], grads[1]);
  StepMatmul matmul(weight.t(), {}, steps.count, steps.batch());
  Tensor dh_all = empty_like(grads[0]);
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    Tensor dh = state.after(i), ds = steps.of(d.side, i);
    ds.view({steps.rows(i), 3, n}).mul_(dh.unsqueeze(1));
    steps.of(dh_all, i).copy_(dh);
    state.set(state.before(i, matmul, ds).addcmul_(dh, steps.of(update, i)));
  }
  d.gates.narrow(-1, 0, 2 * n).copy_(d.side.narrow(-1, 0, 2 * n));
  gate(d.gates, 2, n).copy_(to_fresh * dh_all);
  d.h = state.first();
  return d;
}

StepGrads plain_backward(const Recurrence& kind, const Steps& steps, const Tensors& in, const Tensor& y,
                         const Tensors& grads) {
  Tensor slope = kind.cell == Cell::relu ? (y > 0).to(y.dtype()) : tanh_slope(y);
  StepGrads d{.gates = slope, .side = {}, .h = {}, .c = {}};
  StateGrad state(steps, grads[0], grads[1]);
  StepMatmul matmul(in[3].t(), {}, steps.count, steps.batch());
  for (int64_t i = steps.count - 1; i >= 0; --i) {
    Tensor dz = steps.of(d.gates, i).mul_(state.after(i));
    state.set(state.before(i, matmul, dz));
  }
  d.side = d.gates;
  d.h = state.first();
  return d;
}

struct RecurrentSteps : Function<RecurrentSteps> {
  static Tensors forward(FunctionContext& ctx, const Tensor& gates, const Tensor& h, const Tensor& c,
                         const Tensor& weight, const Tensor& bias, const Recurrence& kind) {
    bool keep = false;
    for (size_t i = 0; i < 5; ++i) keep |= ctx.needs_input_grad(i);
    ForwardResult r = run_forward(kind, {gates, h, c, weight, bias}, keep);
    Tensors result{r.output, r.hidden};
    if (kind.cell == Cell::lstm) result.push_back(r.cell);
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
    Steps steps(kind);
    Tensor before = steps.states_before(in[1], y);
    StepGrads d = kind.cell == Cell::lstm  ? lstm_backward(steps, in, kept, grads)
                  : kind.cell == Cell::gru ? gru_backward(steps, in, kept, grads, before)
                                           : plain_backward(kind, steps, in, y, grads);
    Tensors result{d.gates, d.h, d.c, {}, {}};
    if (ctx.needs_input_grad(3)) result[3] = matmul(d.side.t(), before);
    if (ctx.needs_input_grad(4)) result[4] = d.side.sum({0});
    return result;
  }
};

}  // namespace

RecurrenceResult run_recurrence(const Recurrence& kind, const Tensor& gates, const Tensor& h, const Tensor& c,
                                const Tensor& weight, const Tensor& bias) {
  Tensors out = RecurrentSteps::apply(gates, h, c, weight, bias, kind);
  return {out[0], out[1], kind.cell == Cell::lstm ? out[2] : Tensor()};
}

}  // namespace deft::nn
