// Indexing: what is a view and what a copy, gradients and versions of writes, and that a refused write writes nothing.
#include "ops/indexing.h"

#include <functional>

#include "core/core_util.h"
#include "ops/gather_scatter.h"
#include "ops/gradcheck.h"
#include "ops/sort.h"

namespace deft {
namespace {

Tensor numbers(IntList sizes) {
  Shape shape(sizes);
  return arange(0, checked_numel(shape, DType::f64), 1, {DType::f64}).view(shape);
}
Tensor list(std::initializer_list<int64_t> v) { return tensor<int64_t>(v); }

// --- Views and copies ------------------------------------------------------------------------------------------

TEST(Indexing, BasicIndicesAreViews) {
  Tensor x = numbers({3, 4});
  const std::vector<std::vector<TensorIndex>> lists = {{1},
                                                       {Slice(0, 2), 3},
                                                       {Ellipsis(), Slice(1, 3)},
                                                       {NewAxis(), 0},
                                                       {Slice({}, {}, 2)},
                                                       {},
                                                       {scalar_tensor(int64_t{1}, DType::i64)}};
  for (const auto& indices : lists) {
    Tensor v = x.index(indices);
    EXPECT_TRUE(v.shares_storage_with(x));
    uint32_t before = x.version();
    v.add_(1);
    EXPECT_EQ(x.version(), before + 1);
  }
  Tensor y = zeros({3, 4}, DType::f64);
  y.index({Slice(0, 2), 3}).fill_(5);
  EXPECT_VALUES(y, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 0);
  y.index({1}).copy_(numbers({4}));
  EXPECT_VALUES(y, 0, 0, 0, 5, 0, 1, 2, 3, 0, 0, 0, 0);
}

TEST(Indexing, TensorsCopy) {
  Tensor x = numbers({3, 4});
  Tensor mask = gt(x, 5);
  for (const std::vector<TensorIndex>& indices :
       std::vector<std::vector<TensorIndex>>{{list({0, 1, 2})},
                                             {Slice(), list({0})},
                                             {mask},
                                             {true},
                                             {Slice(0, 2), list({1})},
                                             {scalar_tensor(true, DType::boolean)}}) {
    Tensor y = x.index(indices);
    EXPECT_FALSE(y.shares_storage_with(x));
    y.fill_(-1);
  }
  EXPECT_EQ(values(x), values(numbers({3, 4})));
}

TEST(Indexing, ResultShapes) {
  Tensor x = zeros({2, 3, 4, 5});
  Tensor i = list({0, 1}), m = zeros({3, 4}, DType::boolean);
  m.index_put_({1, Slice(0, 3)}, 1);
  EXPECT_EQ(x.index({i}).sizes(), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(x.index({Slice(), i, i}).sizes(), (Shape{2, 2, 5}));
  EXPECT_EQ(x.index({i, Slice(), i}).sizes(), (Shape{2, 3, 5})) << "a slice between: the list goes first";
  EXPECT_EQ(x.index({Slice(), i, Slice(), i}).sizes(), (Shape{2, 2, 4}));
  EXPECT_EQ(x.index({0, Slice(), i}).sizes(), (Shape{3, 2, 5})) << "a number is no list";
  EXPECT_EQ(x.index({Slice(), m}).sizes(), (Shape{2, 3, 5}));
  EXPECT_EQ(x.index({Slice(), m, i.index({Slice(0, 1)})}).sizes(), (Shape{2, 3}));
  EXPECT_EQ(x.index({i.view({2, 1}), list({0, 1, 2})}).sizes(), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(x.index({NewAxis(), Ellipsis(), i}).sizes(), (Shape{1, 2, 3, 4, 2}));
}

TEST(Indexing, MatchesPlainAccessThroughAnyStrides) {
  Tensor x = numbers({4, 3, 5}).permute({2, 0, 1});  // [5, 4, 3]
  Tensor y = x.index({list({4, 0}), list({-1, 2})});
  for (int64_t j = 0; j < 3; ++j) {
    EXPECT_EQ(y[0][j].item<double>(), x[4][3][j].item<double>());
    EXPECT_EQ(y[1][j].item<double>(), x[0][2][j].item<double>());
  }
  Tensor z = numbers({5, 4, 3});
  Tensor w = z.permute({2, 0, 1});
  w.index_put_({list({2, 0}), list({1, 4})}, -1);
  for (int64_t i = 0; i < 60; ++i) {  // w[2, 1] is z[1, :, 2] and w[0, 4] is z[4, :, 0]
    bool written = (i / 12 == 1 && i % 3 == 2) || (i / 12 == 4 && i % 3 == 0);
    EXPECT_EQ(values(z)[static_cast<size_t>(i)], written ? -1 : static_cast<double>(i));
  }
}

// --- Writes ----------------------------------------------------------------------------------------------------

TEST(IndexPut, RepeatedIndices) {
  Tensor x = zeros({3}, DType::f64);
  x.index_put_({list({1, 1, 0})}, numbers({3}) + 1);
  EXPECT_VALUES(x, 3, 2, 0);
  x.index_put_({list({1, 1, -1})}, numbers({3}) + 1, true);
  EXPECT_VALUES(x, 3, 5, 3);
  x.index_put_({gt(x, 4)}, 0);
  EXPECT_VALUES(x, 3, 0, 3);
}

TEST(IndexPut, ThroughViews) {
  Tensor x = zeros({4, 3}, DType::f64);
  x.index_put_({Slice(1, 3), list({2, 0})}, (numbers({2, 2}) + 1));
  EXPECT_VALUES(x, 0, 0, 0, 2, 0, 1, 4, 0, 3, 0, 0, 0);
  x.t().index_put_({1}, numbers({4}));
  EXPECT_VALUES(x, 0, 0, 0, 2, 1, 1, 4, 2, 3, 0, 3, 0);
  EXPECT_EQ(x.version(), 2u);
  x.index_put_({3, Slice(0, 2)}, 7.0, true);
  EXPECT_VALUES(x, 0, 0, 0, 2, 1, 1, 4, 2, 3, 7, 10, 0);
}

TEST(IndexPut, FromItself) {
  Tensor x = numbers({5});
  x.index_put_({list({0, 1, 2, 3, 4})}, x.index({list({4, 3, 2, 1, 0})}));
  EXPECT_VALUES(x, 4, 3, 2, 1, 0);
  x.index_put_({list({1, 2, 3, 4})}, x.narrow(0, 0, 4));  // a view of what is written
  EXPECT_VALUES(x, 4, 4, 3, 2, 1);
}

using Write = std::function<void(Tensor&, const Tensor&)>;

// Gradients of an in-place write equal those of the same thing put together from a mask that says what is written.
void expect_gradients(const Write& write, Shape value_sizes) {
  std::vector<Tensor> leaves{leaf({3, 4}, 1), leaf(value_sizes, 2)};
  gradcheck(
      [&](const std::vector<Tensor>& in) {
        Tensor y = in[0] * 2;
        write(y, in[1] * in[1]);
        return std::vector<Tensor>{y.exp()};
      },
      leaves);
}

TEST(IndexPut, Gradients) {
  Tensor i = list({2, 0}), j = list({1, 3});
  for (bool accumulate : {false, true}) {
    expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({i}, v, accumulate); }, {2, 4});
    expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({i, j}, v, accumulate); }, {2});
    expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({Slice(), j}, v, accumulate); }, {3, 1});
    expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({Slice(0, 2), j}, v, accumulate); }, {2});
    expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({1, Slice(1, 3)}, v, accumulate); }, {2});
    expect_gradients([&](Tensor& x, const Tensor& v) { x.t().index_put_({j, i}, v, accumulate); }, {2});
    expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({gt(x.detach(), 0)}, v, accumulate); }, {});
  }
  expect_gradients([&](Tensor& x, const Tensor& v) { x.index({Slice(0, 2), 3}).copy_(v); }, {2});
  expect_gradients([&](Tensor& x, const Tensor& v) { x.index_put_({list({1, 1, 1})}, v, true); }, {3, 4});
}

