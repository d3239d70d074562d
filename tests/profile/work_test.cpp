// Figures worked out by hand, of the kernels that calls really make.
#include "profile/work.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "core/grad_mode.h"
#include "core/observer.h"
#include "deft/deft.h"
#include "ops/elementwise_chain.h"
#include "ops/fused_rows.h"
#include "ops/op_table.h"
#include "ops/optimizer_update.h"
#include "ops/tensor_lists.h"
#include "profile/collector.h"

namespace deft::profile {
namespace {

struct Seen {
  std::string name;
  Work work;
};

class Watcher : public Observer {
 public:
  void kernel_ran(const KernelCall& call, const Site&) override { seen.push_back({call.def.info.name, work_of(call)}); }
  std::vector<Seen> seen;
};

std::vector<Seen> kernels_of(const std::function<void()>& f) {
  Watcher watcher;
  set_observer(&watcher);
  {
    ProfileScope scope("work");
    f();
  }
  set_observer(nullptr);
  return watcher.seen;
}

// The work of all kernels of that name.
Work work_in(const std::vector<Seen>& seen, const std::string& name) {
  Work sum;
  int found = 0;
  for (const Seen& s : seen)
    if (s.name == name) sum.flops += s.work.flops, sum.bytes += s.work.bytes, ++found;
  EXPECT_GT(found, 0) << "no kernel of " << name;
  return sum;
}

void expect_work(const std::function<void()>& f, const std::string& name, double flops, double bytes) {
  Work w = work_in(kernels_of(f), name);
  EXPECT_EQ(w.flops, flops) << name;
  EXPECT_EQ(w.bytes, bytes) << name;
}

Tensor leaf(IntList sizes) { return zeros(sizes, DType::f32).requires_grad_(); }

TEST(Work, MatrixProducts) {
  Tensor a = zeros({3, 5}, DType::f32), b = zeros({5, 7}, DType::f32);
  expect_work([&] { matmul(a, b); }, "matmul", 2 * 3 * 5 * 7, 4 * (15 + 35 + 21));
  // A batch on one side only: the other is read once.
  Tensor batch = zeros({4, 3, 5}, DType::f32);
  expect_work([&] { matmul(batch, b); }, "matmul", 2 * 4 * 3 * 5 * 7, 4 * (60 + 35 + 84));
  Tensor v = zeros({5}, DType::f32);
  expect_work([&] { mv(a, v); }, "matmul", 2 * 3 * 5, 4 * (15 + 5 + 3));
  // Transposed views count as what they show.
  expect_work([&] { matmul(b.transpose(0, 1), a.transpose(0, 1)); }, "matmul", 2 * 7 * 5 * 3, 4 * (35 + 15 + 21));
}

TEST(Work, Linear) {
  Tensor x = zeros({2, 3, 5}, DType::f32), w = zeros({7, 5}, DType::f32), b = zeros({7}, DType::f32);
  expect_work([&] { linear(x, w, b); }, "linear", 2 * 6 * 5 * 7, 4 * (30 + 35 + 7 + 42));
  expect_work([&] { linear(x, w); }, "linear", 2 * 6 * 5 * 7, 4 * (30 + 35 + 42));
  Tensor half = x.to(DType::bf16), half_w = w.to(DType::bf16);
  expect_work([&] { linear(half, half_w); }, "linear", 2 * 6 * 5 * 7, 2 * (30 + 35 + 42));
  PackedLinear packed(w, b);
  NoGradGuard guard;
  Tensor residual = zeros({2, 3, 7}, DType::f32);
  expect_work([&] { packed(x, FusedActivation::relu, residual); }, "fused_linear", 2 * 6 * 5 * 7,
              4 * (30 + 35 + 7 + 42 + 42));
}

// Backward is two products of the same size.
TEST(Work, LinearBackward) {
  Tensor x = leaf({6, 5}), w = leaf({7, 5});
  Tensor y = linear(x, w);
  Tensor g = zeros({6, 7}, DType::f32);
  std::vector<Seen> seen = kernels_of([&] { y.backward(g); });
  EXPECT_EQ(work_in(seen, "matmul").flops, 2 * (2 * 6 * 5 * 7));
}

// Made of products: what they count is theirs.
TEST(Work, CompositionsOfProducts) {
  Tensor a = zeros({2, 3, 5}, DType::f32), b = zeros({2, 5, 7}, DType::f32);
  EXPECT_EQ(work_in(kernels_of([&] { einsum("bij,bjk->bik", {a, b}); }), "matmul").flops, 2 * 2 * 3 * 5 * 7);
  Tensor x = zeros({4, 3}, DType::f32), y = zeros({4, 5}, DType::f32), w = zeros({2, 3, 5}, DType::f32);
  EXPECT_GE(work_in(kernels_of([&] { bilinear(x, y, w); }), "matmul").flops, 2 * 4 * 2 * 3 * 5);
  Tensor m = zeros({3, 7}, DType::f32), c = zeros({3, 5}, DType::f32), d = zeros({5, 7}, DType::f32);
  EXPECT_EQ(work_in(kernels_of([&] { addmm(m, c, d); }), "matmul").flops, 2 * 3 * 5 * 7);
}

TEST(Work, Convolutions) {
  Tensor x = leaf({2, 4, 10, 8}), w = leaf({6, 4, 3, 3}), b = zeros({6}, DType::f32);
  const double flops = 2.0 * 2 * 6 * 8 * 6 * (4 * 3 * 3);  // the result is 2 x 6 x 8 x 6
  Tensor y;
  expect_work([&] { y = conv2d(x, w, b); }, "convolution", flops, 4 * (640 + 216 + 6 + 576));
  Tensor g = zeros({2, 6, 8, 6}, DType::f32);
  std::vector<Seen> seen = kernels_of([&] { y.backward(g); });
  EXPECT_EQ(work_in(seen, "conv_transpose").flops, flops);
  EXPECT_EQ(work_in(seen, "conv_transpose").bytes, 4 * (576 + 216 + 640));
  EXPECT_EQ(work_in(seen, "conv_backward_weight").flops, flops);
  EXPECT_EQ(work_in(seen, "conv_backward_weight").bytes, 4 * (640 + 576 + 216));
}

TEST(Work, FusedConvolution) {
  Tensor x = zeros({1, 4, 8, 8}, DType::f32), w = zeros({6, 4, 1, 1}, DType::f32), b = zeros({6}, DType::f32);
  Tensor residual = zeros({1, 6, 8, 8}, DType::f32);
  NoGradGuard guard;
  expect_work(
      [&] {
        call<FusedConvolution>(Site::current(), {{}, FusedActivation::relu}, x, w, b, residual);
      },
      "fused_convolution", 2 * 6 * 64 * 4, 4 * (256 + 24 + 6 + 384 + 384));
}

TEST(Work, GroupedAndTransposedConvolutions) {
  Tensor x = leaf({1, 8, 5, 5}), w = leaf({8, 1, 3, 3});
  Tensor y;
  const double depthwise = 2.0 * 8 * 25 * 9;
  expect_work([&] { y = conv2d(x, w, {}, {1}, {1}, {1}, 8); }, "convolution", depthwise, 4 * (200 + 72 + 200));
  std::vector<Seen> seen = kernels_of([&] { y.backward(zeros({1, 8, 5, 5}, DType::f32)); });
  EXPECT_EQ(work_in(seen, "conv_transpose").flops, depthwise);
  EXPECT_EQ(work_in(seen, "conv_backward_weight").flops, depthwise);

  Tensor small = leaf({2, 4, 5}), up = leaf({4, 3, 2});
  Tensor large;  // [2, 3, 10]
  const double flops = 2.0 * 2 * 4 * 5 * (3 * 2);
  expect_work([&] { large = conv_transpose1d(small, up, {}, {2}); }, "conv_transpose", flops, 4 * (40 + 24 + 60));
  seen = kernels_of([&] { large.backward(zeros({2, 3, 10}, DType::f32)); });
  EXPECT_EQ(work_in(seen, "convolution").flops, flops);
  EXPECT_EQ(work_in(seen, "conv_backward_weight").flops, flops);
}

TEST(Work, Attention) {
  // 2 heads, 4 queries, 6 keys, 8 features of queries and keys, 5 of values.
  Tensor q = leaf({2, 4, 8}), k = leaf({2, 6, 8}), v = leaf({2, 6, 5});
  Tensor y;
  const double pairs = 2 * 4 * 6;
  expect_work([&] { y = scaled_dot_product_attention(q, k, v); }, "scaled_dot_product_attention", 2 * pairs * (8 + 5),
              4 * (64 + 96 + 60 + 40 + 8));
  std::vector<Seen> seen = kernels_of([&] { y.backward(zeros({2, 4, 5}, DType::f32)); });
  EXPECT_EQ(work_in(seen, "scaled_dot_product_attention_backward").flops, 2 * pairs * (3 * 8 + 2 * 5));

  // Query i sees i + 1 keys: 1 + 2 + 3 + 4 of 4, and with 6 queries 4 each for the last two.
  Tensor k4 = zeros({2, 4, 8}, DType::f32), v4 = zeros({2, 4, 5}, DType::f32), q6 = zeros({2, 6, 8}, DType::f32);
  auto causal = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return work_in(kernels_of([&] { scaled_dot_product_attention(a, b, c, {}, 0, true); }),
                   "scaled_dot_product_attention")
        .flops;
  };
  NoGradGuard guard;
  EXPECT_EQ(causal(q, k4, v4), 2 * 2 * 10 * (8 + 5));
  EXPECT_EQ(causal(q6, k4, v4), 2 * 2 * 18 * (8 + 5));
}

// Only what is asked for: values alone take the scores and one product more.
TEST(Work, AttentionBackwardOfOneInput) {
  Tensor q = zeros({2, 4, 8}, DType::f32), k = zeros({2, 6, 8}, DType::f32), v = leaf({2, 6, 5});
  Tensor y = scaled_dot_product_attention(q, k, v);
  std::vector<Seen> seen = kernels_of([&] { y.backward(zeros({2, 4, 5}, DType::f32)); });
  EXPECT_EQ(work_in(seen, "scaled_dot_product_attention_backward").flops, 2.0 * 2 * 4 * 6 * (8 + 5));
}

TEST(Work, Elementwise) {
  Tensor a = zeros({3, 5}, DType::f32), b = zeros({3, 5}, DType::f32), row = zeros({5}, DType::f32);
  expect_work([&] { a + b; }, "add", 15, 4 * 45);
  expect_work([&] { a + row; }, "add", 15, 4 * (15 + 5 + 15));
  expect_work([&] { a + a; }, "add", 15, 4 * 30);  // one tensor twice
  expect_work([&] { relu(a); }, "relu", 15, 4 * 30);
  expect_work([&] { a.add_(b); }, "add", 15, 4 * 45);
  expect_work([&] { a + row.expand({3, 5}); }, "add", 15, 4 * (15 + 5 + 15));
  expect_work([&] { a.slice(1, Slice{0, 2}) + b.slice(1, Slice{1, 3}); }, "add", 6, 4 * 18);  // views by their elements
  expect_work([&] { a.to(DType::bf16); }, "to", 15, 15 * (4 + 2));
}

// Gradients of elementwise ops have a kernel of their own.
TEST(Work, ElementwiseGradient) {
  Tensor x = leaf({6, 10});
  Tensor y = sigmoid(x);
  Tensor g = zeros({6, 10}, DType::f32);
  expect_work([&] { y.backward(g); }, "elementwise_gradient", 60, 4 * (60 + 60 + 60));  // g, y and the gradient
}

// It is the same gradient, seen or not.
TEST(Work, ElementwiseGradientsDoNotDependOnBeingSeen) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Tensor x = randn({1000}).to(dtype).requires_grad_();
    Tensor g = randn({1000}).to(dtype);
    gelu(x).backward(g);
    Tensor unseen = x.grad().clone();
    x.zero_grad();
    kernels_of([&] { gelu(x).backward(g); });
    EXPECT_EQ(x.grad().dtype(), dtype);
    EXPECT_TRUE(all(eq(x.grad(), unseen)).item<bool>());
  }
}

