// Recurrent layers: RNN, LSTM, GRU. Inputs are [steps, batch, features], with batch_first [batch, steps, features], or
// [steps, features] without a batch; or a PackedSequence. Parameters have PyTorch's names: weight_ih_l0,
// bias_hh_l1_reverse, ...
#pragma once

#include <vector>

#include "nn/module.h"
#include "nn/packed_sequence.h"
#include "nn/recurrence.h"

namespace deft::nn {

struct RNNOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  // between layers
  bool bidirectional = false;
  int64_t proj_size = 0;  // LSTM only: the features that outputs and hidden states are projected to; 0: no projection
};

class RecurrentLayer : public Layer {
 public:
  std::string describe() const override;

 protected:
  RecurrentLayer(Cell cell, int64_t input_size, int64_t hidden_size, const RNNOptions& options);
  struct Result {
    Tensor output;        // of the last layer, both directions side by side
    Tensor hidden, cell;  // [layers * directions, batch, hidden]
  };
  struct PackedResult {
    PackedSequence output;
    Tensor hidden, cell;  // at each row's own end
  };
  Result run(const Tensor& x, const Tensor& hidden, const Tensor& cell, const Site& site);
  PackedResult run(const PackedSequence& x, const Tensor& hidden, const Tensor& cell, const Site& site);

 private:
  struct Weights {
    Tensor *input, *hidden, *input_bias, *hidden_bias, *projection;
  };
  int64_t output_size() const { return options_.proj_size > 0 ? options_.proj_size : hidden_size_; }
  Tensor first_state(const Tensor& given, int64_t batch, int64_t features, const Tensor& like, bool batched,
                     const char* what) const;
  // All layers over the rows of all steps, [all rows, features].
  Result run_rows(const Tensor& x, const std::vector<int64_t>& rows, const Tensor& hidden, const Tensor& cell);
  Cell cell_;
  int64_t input_size_, hidden_size_;
  RNNOptions options_;
  std::vector<Weights> weights_;  // by layer, then direction
};

struct RNNResult {
  Tensor output;  // [steps, batch, directions * hidden]
  Tensor hidden;  // [layers * directions, batch, hidden], after the last step
};
struct LSTMResult {
  Tensor output, hidden, cell;
};
struct PackedRNNResult {
  PackedSequence output;
  Tensor hidden;
};
struct PackedLSTMResult {
  PackedSequence output;
  Tensor hidden, cell;
};

enum class RNNActivation : uint8_t { tanh, relu };

// States that are not given are zeros.
class RNN : public RecurrentLayer {
 public:
  RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {},
      RNNActivation activation = RNNActivation::tanh)
      : RecurrentLayer(activation == RNNActivation::relu ? Cell::relu : Cell::tanh, input_size, hidden_size, options) {}
  RNNResult forward(const Tensor& x, const Tensor& hidden, Site site = Site::current());
  PackedRNNResult forward(const PackedSequence& x, const Tensor& hidden = {}, Site site = Site::current());
  RNNResult operator()(const Tensor& x, const Tensor& hidden = {}, Site site = Site::current()) {
    return forward(x, hidden, site);
  }
  PackedRNNResult operator()(const PackedSequence& x, const Tensor& hidden = {}, Site site = Site::current()) {
    return forward(x, hidden, site);
  }
  Tensor forward(const Tensor& x) override;  // only the output
};

class GRU : public RecurrentLayer {
 public:
  GRU(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {})
      : RecurrentLayer(Cell::gru, input_size, hidden_size, options) {}
  RNNResult forward(const Tensor& x, const Tensor& hidden, Site site = Site::current());
  PackedRNNResult forward(const PackedSequence& x, const Tensor& hidden = {}, Site site = Site::current());
  RNNResult operator()(const Tensor& x, const Tensor& hidden = {}, Site site = Site::current()) {
    return forward(x, hidden, site);
  }
  PackedRNNResult operator()(const PackedSequence& x, const Tensor& hidden = {}, Site site = Site::current()) {
    return forward(x, hidden, site);
  }
  Tensor forward(const Tensor& x) override;
};

class LSTM : public RecurrentLayer {
 public:
  LSTM(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {})
      : RecurrentLayer(Cell::lstm, input_size, hidden_size, options) {}
  LSTMResult forward(const Tensor& x, const Tensor& hidden, const Tensor& cell, Site site = Site::current());
  PackedLSTMResult forward(const PackedSequence& x, const Tensor& hidden = {}, const Tensor& cell = {},
                           Site site = Site::current());
  LSTMResult operator()(const Tensor& x, const Tensor& hidden = {}, const Tensor& cell = {},
                        Site site = Site::current()) {
    return forward(x, hidden, cell, site);
  }
  PackedLSTMResult operator()(const PackedSequence& x, const Tensor& hidden = {}, const Tensor& cell = {},
                              Site site = Site::current()) {
    return forward(x, hidden, cell, site);
  }
  Tensor forward(const Tensor& x) override;
};

}  // namespace deft::nn
