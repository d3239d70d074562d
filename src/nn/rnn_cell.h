// One step of a recurrent layer: inputs [batch, features] or [features], states [batch, hidden] or [hidden]. Parameters
// are weight_ih, weight_hh, bias_ih and bias_hh. States that are not given are zeros.
#pragma once

#include "nn/module.h"
#include "nn/recurrence.h"
#include "nn/rnn.h"

namespace deft::nn {

class RecurrentCell : public Layer {
 public:
  std::string describe() const override;

  Tensor &weight_ih, &weight_hh;
  Tensor &bias_ih, &bias_hh;  // undefined without one

 protected:
  RecurrentCell(Cell cell, int64_t input_size, int64_t hidden_size, bool bias);
  struct Result {
    Tensor hidden, cell;
  };
  Result run(const Tensor& x, const Tensor& hidden, const Tensor& cell, const Site& site);

 private:
  Tensor state(const Tensor& given, const Tensor& x, const char* what) const;
  Cell cell_;
};

class RNNCell : public RecurrentCell {
 public:
  RNNCell(int64_t input_size, int64_t hidden_size, bool bias = true, RNNActivation activation = RNNActivation::tanh)
      : RecurrentCell(activation == RNNActivation::relu ? Cell::relu : Cell::tanh, input_size, hidden_size, bias) {}
  Tensor forward(const Tensor& x) override { return forward(x, Tensor(), Site::current()); }
  Tensor forward(const Tensor& x, const Tensor& hidden, Site site = Site::current()) {
    return run(x, hidden, {}, site).hidden;
  }
  Tensor operator()(const Tensor& x, const Tensor& hidden = {}, Site site = Site::current()) {
    return forward(x, hidden, site);
  }
};

class GRUCell : public RecurrentCell {
 public:
  GRUCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : RecurrentCell(Cell::gru, input_size, hidden_size, bias) {}
  Tensor forward(const Tensor& x) override { return forward(x, Tensor(), Site::current()); }
  Tensor forward(const Tensor& x, const Tensor& hidden, Site site = Site::current()) {
    return run(x, hidden, {}, site).hidden;
  }
  Tensor operator()(const Tensor& x, const Tensor& hidden = {}, Site site = Site::current()) {
    return forward(x, hidden, site);
  }
};

struct LSTMCellResult {
  Tensor hidden, cell;
};

class LSTMCell : public RecurrentCell {
 public:
  LSTMCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : RecurrentCell(Cell::lstm, input_size, hidden_size, bias) {}
  Tensor forward(const Tensor& x) override { return run(x, {}, {}, Site::current()).hidden; }
  LSTMCellResult forward(const Tensor& x, const Tensor& hidden, const Tensor& cell, Site site = Site::current()) {
    Result r = run(x, hidden, cell, site);
    return {r.hidden, r.cell};
  }
  LSTMCellResult operator()(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {},
                            Site site = Site::current()) {
    return forward(x, hidden, cell, site);
  }
};

}  // namespace deft::nn