TEST(IndexPut, VersionRules) {
  Tensor x = leaf({4}), w = leaf({4}, 2);
  Tensor y = x * 1;
  Tensor z = (y * w).sum();
  y.index_put_({list({0})}, 1.0);
  EXPECT_THROW(z.backward(), InplaceError) << "y was saved by the product";
  EXPECT_THROW(x.index_put_({list({0})}, 1.0), InplaceError) << "a leaf that requires grad";
  EXPECT_THROW(x.index_put_({Slice(0, 2)}, 1.0), InplaceError);
  EXPECT_EQ(x.version(), 0u);
  no_grad([&] { x.index_put_({list({0})}, 1.0); });
  EXPECT_EQ(x.version(), 1u);
  EXPECT_TRUE(x.is_leaf());
}

TEST(IndexPut, LaterChangesOfTheIndexDoNotMatter) {
  Tensor x = leaf({4}), i = list({1, 2});
  Tensor y = x.index({i});
  i.fill_(0);
  y.sum().backward();
  EXPECT_VALUES(x.grad(), 0, 1, 1, 0);
}

TEST(IndexPut, InInferenceMode) {
  Tensor x = inference_mode([] {
    Tensor t = zeros({3}, DType::f64);
    t.index_put_({list({1})}, 2.0);
    t.index({Slice(2, 3)}).fill_(3);
    return t;
  });
  EXPECT_VALUES(x, 0, 2, 3);
}

