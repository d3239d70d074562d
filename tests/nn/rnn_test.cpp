// Recurrent layers as in PyTorch; the recurrence as one node, with gradients of gradients.
#include "nn/rnn.h"

#include <numeric>

#include "nn/rnn_cell.h"
#include "nn_util.h"
#include "ops/gradcheck.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("rnn");
  return all;
}

std::vector<Tensor> call(RNN& m, const std::vector<Tensor>& in) {
  auto [y, h] = m(in[0], in.size() > 1 ? in[1] : Tensor());
  return {y, h};
}
std::vector<Tensor> call(GRU& m, const std::vector<Tensor>& in) {
  auto [y, h] = m(in[0], in.size() > 1 ? in[1] : Tensor());
  return {y, h};
}
std::vector<Tensor> call(LSTM& m, const std::vector<Tensor>& in) {
  auto [y, h, c] = in.size() > 1 ? m(in[0], in[1], in[2]) : m(in[0]);
  return {y, h, c};
}

template <class M>
void expect_case(const std::string& name, M&& module) {
  SCOPED_TRACE(name);
  expect_as_pytorch(
      cases().part(name), module, [&](const std::vector<Tensor>& in) { return call(module, in); }, 100);
}

template <class M>
void expect_cases(const std::string& kind) {
  expect_case(kind, M(3, 4));
  expect_case(kind + "_states", M(3, 4));
  expect_case(kind + "_deep", M(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true}));
  expect_case(kind + "_no_bias", M(3, 4, {.num_layers = 2, .bias = false}));
  expect_case(kind + "_unbatched", M(3, 4, {.bidirectional = true}));
  expect_case(kind + "_one_step", M(3, 4));
}

TEST(NnRecurrent, RNN) {
  expect_cases<RNN>("rnn");
  expect_case("rnn_relu", RNN(3, 4, {}, RNNActivation::relu));
}
TEST(NnRecurrent, LSTM) { expect_cases<LSTM>("lstm"); }
TEST(NnRecurrent, GRU) { expect_cases<GRU>("gru"); }

TEST(NnRecurrent, OneNodeForAllSteps) {
  LSTM lstm(3, 4);
  auto nodes = [&](int64_t steps) {
    Tensor x = sample({steps, 2, 3}, 1, DType::f32);
    return nodes_made_by([&] { return lstm(x); });
  };
  EXPECT_EQ(nodes(2), nodes(50));
}

TEST(NnRecurrent, GradientsAndTheirGradients) {
  for (Cell cell : {Cell::tanh, Cell::lstm, Cell::gru}) {
    for (int variant = 0; variant < 8; ++variant) {
      bool reverse = variant & 1, ragged = variant & 2;
      int64_t rows = variant & 4 ? 5 : 2;  // the weight is packed, or read as it lies
      SCOPED_TRACE(std::to_string(static_cast<int>(cell)) + ", variant " + std::to_string(variant));
      int64_t g = gates_of(cell) * 2;
      std::vector<int64_t> steps = ragged ? std::vector<int64_t>{rows, rows - 1, rows - 1, 1} : std::vector(4, rows);
      int64_t all = std::accumulate(steps.begin(), steps.end(), int64_t{0});
      std::vector<Tensor> inputs{leaf({all, g}, 1), leaf({rows, 2}, 2), leaf({g, 2}, 3)};
      if (cell == Cell::lstm) inputs.push_back(leaf({rows, 2}, 4));
      if (cell == Cell::gru) inputs.push_back(leaf({g}, 4));
      auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        bool lstm = cell == Cell::lstm, gru = cell == Cell::gru;
        RecurrenceResult r = run_recurrence({cell, steps, reverse}, in[0], in[1], lstm ? in[3] : Tensor(), in[2],
                                            gru ? in[3] : Tensor());
        return lstm ? std::vector{r.output, r.hidden, r.cell} : std::vector{r.output, r.hidden};
      };
      EXPECT_NO_THROW(gradcheck(f, inputs));
      // With create_graph the steps are taken again in plain ops: the same gradients.
      Tensor total = f(inputs)[0].square().sum() + f(inputs)[1].sum();
      std::vector<Tensor> plain = grad({total}, inputs, {}, {.retain_graph = true});
      std::vector<Tensor> again = grad({total}, inputs, {}, {.create_graph = true});
      for (size_t i = 0; i < inputs.size(); ++i) expect_close(again[i], plain[i], "input " + std::to_string(i));
      EXPECT_NO_THROW(gradgradcheck(f, inputs));
    }
  }
}

