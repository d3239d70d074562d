#include "nn/rnn_cell.h"

#include <cmath>

#include "base/check.h"
#include "core/describe.h"
#include "nn/init.h"
#include "nn/watched_call.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace deft::nn {

namespace {

const char* cell_name(Cell cell) {
  constexpr const char* kNames[] = {"RNNCell", "RNNCell", "LSTMCell", "GRUCell"};
  return kNames[static_cast<int>(cell)];
}

}  // namespace

RecurrentCell::RecurrentCell(Cell cell, int64_t input_size, int64_t hidden_size, bool bias)
    : weight_ih(parameter("weight_ih", empty({gates_of(cell) * hidden_size, input_size}))),
      weight_hh(parameter("weight_hh", empty({gates_of(cell) * hidden_size, hidden_size}))),
      bias_ih(parameter("bias_ih", bias ? empty({gates_of(cell) * hidden_size}) : Tensor())),
      bias_hh(parameter("bias_hh", bias ? empty({gates_of(cell) * hidden_size}) : Tensor())),
      cell_(cell) {
  DEFT_CHECK(input_size > 0 && hidden_size > 0, ValueError, "{}: sizes must be positive, found {} and {}",
             cell_name(cell), input_size, hidden_size);
  double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  for (Tensor* w : {&weight_ih, &weight_hh, &bias_ih, &bias_hh})
    if (w->defined()) init::uniform_(*w, -bound, bound);
}

// [batch, hidden]; zeros if not given.
Tensor RecurrentCell::state(const Tensor& given, const Tensor& x, const char* what) const {
  Shape sizes = x.sizes();
  sizes[x.dim() - 1] = weight_hh.size(1);
  DEFT_CHECK(!given.defined() || given.sizes() == sizes, ShapeError, "{}: the {} state has shape {}, expected {}",
             describe(), what, deft::to_string(given.sizes()), deft::to_string(sizes));
  Tensor found = given.defined() ? given : zeros(sizes, {x.dtype(), x.device()});
  return x.dim() == 2 ? found : found.unsqueeze(0);
}

RecurrentCell::Result RecurrentCell::run(const Tensor& x, const Tensor& hidden, const Tensor& cell, const Site& site) {
  detail::WatchedCall watched(*this, site);
  SiteScope scope(site);
  DEFT_CHECK(x.defined(), ValueError, "{}: the input is an undefined tensor", describe());
  DEFT_CHECK((x.dim() == 2 || x.dim() == 1) && x.size(-1) == weight_ih.size(1), ShapeError,
             "{}: takes inputs of {} features in 2 dimensions, or in 1 without a batch, found {}", describe(),
             weight_ih.size(1), deft::describe(x.meta()));
  bool batched = x.dim() == 2, lstm = cell_ == Cell::lstm, gru = cell_ == Cell::gru;
  Tensor bias = bias_ih.defined() && !gru ? bias_ih + bias_hh : bias_ih;
  Tensor gates = linear(batched ? x : x.unsqueeze(0), weight_ih, bias);
  auto as_gates = [&](const Tensor& t) { return t.defined() ? t.to(gates.dtype()) : t; };  // autocast
  RecurrenceResult r = run_recurrence({cell_, {gates.size(0)}}, gates, as_gates(state(hidden, x, "hidden")),
                                      lstm ? as_gates(state(cell, x, "cell")) : Tensor(), as_gates(weight_hh),
                                      gru ? as_gates(bias_hh) : Tensor());
  if (batched) return {r.hidden, r.cell};
  return {r.hidden.squeeze(0), lstm ? r.cell.squeeze(0) : Tensor()};
}

std::string RecurrentCell::describe() const {
  return fmt::format("{}(in={}, hidden={}{}{})", cell_name(cell_), weight_ih.size(1), weight_hh.size(1),
                     cell_ == Cell::relu ? ", relu" : "", bias_ih.defined() ? "" : ", bias=false");
}

}  // namespace deft::nn