TEST(Work, CompiledChain) {
  auto f = compile([](const Tensor& x) { return exp(x) * 2 + 1; });
  Tensor x = zeros({64, 64}, DType::f32);
  NoGradGuard guard;
  f(x);
  expect_work([&] { f(x); }, "elementwise_chain", 3 * 4096, 4 * 2 * 4096 + 8 * 2);  // two numbers
}

TEST(Work, Reductions) {
  Tensor x = leaf({6, 10});
  expect_work([&] { sum(x); }, "sum", 60, 4 * 61);
  expect_work([&] { mean(x, {1}); }, "mean", 60, 4 * 66);
  expect_work([&] { softmax(x, 1); }, "softmax", 60, 4 * 120);
  Tensor w = zeros({10}, DType::f32), b = zeros({10}, DType::f32);
  expect_work([&] { layer_norm(x, {10}, w, b); }, "layer_norm", 60, 4 * (60 + 20 + 60 + 12));
  expect_work([&] { cumsum(x, 1); }, "cumsum", 60, 4 * 120);
}

// A relu, a softmax and a chain of two, in one pass.
TEST(Work, FusedRows) {
  FusedRows::Params p;
  ElementwiseChain::Params chain;
  chain.steps = 2;
  std::memcpy(p.part[2].params.data(), &chain, sizeof chain);
  p.part[0].op = op_index(op_def<Relu>);
  p.part[1].op = op_index(op_def<Softmax>);
  p.part[2].op = op_index(op_def<ElementwiseChain>);
  Tensor x = zeros({6, 10}, DType::f32), out[2] = {zeros({6, 10}, DType::f32), zeros({0}, DType::f32)};
  const Tensor* inputs[] = {&x};
  const Work w = work_of(KernelCall{op_def<FusedRows>, inputs, 1, out, &p});
  EXPECT_EQ(w.flops, 4 * 60);
  EXPECT_EQ(w.bytes, 4 * 120);
}