TEST(Embedding, PaddingRowGetsNoGradient) {
  Tensor table = leaf({4, 2});
  Tensor i = list({1, 3, 1, 0});
  (embedding(i, table, 1) * 2).sum().backward();
  EXPECT_VALUES(table.grad(), 2, 2, 0, 0, 0, 0, 2, 2);
  table.zero_grad();
  embedding(i, table, -1).sum().backward();
  EXPECT_VALUES(table.grad(), 1, 1, 2, 2, 0, 0, 0, 0);
}

TEST(ScatterReduce, TiesShareTheGradient) {
  Tensor x = tensor<double>({1, 5}, with_grad(DType::f64)), source = tensor<double>({1, 1, 7}, with_grad(DType::f64));
  scatter_reduce(x, 0, list({0, 0, 1}), source, ScatterReduce::amin).sum().backward();
  for (double g : {values(x.grad())[0], values(source.grad())[0], values(source.grad())[1]})
    EXPECT_DOUBLE_EQ(g, 1.0 / 3);
  EXPECT_EQ(values(x.grad())[1], 1);
  EXPECT_EQ(values(source.grad())[2], 0);
}

TEST(Sort, NanIsLargest) {
  Tensor x = tensor<double>({2, NAN, -1, INFINITY});
  EXPECT_EQ(sort(x)[1].to_vector<int64_t>(), (std::vector<int64_t>{2, 0, 3, 1}));
  EXPECT_EQ(sort(x, 0, true)[1].to_vector<int64_t>(), (std::vector<int64_t>{1, 3, 0, 2}));
  EXPECT_EQ(topk(x, 2)[1].to_vector<int64_t>(), (std::vector<int64_t>{1, 3}));
}

// --- A bad index is found before anything is written -----------------------------------------------------------

using Refused = std::function<void(Tensor&)>;

void expect_untouched(const Refused& write, const std::string& text) {
  for (bool big : {false, true}) {  // large enough for several threads
    int64_t rows = big ? 50000 : 4;
    Tensor room = sample({rows + 2, 3}), x = room.narrow(0, 1, rows);
    std::vector<double> before = values(room);
    uint32_t version = x.version();
    expect_error<IndexError>([&] { write(x); }, text);
    EXPECT_EQ(values(room), before);
    EXPECT_EQ(x.version(), version);
    Tensor t = leaf({rows, 3}) * 1;  // and nothing is recorded
    std::string name = t.grad_fn_name();
    expect_error<IndexError>([&] { write(t); }, text);
    EXPECT_EQ(t.grad_fn_name(), name);
  }
}

