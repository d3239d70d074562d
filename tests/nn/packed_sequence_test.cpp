// Sequences of several lengths, and recurrent layers over them: as PyTorch, and each row as if it were alone.
#include "nn/packed_sequence.h"

#include <limits>

#include "nn/rnn.h"
#include "nn_util.h"
#include "ops/gradcheck.h"
#include "ops/shape_ops.h"
#include "runtime/parallel.h"

namespace deft::nn {
namespace {

using Lengths = std::vector<int64_t>;

const State& cases() {
  static const State all = fixture("rnn");
  return all;
}

template <class M>
std::vector<Tensor> call(M& m, const PackedSequence& x, const std::vector<Tensor>& in, PackedSequence& y) {
  if constexpr (std::is_same_v<M, LSTM>) {
    auto [output, h, c] = in.size() > 1 ? m(x, in[1], in[2]) : m(x);
    y = output;
    return {h, c};
  } else {
    auto [output, h] = in.size() > 1 ? m(x, in[1]) : m(x);
    y = output;
    return {h};
  }
}

template <class M>
void expect_cases(const std::string& kind) {
  M plain(3, 4);
  expect_as_pytorch(
      cases().part(kind + "_packed"), plain,
      [&](const std::vector<Tensor>& in) {
        PackedSequence y;
        std::vector<Tensor> states = call(plain, pack_padded_sequence(in[0], {5, 3, 1}), in, y);
        states.insert(states.begin(), pad_packed_sequence(y).first);
        return states;
      },
      100);
  M deep(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  expect_as_pytorch(
      cases().part(kind + "_packed_deep"), deep,
      [&](const std::vector<Tensor>& in) {
        PackedSequence y;
        std::vector<Tensor> states = call(deep, pack_padded_sequence(in[0], {2, 5, 1, 5, 3}, true, false), in, y);
        auto [padded, lengths] = pad_packed_sequence(y, true, -7, 7);
        EXPECT_EQ(lengths, (Lengths{2, 5, 1, 5, 3}));
        states.insert(states.begin(), padded);
        return states;
      },
      100);
}

TEST(NnPacked, RNN) { expect_cases<RNN>("rnn"); }
TEST(NnPacked, LSTM) { expect_cases<LSTM>("lstm"); }
TEST(NnPacked, GRU) { expect_cases<GRU>("gru"); }

TEST(NnPacked, PackAndPad) {
  // Rows of lengths 1, 3, 2: number r * 10 + step.
  Tensor x = tensor<double>({0, 99, 99, 10, 11, 12, 20, 21, 99}).view({3, 3});
  PackedSequence p = pack_padded_sequence(x, {1, 3, 2}, true, false);
  EXPECT_VALUES(p.data, 10, 20, 0, 11, 21, 12);
  EXPECT_EQ(p.batch_sizes, (Lengths{3, 2, 1}));
  EXPECT_EQ(p.sorted_indices, (Lengths{1, 2, 0}));
  EXPECT_EQ(p.unsorted_indices, (Lengths{2, 0, 1}));
  EXPECT_EQ(p.lengths(), (Lengths{1, 3, 2}));
  EXPECT_VALUES(pad_packed_sequence(p, true, -1).first, 0, -1, -1, 10, 11, 12, 20, 21, -1);
  EXPECT_VALUES(pad_packed_sequence(p, false, -1, 4).first, 0, 10, 20, -1, 11, 21, -1, 12, -1, -1, -1, -1);
  PackedSequence q = pack_padded_sequence(x.t().contiguous(), {1, 3, 2}, false, false);
  EXPECT_EQ(values(q.data), values(p.data));
}

TEST(NnPacked, Gradients) {
  std::vector<Tensor> inputs{leaf({3, 4, 2}, 1)};
  auto f = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {pad_packed_sequence(pack_padded_sequence(in[0] * in[0], {2, 4, 1}, true, false), true, 5, 6).first};
  };
  EXPECT_NO_THROW(gradcheck(f, inputs));
  EXPECT_NO_THROW(gradgradcheck(f, inputs));
}

// What lies behind a row's end is NaN; every row is what it is alone, forwards and backwards.
TEST(NnPacked, PaddingIsNeverRead) {
  LSTM lstm(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  lstm.to(f64);
  Lengths lengths{2, 6, 1, 5, 3, 6};
  Tensor x = sample({6, 6, 3}, 1), h = sample({4, 6, 4}, 2), c = sample({4, 6, 4}, 3);
  for (size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 6) x[static_cast<int64_t>(i)].narrow(0, lengths[i], 6 - lengths[i]).fill_(NAN);
  x.requires_grad_();
  auto result = lstm(pack_padded_sequence(x, lengths, true, false), h, c);
  Tensor y = pad_packed_sequence(result.output, true).first;
  (y.square().sum() + result.hidden.sum() + result.cell.sum()).backward();
  std::vector<Tensor> grads;
  for (const Tensor& p : lstm.parameters()) grads.push_back(p.grad().clone());
  lstm.zero_grad();
  for (int64_t i = 0; i < 6; ++i) {
    int64_t n = lengths[static_cast<size_t>(i)];
    Tensor row = x.detach().narrow(0, i, 1).narrow(1, 0, n).clone().requires_grad_();
    auto alone = lstm(row, h.narrow(1, i, 1).contiguous(), c.narrow(1, i, 1).contiguous());
    (alone.output.square().sum() + alone.hidden.sum() + alone.cell.sum()).backward();
    expect_close(y[i].narrow(0, 0, n), alone.output[0], "output");
    expect_close(result.hidden.select(1, i), alone.hidden.select(1, 0), "hidden");
    expect_close(result.cell.select(1, i), alone.cell.select(1, 0), "cell");
    expect_close(x.grad()[i].narrow(0, 0, n), row.grad()[0], "gradient");
    for (double v : values(x.grad()[i].narrow(0, n, 6 - n))) EXPECT_EQ(v, 0);
  }
  std::vector<Tensor> parameters = lstm.parameters();
  for (size_t i = 0; i < grads.size(); ++i) expect_close(grads[i], parameters[i].grad(), "parameter", 0x1p-44);
}

TEST(NnPacked, EqualLengthsAreTheLayerItself) {
  GRU gru(3, 4, {.bidirectional = true});
  Tensor x = sample({5, 3, 3}, 1, DType::f32);
  auto whole = gru(x);
  auto packed = gru(pack_padded_sequence(x, {5, 5, 5}));
  EXPECT_EQ(values(whole.output), values(pad_packed_sequence(packed.output).first));
  EXPECT_EQ(values(whole.hidden), values(packed.hidden));
}

TEST(NnPacked, AnyNumberOfThreads) {
  GRU gru(3, 32, {.num_layers = 2, .bidirectional = true});
  Tensor x = sample({9, 7, 3}, 1, DType::f32);
  auto run = [&](int threads) {
    set_num_threads(threads);
    gru.zero_grad();
    auto r = gru(pack_padded_sequence(x, {9, 9, 7, 4, 4, 2, 1}));
    r.output.data.square().sum().backward();
    std::vector<std::vector<double>> all{values(r.output.data), values(r.hidden)};
    for (const Tensor& p : gru.parameters()) all.push_back(values(p.grad()));
    return all;
  };
  int before = num_threads();
  auto one = run(1);
  EXPECT_EQ(run(2), one);
  EXPECT_EQ(run(3), one);
  set_num_threads(before);
}

TEST(NnPacked, LeavesNothing) {
  LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true});
  Tensor x = sample({5, 3, 3}, 1, DType::f32);
  expect_leaves_nothing([&] {
    lstm(pack_padded_sequence(x, {5, 4, 1})).output.data.sum().backward();
    lstm.zero_grad();
  });
}

TEST(NnPacked, WrongCalls) {
  Tensor x = zeros({5, 3, 2});
  expect_error<ValueError>([&] { pack_padded_sequence(x, {2, 5, 1}); }, "length 1 is 5 after 2; put the longest");
  expect_error<ValueError>([&] { pack_padded_sequence(x, {6, 5, 1}); }, "length 0 is 6, expected 1 to 5 steps");
  expect_error<ValueError>([&] { pack_padded_sequence(x, {5, 5, 0}); }, "length 2 is 0");
  expect_error<ShapeError>([&] { pack_padded_sequence(x, {5, 5}); }, "there are 2 lengths for a batch of 3");
  expect_error<ShapeError>([&] { pack_padded_sequence(zeros({5}), {5}); }, "at least 2 dimensions");
  PackedSequence p = pack_padded_sequence(x, {5, 3, 1});
  expect_error<ValueError>([&] { pad_packed_sequence(p, false, 0, 4); }, "the longest sequence has 5 steps");
  RNN rnn(2, 4), other(3, 4);
  expect_error<ShapeError>([&] { other(p); }, "takes packed inputs of 3 features");
  expect_error<ShapeError>([&] { rnn(p, zeros({1, 2, 4})); }, "expected [1, 3, 4]");
  p.batch_sizes = {2, 3, 2, 1, 1};
  expect_error<ValueError>([&] { rnn(p); }, "RNN: batch sizes must be positive and never rise, found 3 after 2");
  p.batch_sizes = {3, 3};
  expect_error<ShapeError>([&] { rnn(p); }, "add up to 6 rows, the data has 9");
  p = pack_padded_sequence(x, {5, 3, 1}, false, false);
  p.unsorted_indices = {0, 0, 1};
  expect_error<ValueError>([&] { rnn(p); }, "do not undo each other over 3 rows");
  expect_error<ValueError>([&] { rnn(PackedSequence()); }, "is empty");
}

}  // namespace
}  // namespace deft::nn