TEST(Work, LookupsReadWhatTheyTake) {
  Tensor table = zeros({1000, 8}, DType::f32);
  Tensor index = zeros({5}, DType::i64);
  expect_work([&] { embedding(index, table); }, "embedding", 0, 4 * 40 + 8 * 5 + 4 * 40);
  expect_work([&] { index_select(table, 0, index); }, "index_select", 0, 4 * 40 + 8 * 5 + 4 * 40);
  Tensor small = zeros({2, 8}, DType::f32);  // smaller than what is made of it
  expect_work([&] { embedding(index, small); }, "embedding", 0, 4 * 16 + 8 * 5 + 4 * 40);
  Tensor source = zeros({5, 8}, DType::f32);
  expect_work([&] { table.index_add_(0, index, source); }, "index_add", 40, 8 * 5 + 3 * 4 * 40);
  expect_work([&] { index_add(table, 0, index, source); }, "index_add", 40, 8 * 5 + 4 * 40 + 2 * 4 * 8000);
}

TEST(Work, FillsAndCopies) {
  Tensor x = zeros({3, 4}, DType::f32), y = zeros({4, 3}, DType::f32);
  expect_work([&] { x.fill_(1); }, "fill_", 0, 4 * 12);
  expect_work([&] { x.copy_(y.transpose(0, 1)); }, "copy_", 0, 4 * 24);
  expect_work([&] { y.transpose(0, 1).contiguous(); }, "clone", 0, 4 * 24);
  expect_work([&] { cat({x, x}); }, "cat", 0, 4 * (12 + 24));
  Tensor picture = zeros({1, 2, 4, 4}, DType::f32);
  expect_work([&] { avg_pool2d(picture, {2}); }, "avg_pool", 32, 4 * (32 + 8));
}