TEST(NnRecurrent, RowsOfABatchDoNotMeet) {
  for (Cell cell : {Cell::tanh, Cell::relu, Cell::lstm, Cell::gru}) {
    SCOPED_TRACE(static_cast<int>(cell));
    int64_t g = gates_of(cell) * 4;
    bool lstm = cell == Cell::lstm, gru = cell == Cell::gru;
    Tensor gates = sample({6, 7, g}, 1), h = sample({7, 4}, 2), c = sample({7, 4}, 3), w = sample({g, 4}, 4);
    Tensor bias = gru ? sample({g}, 5) : Tensor();
    auto run = [&](int64_t first, int64_t count) {
      return run_recurrence({cell, std::vector(6, count)}, gates.narrow(1, first, count).reshape({6 * count, g}),
                            h.narrow(0, first, count), lstm ? c.narrow(0, first, count) : Tensor(), w, bias);
    };
    RecurrenceResult all = run(0, 7);
    for (int64_t row = 0; row < 7; ++row) {
      RecurrenceResult one = run(row, 1);
      expect_close(all.output.view({6, 7, 4}).select(1, row), one.output, "output");
      expect_close(all.hidden.narrow(0, row, 1), one.hidden, "hidden");
      if (lstm) expect_close(all.cell.narrow(0, row, 1), one.cell, "cell");
    }
  }
}

TEST(NnRecurrent, ProjectedStates) {
  static const State added = fixture("added");
  auto flat = [](const LSTMResult& r) { return std::vector{r.output, r.hidden, r.cell}; };
  LSTM one(3, 4, {.proj_size = 2}),
      deep(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true, .proj_size = 2});
  expect_as_pytorch(
      added.part("lstm_proj"), one, [&](const std::vector<Tensor>& in) { return flat(one(in[0], in[1], in[2])); }, 32);
  expect_as_pytorch(
      added.part("lstm_proj_deep"), deep, [&](const std::vector<Tensor>& in) { return flat(deep(in[0])); }, 32);
  expect_as_pytorch(
      added.part("lstm_proj_packed"), deep,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        PackedLSTMResult r = deep(pack_padded_sequence(in[0], {5, 3, 1}, true));
        return {pad_packed_sequence(r.output, true).first, r.hidden, r.cell};
      },
      32);
  expect_error<ValueError>([] { GRU(3, 4, {.proj_size = 2}); }, "for LSTM only");
  expect_error<ValueError>([] { LSTM(3, 4, {.proj_size = 4}); }, "smaller than the hidden size");
  EXPECT_EQ(one.describe(), "LSTM(in=3, hidden=4, proj=2)");
}

TEST(NnRecurrent, FrozenWeightsGetNoGradients) {
  GRU gru(3, 4);
  gru.freeze();
  Tensor x = sample({5, 2, 3}, 1, with_grad());
  gru(x).output.sum().backward();
  EXPECT_TRUE(x.grad().defined());
  for (const Tensor& p : gru.parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(NnRecurrent, DropoutBetweenLayersOnlyWhileTraining) {
  LSTM lstm(3, 4, {.num_layers = 2, .dropout = 0.5});
  Tensor x = sample({5, 2, 3}, 1, DType::f32);
  EXPECT_NE(values(lstm(x).output), values(lstm(x).output));
  lstm.eval();
  EXPECT_EQ(values(lstm(x).output), values(lstm(x).output));
  RNN one(3, 4, {.dropout = 0.5});
  EXPECT_EQ(values(one(x).output), values(one(x).output)) << "not after the last layer";
}

TEST(NnRecurrent, LeavesNothing) {
  LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true});
  Tensor x = sample({5, 2, 3}, 1, DType::f32);
  expect_leaves_nothing([&] { lstm(x); });
  expect_leaves_nothing([&] {
    lstm(x).output.sum().backward();
    lstm.zero_grad();
  });
}

TEST(NnRecurrent, WrongCalls) {
  LSTM lstm(3, 4);
  expect_error<ShapeError>([&] { lstm(zeros({5, 2, 4})); }, "LSTM(in=3, hidden=4): takes inputs of 3 features");
  expect_error<ShapeError>(
      [&] {
        lstm(zeros({5, 2, 3}), zeros({1, 3, 4}));
      },
      "the hidden state has shape [1, 3, 4], expected [1, 2, 4]");
  expect_error<ShapeError>([&] { lstm(zeros({0, 2, 3})); }, "at least one step");
  expect_error<ValueError>([] { GRU(3, 4, {.num_layers = 0}); }, "must be positive");
  EXPECT_EQ(RNN(3, 4, {.num_layers = 2, .bidirectional = true}, RNNActivation::relu).describe(),
            "RNN(in=3, hidden=4, relu, layers=2, bidirectional)");
}

}  // namespace
}  // namespace deft::nn
