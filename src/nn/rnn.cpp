#include "nn/rnn.h"

#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "nn/init.h"
#include "nn/watched_call.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/matmul.h"
#include "ops/random.h"
#include "ops/shape_ops.h"

namespace deft::nn {

namespace {

const char* name_of(Cell cell) {
  constexpr const char* kNames[] = {"RNN", "RNN", "LSTM", "GRU"};
  return kNames[static_cast<int>(cell)];
}

// The LSTM whose hidden state is projected, step by step in ordinary ops. Rows that a step has not are those at the end
// of the batch: they keep their states.
RecurrenceResult run_projected(const Recurrence& kind, const Tensor& gates, const Tensor& h0, const Tensor& c0,
                               const Tensor& weight, const Tensor& projection) {
  std::vector<int64_t> begins{0};
  for (int64_t n : kind.rows) begins.push_back(begins.back() + n);
  size_t steps = kind.rows.size();
  std::vector<Tensor> outputs(steps);
  Tensor h = h0, c = c0;
  for (size_t i = 0; i < steps; ++i) {
    size_t at = kind.reverse ? steps - 1 - i : i;
    int64_t n = kind.rows[at], all = h.size(0);
    Tensor now = h.narrow(0, 0, n);
    std::vector<Tensor> g = (gates.narrow(0, begins[at], n) + linear(now, weight)).chunk(4, 1);
    Tensor cell = g[1].sigmoid() * c.narrow(0, 0, n) + g[0].sigmoid() * g[2].tanh();
    outputs[at] = linear(g[3].sigmoid() * cell.tanh(), projection);
    h = n == all ? outputs[at] : cat({outputs[at], h.narrow(0, n, all - n)}, 0);
    c = n == all ? cell : cat({cell, c.narrow(0, n, all - n)}, 0);
  }
  return {cat(outputs, 0), h, c};
}

}  // namespace

RecurrentLayer::RecurrentLayer(Cell cell, int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : cell_(cell), input_size_(input_size), hidden_size_(hidden_size), options_(options) {
  DEFT_CHECK(input_size > 0 && hidden_size > 0 && options.num_layers > 0, ValueError,
             "{}: sizes and the number of layers must be positive, found {}, {} and {}", name_of(cell), input_size,
             hidden_size, options.num_layers);
  DEFT_CHECK(options.dropout >= 0 && options.dropout <= 1, ValueError, "{}: the dropout lies in [0, 1], found {}",
             name_of(cell), options.dropout);
  DEFT_CHECK(options.proj_size == 0 || cell == Cell::lstm, ValueError,
             "{}: proj_size is there for LSTM only, found {}; leave it 0", name_of(cell), options.proj_size);
  DEFT_CHECK(options.proj_size >= 0 && options.proj_size < hidden_size, ValueError,
             "{}: proj_size must be smaller than the hidden size {} and not negative, found {}", name_of(cell),
             hidden_size, options.proj_size);
  int64_t rows = gates_of(cell) * hidden_size, directions = options.bidirectional ? 2 : 1;
  double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  auto add_weight = [&](const std::string& name, IntList sizes, bool there) {
    Tensor& w = parameter(name, there ? empty(sizes) : Tensor());
    if (there) init::uniform_(w, -bound, bound);
    return &w;
  };
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    int64_t features = layer == 0 ? input_size : output_size() * directions;
    for (int64_t direction = 0; direction < directions; ++direction) {
      std::string end = "_l" + std::to_string(layer) + (direction ? "_reverse" : "");
      weights_.push_back(
          {add_weight("weight_ih" + end, {rows, features}, true),
           add_weight("weight_hh" + end, {rows, output_size()}, true),
           add_weight("bias_ih" + end, {rows}, options.bias), add_weight("bias_hh" + end, {rows}, options.bias),
           options.proj_size > 0 ? add_weight("weight_hr" + end, {options.proj_size, hidden_size}, true) : nullptr});
    }
  }
}

// [layers * directions, batch, features]; zeros like `like` if not given.
Tensor RecurrentLayer::first_state(const Tensor& given, int64_t batch, int64_t features, const Tensor& like,
                                   bool batched, const char* what) const {
  Shape sizes{static_cast<int64_t>(weights_.size()), batch, features};
  if (!given.defined()) return zeros(sizes, {like.dtype(), like.device()});
  Tensor state = batched ? given : given.unsqueeze(1);
  DEFT_CHECK(state.sizes() == sizes, ShapeError, "{}: the {} state has shape {}, expected {}{}", describe(), what,
             deft::to_string(given.sizes()), deft::to_string(sizes), batched ? "" : " without the batch");
  return state;
}

RecurrentLayer::Result RecurrentLayer::run_rows(const Tensor& input, const std::vector<int64_t>& rows, const Tensor& h,
                                                const Tensor& c) {
  bool lstm = cell_ == Cell::lstm, gru = cell_ == Cell::gru;
  size_t directions = options_.bidirectional ? 2 : 1;
  Tensor x = input;
  std::vector<Tensor> last_h, last_c;
  for (size_t first = 0; first < weights_.size(); first += directions) {
    if (first > 0) x = dropout(x, options_.dropout, is_training());
    std::vector<Tensor> outputs;
    for (size_t i = first; i < first + directions; ++i) {
      const Weights& w = weights_[i];
      // Both biases are added at once where the cell allows it; gru scales its hidden side.
      Tensor bias = *w.input_bias;
      if (bias.defined() && !gru) bias = bias + *w.hidden_bias;
      Tensor gates = linear(x, *w.input, bias);
      auto as_gates = [&](const Tensor& t) { return t.defined() ? t.to(gates.dtype()) : t; };  // autocast
      auto at = static_cast<int64_t>(i);
      Recurrence kind{cell_, rows, i != first};
      RecurrenceResult r = w.projection
                               ? run_projected(kind, gates, as_gates(h[at]), as_gates(c[at]), as_gates(*w.hidden),
                                               as_gates(*w.projection))
                               : run_recurrence(kind, gates, as_gates(h[at]), lstm ? as_gates(c[at]) : Tensor(),
                                                as_gates(*w.hidden), gru ? as_gates(*w.hidden_bias) : Tensor());
      outputs.push_back(r.output);
      last_h.push_back(r.hidden);
      if (lstm) last_c.push_back(r.cell);
    }
    x = directions == 2 ? cat(outputs, -1) : outputs[0];
  }
  return {x, stack(last_h), lstm ? stack(last_c) : Tensor()};
}

RecurrentLayer::Result RecurrentLayer::run(const Tensor& input, const Tensor& hidden, const Tensor& cell,
                                           const Site& site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  DEFT_CHECK(input.defined(), ValueError, "{}: the input is an undefined tensor", describe());
  bool batched = input.dim() == 3, lstm = cell_ == Cell::lstm;
  DEFT_CHECK((batched || input.dim() == 2) && input.size(-1) == input_size_, ShapeError,
             "{}: takes inputs of {} features in 3 dimensions, or in 2 without a batch, found {}", describe(),
             input_size_, deft::describe(input.meta()));
  Tensor x = !batched ? input.unsqueeze(1) : options_.batch_first ? input.transpose(0, 1) : input;
  int64_t steps = x.size(0), batch = x.size(1);
  DEFT_CHECK(steps > 0, ShapeError, "{}: a sequence needs at least one step, found {}", describe(),
             deft::describe(input.meta()));
  Tensor h = first_state(hidden, batch, output_size(), x, batched, "hidden");
  Tensor c = lstm ? first_state(cell, batch, hidden_size_, x, batched, "cell") : Tensor();
  Result r = run_rows(x.reshape({steps * batch, input_size_}), std::vector(static_cast<size_t>(steps), batch), h, c);
  r.output = r.output.view({steps, batch, r.output.size(1)});
  if (!batched) return {r.output.squeeze(1), r.hidden.squeeze(1), lstm ? r.cell.squeeze(1) : Tensor()};
  if (options_.batch_first) r.output = r.output.transpose(0, 1);
  return r;
}

RecurrentLayer::PackedResult RecurrentLayer::run(const PackedSequence& input, const Tensor& hidden, const Tensor& cell,
                                                 const Site& site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  input.check(name_of(cell_));
  const Tensor& x = input.data;
  DEFT_CHECK(x.dim() == 2 && x.size(1) == input_size_, ShapeError,
             "{}: takes packed inputs of {} features in 2 dimensions, found {}", describe(), input_size_,
             deft::describe(x.meta()));
  auto in_order = [&](const Tensor& state, const std::vector<int64_t>& order) {
    return order.empty() || !state.defined() ? state : index_select(state, 1, tensor(order).to(x.device()));
  };
  bool lstm = cell_ == Cell::lstm;
  Tensor h = first_state(hidden, input.batch(), output_size(), x, true, "hidden");
  Tensor c = lstm ? first_state(cell, input.batch(), hidden_size_, x, true, "cell") : Tensor();
  Result r = run_rows(x, input.batch_sizes, in_order(h, input.sorted_indices), in_order(c, input.sorted_indices));
  PackedSequence output = input;
  output.data = r.output;
  return {output, in_order(r.hidden, input.unsorted_indices), in_order(r.cell, input.unsorted_indices)};
}

std::string RecurrentLayer::describe() const {
  std::string text = fmt::format("{}(in={}, hidden={}", name_of(cell_), input_size_, hidden_size_);
  if (cell_ == Cell::relu) text += ", relu";
  if (options_.num_layers != 1) text += fmt::format(", layers={}", options_.num_layers);
  if (!options_.bias) text += ", bias=false";
  if (options_.batch_first) text += ", batch_first";
  if (options_.dropout > 0) text += fmt::format(", dropout={}", options_.dropout);
  if (options_.bidirectional) text += ", bidirectional";
  if (options_.proj_size > 0) text += fmt::format(", proj={}", options_.proj_size);
  return text + ")";
}

RNNResult RNN::forward(const Tensor& x, const Tensor& hidden, Site site) {
  Result r = run(x, hidden, {}, site);
  return {r.output, r.hidden};
}
PackedRNNResult RNN::forward(const PackedSequence& x, const Tensor& hidden, Site site) {
  PackedResult r = run(x, hidden, {}, site);
  return {r.output, r.hidden};
}
Tensor RNN::forward(const Tensor& x) { return run(x, {}, {}, Site::current()).output; }

RNNResult GRU::forward(const Tensor& x, const Tensor& hidden, Site site) {
  Result r = run(x, hidden, {}, site);
  return {r.output, r.hidden};
}
PackedRNNResult GRU::forward(const PackedSequence& x, const Tensor& hidden, Site site) {
  PackedResult r = run(x, hidden, {}, site);
  return {r.output, r.hidden};
}
Tensor GRU::forward(const Tensor& x) { return run(x, {}, {}, Site::current()).output; }

LSTMResult LSTM::forward(const Tensor& x, const Tensor& hidden, const Tensor& cell, Site site) {
  Result r = run(x, hidden, cell, site);
  return {r.output, r.hidden, r.cell};
}
PackedLSTMResult LSTM::forward(const PackedSequence& x, const Tensor& hidden, const Tensor& cell, Site site) {
  PackedResult r = run(x, hidden, cell, site);
  return {r.output, r.hidden, r.cell};
}
Tensor LSTM::forward(const Tensor& x) { return run(x, {}, {}, Site::current()).output; }

}  // namespace deft::nn