TEST(Work, EmptyTensors) {
  Tensor a = zeros({0, 5}, DType::f32), b = zeros({5, 7}, DType::f32);
  expect_work([&] { matmul(a, b); }, "matmul", 0, 4 * 35);
  expect_work([&] { relu(a); }, "relu", 0, 0);
}

// A step of `optimizer` over a parameter of 10 elements and one of 20; `steps` before it.
template <class Optimizer, class Options>
Work work_of_step(const Options& options, int steps = 1) {
  Tensor a = leaf({10}), b = leaf({4, 5});
  Optimizer optimizer({a, b}, options);
  auto backward = [&] { (a.sum() + b.sum()).backward(); };
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    backward();
    optimizer.step();
  }
  backward();
  return work_in(kernels_of([&] { optimizer.step(); }), "tensor_pass");
}
void expect_step(const Work& w, double flops_per_element, double floats_per_element) {
  EXPECT_EQ(w.flops, 30 * flops_per_element);
  EXPECT_EQ(w.bytes, 30 * 4 * floats_per_element);
}

// Gradients are read, parameters and states read and written.
TEST(Work, OptimizerSteps) {
  expect_step(work_of_step<optim::SGD>(optim::SGDOptions{.lr = 0.1}), 2, 3);
  expect_step(work_of_step<optim::SGD>(optim::SGDOptions{.lr = 0.1, .weight_decay = 0.1}), 4, 3);
  expect_step(work_of_step<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9}), 4, 5);
  expect_step(work_of_step<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, 0), 2, 4);  // it begins
  expect_step(work_of_step<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true}), 6, 5);
  expect_step(work_of_step<optim::Adam>(optim::AdamOptions{.lr = 0.1}), 13, 7);
  expect_step(work_of_step<optim::Adam>(optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1}), 15, 7);
  expect_step(work_of_step<optim::Adam>(optim::AdamOptions{.lr = 0.1, .amsgrad = true}), 14, 9);
  expect_step(work_of_step<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.1}), 14, 7);
  expect_step(work_of_step<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.1}), 9, 5);
  expect_step(work_of_step<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.1, .momentum = 0.9, .centered = true}), 16, 9);
  expect_step(work_of_step<optim::Adagrad>(optim::AdagradOptions{.lr = 0.1}), 7, 5);
  expect_step(work_of_step<optim::LAMB>(optim::LAMBOptions{.lr = 0.1, .weight_decay = 0.1}), 20, 7);
}

