// More of the functions that take integers, as in integer_params_test.cpp. tests/tools/integer_sweep_test.py fails
// where one is in neither file.
#include <algorithm>

#include "integer_sweep.h"

namespace deft::testing {
namespace {

// Of counting({3, 4}).
double at(int64_t i, int64_t j) { return static_cast<double>(i * 4 + j) * 0.01 + 1; }
int64_t dim_of(int64_t d) { return d < 0 ? d + 2 : d; }

TEST_F(IntegerParams, ViewsAndCopiesByNumbers) {
  const Tensor x = counting({3, 4}).requires_grad_(), line = counting({4}).requires_grad_(),
               one = counting({1, 1}).requires_grad_();
  sweep({{"Tensor::unfold",
          {1, 2, 1},
          [&](const Numbers& n) { return x.unfold(n[0], n[1], n[2]); },
          [](const Numbers& n, const Shape& p) {
            return dim_of(n[0]) == 0 ? at(p[0] * n[2] + p[2], p[1]) : at(p[0], p[1] * n[2] + p[2]);
          },
          true},
         {"tile",
          {2, 1},
          [&](const Numbers& n) {
            return tile(x, {n[0], n[1]});
          },
          [](const Numbers&, const Shape& p) { return at(p[0] % 3, p[1] % 4); },
          true},
         {"tile of the last",
          {2},
          [&](const Numbers& n) { return x.tile({n[0]}); },
          [](const Numbers&, const Shape& p) { return at(p[0], p[1] % 4); },
          true},
         {"tile to more dims",
          {2, 1, 1},
          [&](const Numbers& n) {
            return x.tile({n[0], n[1], n[2]});
          },
          nullptr,
          true},
         {"diag of a line",
          {1},
          [&](const Numbers& n) { return diag(line, n[0]); },
          [](const Numbers& n, const Shape& p) {
            if (p[1] - p[0] != n[0]) return 0.0;
            return at(0, std::min(p[0], p[1]));
          },
          true},
         {"diag",
          {1},
          [&](const Numbers& n) { return x.diag(n[0]); },
          [](const Numbers& n, const Shape& p) {
            return at(p[0] + std::max<int64_t>(0, -n[0]), p[0] + std::max<int64_t>(0, n[0]));
          },
          true},
         {"unflatten",
          {1, 2, 2},
          [&](const Numbers& n) {
            return x.unflatten(n[0], {n[1], n[2]});
          },
          nullptr,
          true},
         {"unflatten of 3",
          {1, 2, 2, 1},
          [&](const Numbers& n) {
            return unflatten(x, n[0], {n[1], n[2], n[3]});
          },
          nullptr,
          true},
         {"broadcast_to",
          {3, 2},
          [&](const Numbers& n) {
            return broadcast_to(one, {n[0], n[1]});
          },
          [](const Numbers&, const Shape&) { return 1.0; },
          true},
         {"as_strided_scatter",
          {2, 3, 4, 1, 0},
          [&](const Numbers& n) {
            return as_strided_scatter(x, zeros({2, 3}), {n[0], n[1]}, {n[2], n[3]}, n[4]);
          },
          nullptr,
          true},
         {"sum_to_size",
          {1, 4},
          [&](const Numbers& n) {
            return sum_to_size(x, {n[0], n[1]});
          },
          nullptr,
          true}});
}

TEST_F(IntegerParams, NewTensors) {
  const Tensor x = zeros({2});
  sweep({{"new_empty",
          {2, 3},
          [&](const Numbers& n) {
            return x.new_empty({n[0], n[1]}).fill_(0);
          }},
         {"new_zeros",
          {2, 3},
          [&](const Numbers& n) {
            return x.new_zeros({n[0], n[1]});
          },
          [](const Numbers&, const Shape&) { return 0.0; }},
         {"new_ones",
          {2, 3, 1},
          [&](const Numbers& n) {
            return x.new_ones({n[0], n[1], n[2]});
          },
          [](const Numbers&, const Shape&) { return 1.0; }},
         {"new_full",
          {2, 3},
          [&](const Numbers& n) {
            return x.new_full({n[0], n[1]}, 2.5);
          },
          [](const Numbers&, const Shape&) { return 2.5; }},
         {"new_full of a number",
          {7},
          [&](const Numbers& n) { return x.new_full({2}, n[0], TensorOptions(i64)); },
          [](const Numbers& n, const Shape&) { return static_cast<double>(n[0]); }},
         {"empty",
          {2, 3},
          [](const Numbers& n) {
            return empty({n[0], n[1]}).fill_(0);
          }},
         {"ones",
          {2, 3},
          [](const Numbers& n) {
            return ones({n[0], n[1]});
          }},
         {"rand",
          {2, 3},
          [](const Numbers& n) {
            return rand({n[0], n[1]});
          }},
         {"randn", {2, 3}, [](const Numbers& n) {
            return randn({n[0], n[1]});
          }}});
}

TEST_F(IntegerParams, Draws) {
  const Tensor weights = counting({2, 5}), none = zeros({0, 5});
  const auto index = [](const Tensor& drawn) {
    if (drawn.numel() > 0 && drawn.numel() < kFewElements) {
      EXPECT_GE(drawn.amin().item<int64_t>(), 0);
      EXPECT_LT(drawn.amax().item<int64_t>(), 5);
    }
    return drawn;
  };
  sweep(
      {{"multinomial", {3}, [&](const Numbers& n) { return index(multinomial(weights, n[0])); }},
       {"multinomial with replacement", {3}, [&](const Numbers& n) { return index(weights.multinomial(n[0], true)); }},
       {"multinomial of no rows", {3}, [&](const Numbers& n) { return multinomial(none, n[0], true); }},
       {"multinomial of a row", {3}, [&](const Numbers& n) { return index(weights.select(0, 0).multinomial(n[0])); }}});
}

TEST_F(IntegerParams, OrdersAndReductions) {
  const Tensor x = counting({3, 4}).requires_grad_(), q = tensor<float>({0.25f, 0.5f});
  const auto along = [](double (*of)(const std::vector<double>&)) {
    return [of](const Numbers& n, const Shape& p) {
      std::vector<double> row;
      const bool columns = dim_of(n[0]) == 0;
      for (int64_t k = 0; k < (columns ? 3 : 4); ++k) row.push_back(columns ? at(k, p[0]) : at(p[0], k));
      return of(row);
    };
  };
  const auto lower = along([](const std::vector<double>& row) { return row[(row.size() - 1) / 2]; });  // they ascend
  const auto least = along([](const std::vector<double>& row) { return row[0]; });
  const auto most = along([](const std::vector<double>& row) { return row.back(); });
  const auto half =
      along([](const std::vector<double>& row) { return (row[(row.size() - 1) / 2] + row[row.size() / 2]) / 2; });
  const auto dims = [&](Tensor (*f)(const Tensor&, IntList, bool, Site)) {
    return [&x, f](const Numbers& n) { return f(x, {n[0], n[1]}, n[2] != 0, Site::current()).to(f32); };
  };
  sweep({{"median", {1}, [&](const Numbers& n) { return x.median(n[0])[0]; }, lower, true},
         {"quantile", {1}, [&](const Numbers& n) { return x.quantile(0.5, n[0]); }, half, true},
         {"quantile of several", {1}, [&](const Numbers& n) { return quantile(x, q, n[0]); }, nullptr, true},
         {"argsort", {1}, [&](const Numbers& n) { return x.argsort(n[0]); }},
         {"max", {1}, [&](const Numbers& n) { return max(x, n[0])[0]; }, most, true},
         {"min", {1}, [&](const Numbers& n) { return min(x, n[0])[0]; }, least, true},
         {"argmin",
          {1},
          [&](const Numbers& n) { return x.argmin(n[0]); },
          [](const Numbers&, const Shape&) { return 0.0; }},
         {"prod",
          {0, 1, 0},
          [&](const Numbers& n) {
            return prod(x, {n[0], n[1]}, n[2] != 0);
          },
          nullptr,
          true},
         {"mean",
          {0, 1, 0},
          [&](const Numbers& n) {
            return mean(x, {n[0], n[1]}, n[2] != 0);
          },
          nullptr,
          true},
         {"amin", {0, 1, 0}, dims(&amin), nullptr, true},
         {"aminmax",
          {0, 1},
          [&](const Numbers& n) {
            return aminmax(x, {n[0], n[1]})[0];
          },
          nullptr,
          true},
         {"any", {0, 1, 0}, dims(&any)},
         {"all", {0, 1, 0}, dims(&all)},
         {"count_nonzero", {0, 1, 0}, dims(&count_nonzero)},
         {"nansum", {0, 1, 0}, dims(&nansum), nullptr, true},
         {"logsumexp", {0, 1, 0}, dims(&logsumexp), nullptr, true},
         {"std", {1, 1}, [&](const Numbers& n) { return x.std({n[0]}, static_cast<double>(n[1])); }},
         {"var_mean", {1, 1}, [&](const Numbers& n) { return var_mean(x, {n[0]}, static_cast<double>(n[1]))[1]; }},
         {"norm",
          {0, 1},
          [&](const Numbers& n) {
            return x.norm(2, {n[0], n[1]});
          },
          nullptr,
          true},
         {"norm of a power", {2}, [&](const Numbers& n) { return x.norm(static_cast<double>(n[0]), {1}); }},
         {"normalize", {1}, [&](const Numbers& n) { return normalize(x, 2, n[0]); }, nullptr, true},
         {"cumprod", {1}, [&](const Numbers& n) { return cumprod(x, n[0]); }, nullptr, true},
         {"log_softmax", {1}, [&](const Numbers& n) { return log_softmax(x, n[0]); }, nullptr, true},
         {"softmin", {1}, [&](const Numbers& n) { return softmin(x, n[0]); }, nullptr, true}});
}

// Numbers among parameters, and those in tensors of indices.
TEST_F(IntegerParams, Indices) {
  const Tensor x = counting({3, 4}).requires_grad_(), rows = tensor<int64_t>({0, 2}), source = ones({2, 4});
  const Tensor both = zeros({2, 4}, i64), logits = counting({2, 4}).requires_grad_();
  std::vector<Function> functions = {
      {"scatter", {0}, [&](const Numbers& n) { return scatter(x, n[0], both, source); }, nullptr, true},
      {"scatter a number", {0}, [&](const Numbers& n) { return scatter(x, n[0], both, 2); }, nullptr, true},
      {"scatter_add", {0}, [&](const Numbers& n) { return scatter_add(x, n[0], both, source); }, nullptr, true},
      {"scatter_",
       {0},
       [&](const Numbers& n) {
         return zeros({3, 4}).scatter_(n[0], both, source);
       }},
      {"scatter_add_",
       {0},
       [&](const Numbers& n) {
         return zeros({3, 4}).scatter_add_(n[0], both, source);
       }},
      {"index_add",
       {0},
       [&](const Numbers& n) {
         return index_add(x, n[0], rows, n[0] == 0 ? source : ones({3, 2}));
       },
       nullptr,
       true},
      {"index_add_",
       {0},
       [&](const Numbers& n) {
         return zeros({3, 4}).index_add_(n[0], rows, source);
       }},
      {"take",
       {1, 11},
       [&](const Numbers& n) {
         return take(x, tensor<int64_t>({n[0], n[1]}));
       },
       [](const Numbers& n, const Shape& p) {
         const int64_t i = n[static_cast<size_t>(p[0])];
         return at(0, i < 0 ? i + 12 : i);
       },
       true},
      {"gather at",
       {1, 2},
       [&](const Numbers& n) {
         return gather(x, 0, tensor<int64_t>({n[0], n[1]}).view({1, 2}));
       },
       [](const Numbers& n, const Shape& p) { return at(n[static_cast<size_t>(p[1])], p[1]); },
       true},
      {"scatter at",
       {1, 2},
       [&](const Numbers& n) {
         return scatter(x, 0, tensor<int64_t>({n[0], n[1]}).view({1, 2}), 7);
       },
       nullptr,
       true},
      {"index_select at",
       {1, 2},
       [&](const Numbers& n) {
         return x.index_select(0, tensor<int64_t>({n[0], n[1]}));
       },
       nullptr,
       true},
      {"index at",
       {1, 2},
       [&](const Numbers& n) {
         return x.index({tensor<int64_t>({n[0], n[1]})});
       },
       nullptr,
       true},
      {"index_put_",
       {1, 2},
       [&](const Numbers& n) {
         return zeros({3, 4}).index_put_({tensor<int64_t>({n[0]}), n[1]}, 1);
       }},
      {"embedding of",
       {1, 2},
       [&](const Numbers& n) {
         return embedding(tensor<int64_t>({n[0], n[1]}), x);
       },
       nullptr,
       true},
      {"one_hot of",
       {1, 2},
       [](const Numbers& n) {
         return one_hot(tensor<int64_t>({n[0], 1}), n[1]);
       }},
      {"one_hot as many as there are",
       {1},
       [](const Numbers& n) {
         return one_hot(tensor<int64_t>({n[0], 1}));
       }},
      {"cross_entropy",
       {1, 2, -100},
       [&](const Numbers& n) {
         return cross_entropy(logits, tensor<int64_t>({n[0], n[1]}), {.ignore_index = n[2]});
       },
       nullptr,
       true},
      {"nll_loss",
       {1, 2, -100},
       [&](const Numbers& n) {
         return nll_loss(logits, tensor<int64_t>({n[0], n[1]}), {.ignore_index = n[2]});
       },
       nullptr,
       true}};
  for (ScatterReduce reduce :
       {ScatterReduce::add, ScatterReduce::mul, ScatterReduce::mean, ScatterReduce::amax, ScatterReduce::amin})
    functions.push_back({"scatter_reduce " + std::to_string(static_cast<int>(reduce)),
                         {0},
                         [&, reduce](const Numbers& n) { return x.scatter_reduce(n[0], both, source, reduce, false); },
                         nullptr,
                         true});
  sweep(functions);
}

TEST_F(IntegerParams, PoolsToGivenSizes) {
  const Tensor line = counting({2, 7}), plane = counting({1, 2, 5, 4}).requires_grad_(),
               volume = counting({1, 1, 3, 4, 3});
  const Tensor pixels = plane.detach().contiguous(MemoryFormat::channels_last).requires_grad_();
  sweep({{"adaptive_avg_pool1d", {2}, [&](const Numbers& n) { return adaptive_avg_pool1d(line, {n[0]}); }},
         {"adaptive_max_pool1d",
          {2},
          [&](const Numbers& n) { return adaptive_max_pool1d_with_indices(line, {n[0]})[1]; }},
         {"adaptive_max_pool2d",
          {2, 2},
          [&](const Numbers& n) {
            return adaptive_max_pool2d(plane, {n[0], n[1]});
          },
          nullptr,
          true},
         {"adaptive_max_pool2d of pixels",
          {2, 2},
          [&](const Numbers& n) {
            return adaptive_max_pool2d(pixels, {n[0], n[1]});
          },
          nullptr,
          true},
         {"adaptive_max_pool2d indices",
          {2, 2},
          [&](const Numbers& n) {
            return adaptive_max_pool2d_with_indices(plane, {n[0], n[1]})[1];
          }},
         {"adaptive_max_pool3d",
          {2, 2, 1},
          [&](const Numbers& n) {
            return adaptive_max_pool3d(volume, {n[0], n[1], n[2]});
          }},
         {"adaptive_max_pool3d indices",
          {2, 2, 1},
          [&](const Numbers& n) {
            return adaptive_max_pool3d_with_indices(volume, {n[0], n[1], n[2]})[1];
          }},
         {"max_pool1d_with_indices",
          {2, 1, 0, 1},
          [&](const Numbers& n) { return max_pool1d_with_indices(line, {n[0]}, {n[1]}, {n[2]}, {n[3]})[1]; }},
         {"max_pool2d_with_indices",
          {2, 1, 0, 1},
          [&](const Numbers& n) { return max_pool2d_with_indices(plane, {n[0]}, {n[1]}, {n[2]}, {n[3]})[1]; }},
         {"max_pool3d_with_indices", {2, 1, 0, 1}, [&](const Numbers& n) {
            return max_pool3d_with_indices(volume, {n[0]}, {n[1]}, {n[2]}, {n[3]})[1];
          }}});
}

TEST_F(IntegerParams, NormalizedShapesAndDims) {
  const Tensor x = counting({3, 4}).requires_grad_(), square = counting({4, 4});
  sweep({{"layer_norm",
          {3, 4},
          [&](const Numbers& n) {
            return layer_norm(x, {n[0], n[1]});
          },
          nullptr,
          true},
         {"rms_norm",
          {3, 4},
          [&](const Numbers& n) {
            return rms_norm(x, {n[0], n[1]});
          },
          nullptr,
          true},
         {"tensordot", {0, 1}, [&](const Numbers& n) { return tensordot(square, square, {n[0]}, {n[1]}); }},
         {"tensordot of two", {0, 1, 1, 0}, [&](const Numbers& n) {
            return tensordot(square, square, {n[0], n[1]}, {n[2], n[3]});
          }}});
}

}  // namespace
}  // namespace deft::testing
