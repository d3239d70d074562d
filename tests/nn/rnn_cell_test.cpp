// Single steps of recurrent layers, as in PyTorch.
#include "nn/rnn_cell.h"

#include "nn_util.h"
#include "ops/shape_ops.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("rnn");
  return all;
}

template <class M>
void expect_case(const std::string& name, M&& m) {
  SCOPED_TRACE(name);
  auto call = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    if constexpr (std::is_same_v<std::remove_cvref_t<M>, LSTMCell>) {
      auto [h, c] = in.size() > 1 ? m(in[0], in[1], in[2]) : m(in[0]);
      return {h, c};
    } else {
      return {in.size() > 1 ? m(in[0], in[1]) : m(in[0])};
    }
  };
  expect_as_pytorch(cases().part(name), m, call, 20);
}

TEST(NnRecurrentCell, RNN) {
  expect_case("rnn_cell", RNNCell(3, 4));
  expect_case("rnn_cell_no_bias", RNNCell(3, 4, false));
  expect_case("rnn_cell_relu", RNNCell(3, 4, true, RNNActivation::relu));
}
TEST(NnRecurrentCell, LSTM) {
  expect_case("lstm_cell", LSTMCell(3, 4));
  expect_case("lstm_cell_no_bias", LSTMCell(3, 4, false));
}
TEST(NnRecurrentCell, GRU) {
  expect_case("gru_cell", GRUCell(3, 4));
  expect_case("gru_cell_no_bias", GRUCell(3, 4, false));
}

TEST(NnRecurrentCell, StepsAreTheLayer) {
  LSTM layer(3, 4);
  LSTMCell cell(3, 4);
  NamedTensors state = layer.state_dict();
  for (NamedTensor& t : state) t.name.resize(t.name.size() - 3);  // weight_ih_l0
  cell.load_state_dict(state);
  Tensor x = sample({5, 2, 3}, 1, DType::f32), h, c;
  auto whole = layer(x);
  for (int64_t t = 0; t < 5; ++t) {
    LSTMCellResult r = cell(x[t], h, c);
    h = r.hidden, c = r.cell;
    expect_close(h, whole.output[t], "step " + std::to_string(t), 0x1p-20);
  }
  expect_close(c, whole.cell[0], "cell", 0x1p-20);
}

TEST(NnRecurrentCell, WrongCalls) {
  GRUCell cell(3, 4);
  expect_error<ShapeError>([&] { cell(zeros({2, 4})); }, "GRUCell(in=3, hidden=4): takes inputs of 3 features");
  expect_error<ShapeError>(
      [&] {
        cell(zeros({2, 3}), zeros({3, 4}));
      },
      "the hidden state has shape [3, 4], expected [2, 4]");
  expect_error<ShapeError>([&] { cell(zeros({3}), zeros({1, 4})); }, "expected [4]");
  expect_error<ValueError>([] { RNNCell(0, 4); }, "sizes must be positive");
  EXPECT_EQ(RNNCell(3, 4, false, RNNActivation::relu).describe(), "RNNCell(in=3, hidden=4, relu, bias=false)");
}

}  // namespace
}  // namespace deft::nn