TEST(Work, OptimizerStepsOfOtherTypes) {
  // A bf16 parameter: its f32 master is read and written, the parameter written, the bf16 gradient read.
  Tensor p = ones({10}).to(DType::bf16), master = ones({10}), grad = ones({10}).to(DType::bf16);
  UpdateTensor t{p, grad, {}, master};
  Work w = work_in(kernels_of([&] { sgd_update({&t, 1}, {{.lr = 0.1}}); }), "tensor_pass");
  EXPECT_EQ(w.flops, 20);
  EXPECT_EQ(w.bytes, 10 * (2 + 8 + 2));
  // f64 is composed of ops, which count for themselves.
  Tensor wide = ones({10}, DType::f64).requires_grad_();
  optim::SGD sgd({wide}, {.lr = 0.1});
  wide.sum().backward();
  std::vector<Seen> seen = kernels_of([&] { sgd.step(); });
  EXPECT_GT(work_in(seen, "sub").bytes, 0);
  for (const Seen& s : seen) EXPECT_NE(s.name, "tensor_pass");
}

TEST(Work, Clipping) {
  std::vector<Tensor> grads = {ones({10}), ones({4, 5})};
  expect_step(work_in(kernels_of([&] { total_norm(grads); }), "tensor_pass"), 2, 1);
  expect_step(work_in(kernels_of([&] { scale_tensors_(grads, 0.5); }), "tensor_pass"), 1, 2);
  expect_step(work_in(kernels_of([&] { clip_norm_(grads, 0.1); }), "tensor_pass"), 3, 3);
}

TEST(Work, RowsOfOptimizersHaveIt) {
  Tensor a = leaf({1000});
  optim::AdamW adamw({a}, {.lr = 0.1, .weight_decay = 0});
  a.sum().backward();
  adamw.step();
  ProfileSession session({.trace = false});
  for (int i = 0; i < 2; ++i) adamw.step();
  const Profile p = session.stop();
  int rows = 0;
  for (const OpRow& row : p.ops) {
    if (row.bucket != Bucket::optimizer) continue;
    ++rows;
    EXPECT_EQ(row.calls, 2);
    EXPECT_EQ(row.flops, 2 * 13 * 1000.0);
    EXPECT_EQ(row.bytes, 2 * 7 * 4 * 1000.0);
  }
  EXPECT_EQ(rows, 1);
}

TEST(Work, CountsEveryKernelOfATrainingStep) {
  models::Cnn net({.classes = 10});
  Tensor x = zeros({2, 1, 28, 28}, DType::f32), target = zeros({2}, DType::i64);
  std::vector<Seen> seen = kernels_of([&] { cross_entropy(net(x), target).backward(); });
  ASSERT_GT(seen.size(), 10u);
  for (const Seen& s : seen) {
    EXPECT_TRUE(std::isfinite(s.work.flops) && s.work.flops >= 0) << s.name;
    EXPECT_GT(s.work.bytes, 0) << s.name;
  }
}

}  // namespace
}  // namespace deft::profile