TEST(Refused, BadIndexLeavesEverythingUnchanged) {
  // All good but the last.
  auto rows_of = [](const Tensor& x, int64_t last) {
    Tensor i = arange(x.size(0));
    i.index_put_({-1}, last);
    return i;
  };
  auto wide = [&](const Tensor& x, int64_t last) { return rows_of(x, last).view({-1, 1}).expand({-1, 3}); };
  for (int64_t off : {int64_t{50000}, INT64_MAX, INT64_MIN, int64_t{-50001}}) {
    expect_untouched([&](Tensor& x) { x.scatter_(0, wide(x, off), ones(x.sizes(), DType::f64)); },
                     "scatter: found index");
    expect_untouched([&](Tensor& x) { x.scatter_add_(0, wide(x, off), ones(x.sizes(), DType::f64)); },
                     "scatter_add: found index");
    expect_untouched([&](Tensor& x) { x.index_add_(0, rows_of(x, off), ones(x.sizes(), DType::f64)); },
                     "index_add: found index");
    for (bool accumulate : {false, true}) {
      expect_untouched([&](Tensor& x) { x.index_put_({rows_of(x, off)}, ones(x.sizes(), DType::f64), accumulate); },
                       "index at dimension 0: found index " + std::to_string(off));
      expect_untouched(
          [&](Tensor& x) {
            x.index_put_({Slice(), list({0, off})}, 1.0, accumulate);
          },
          "index at dimension 1: found index " + std::to_string(off) + " at position 1, expected -3 <= index < 3");
      expect_untouched([&](Tensor& x) { x.index_put_({off}, 1.0, accumulate); }, "index: ");
    }
  }
  expect_untouched([&](Tensor& x) { x.scatter_(0, wide(x, -1), ones(x.sizes(), DType::f64)); },
                   "scatter: found index -1");
  expect_untouched([&](Tensor& x) { x.index_add_(0, rows_of(x, -1), ones(x.sizes(), DType::f64)); },
                   "index_add: found index -1");
  expect_untouched([&](Tensor& x) { x.index_put_({zeros({3, 3}, DType::boolean)}, 1.0); }, "does not fit dimension 0");
}

TEST(Refused, BadValueLeavesEverythingUnchanged) {
  Tensor x = numbers({3, 2});
  expect_error<ShapeError>([&] { x.index_put_({list({0, 1})}, ones({3, 2}, DType::f64)); }, "index_put: ");
  expect_error<DTypeError>(
      [&] {
        x.index_put_({list({0, 1})}, ones({2, 2}));
      },
      "index_put: the value is f32, the tensor f64");
  expect_error<ShapeError>([&] { x.index_put_({0}, ones({3}, DType::f64)); }, "copy_: ");
  Tensor wide = zeros({1, 3}).expand({2, 3});
  EXPECT_THROW(wide.index_put_({list({0})}, 1.0), InplaceError);
  EXPECT_EQ(values(x), values(numbers({3, 2})));
  EXPECT_EQ(x.version(), 0u);
}

TEST(Indexing, InPlaceWritesReadTheIndexAndSourceOfBefore) {
  Tensor far = list({100, 200, 300, 400});
  EXPECT_VALUES(list({1, 2, 3, 0}).scatter_(0, list({1, 2, 3, 0}), far), 400, 100, 200, 300);
  Tensor x = list({1, 2, 3, 0});
  EXPECT_VALUES(x.scatter_(0, x, far), 400, 100, 200, 300);
  x = list({1, 2, 3, 0});
  EXPECT_VALUES(x.scatter_add_(0, x, far), 401, 102, 203, 300);
  x = list({1, 2, 3, 0});
  EXPECT_VALUES(x.index_add_(0, x, far), 401, 102, 203, 300);
  x = list({1, 2, 3, 0});
  EXPECT_VALUES(x.scatter_(0, list({3, 2, 1, 0}), x), 0, 3, 2, 1);
  x = list({1, 2, 3, 0});
  EXPECT_VALUES(x.index_add_(0, x, x), 1, 3, 5, 3);
}

TEST(Refused, ErrorsNameTheUsersLine) {
  Tensor x = leaf({3});
  int line = __LINE__ + 1;
  Tensor y = x.index({list({0, 1})});
  EXPECT_EQ(y.grad_fn()->site.line(), static_cast<uint32_t>(line));
}

}  // namespace
}  // namespace deft
