#include <algorithm>
#include <numeric>

#include "ops/sort.h"
#include "samples/reference.h"

namespace deft {

namespace {

using reference::coordinates;
using reference::element;

Arg distinct(Shape sizes) {
  Arg a = real(sizes);
  a.distinct = true;
  return a;
}

// The first k of every row along dim in the given order, and their positions.
Tensors ordered(const Tensor& x, int64_t dim, bool descending, int64_t k) {
  Shape sizes = x.sizes();
  int d = static_cast<int>(dim < 0 ? dim + std::max(x.dim(), 1) : dim);
  int64_t n = x.dim() ? sizes[d] : 1;
  if (x.dim()) sizes[d] = k;
  Tensor values = zeros(sizes, DType::f64), places = zeros(sizes, DType::f64);
  for (int64_t i = 0; i < values.numel(); ++i) {
    Shape at = coordinates(sizes, i);
    int64_t rank = x.dim() ? at[d] : 0;
    std::vector<double> row;
    for (int64_t j = 0; j < n; ++j) {
      if (x.dim()) at[d] = j;
      row.push_back(element(x, at));
    }
    std::vector<size_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return descending ? row[a] > row[b] : row[a] < row[b]; });
    values.data<double>()[i] = row[order[static_cast<size_t>(rank)]];
    places.data<double>()[i] = static_cast<double>(order[static_cast<size_t>(rank)]);
  }
  return {values, places};
}

BadSample bad(std::string note, std::vector<Arg> args, SampleFn call, std::string error, std::string text) {
  return {std::move(note), std::move(args), std::move(call), std::move(error), std::move(text)};
}
std::string python(bool b) { return b ? "True" : "False"; }

}  // namespace

OpSamples Sort::samples() {
  OpSamples s{.op = "sort", .dtypes = kAllTypes};
  auto call = [](int64_t dim, bool descending) {
    return [=](const Tensors& t) {
      auto [values, places] = sort(t[0], dim, descending);
      return Tensors{values, places};
    };
  };
  auto add = [&](std::string note, Arg x, int64_t dim, bool descending) {
    s.good.push_back(
        {note + (descending ? " descending" : ""),
         {x},
         call(dim, descending),
         [=](const Tensors& t) {
           int64_t n = t[0].dim() ? t[0].size(dim) : 1;
           return ordered(t[0], dim, descending, n);
         },
         "torch.sort(a, stable=True, dim=" + std::to_string(dim) + ", descending=" + python(descending) + ")"});
  };
  for (bool descending : {false, true}) {
    add("vector", distinct({7}), 0, descending);
    add("last", distinct({3, 5}), -1, descending);
    add("first of two", distinct({5, 3}), 0, descending);
    add("middle", distinct({2, 5, 3}), 1, descending);
    add("rank 4", distinct({2, 3, 2, 3}), -2, descending);
    add("0-d", distinct({}), 0, descending);
    add("one", distinct({1, 1}), 1, descending);
    add("of nothing", distinct({0, 3}), 0, descending);
    add("no rows", distinct({0, 3}), 1, descending);
    Arg ties = real({40}, -2, 2);
    ties.grad = false;
    add("ties in integers", ties, 0, descending);
  }
  Arg many = distinct({2, 1030});
  many.grad = false;
  add("counting sort", many, 1, false);
  add("counting sort", many, 1, true);
  s.good.push_back({"argsort",
                    {distinct({3, 6})},
                    [](const Tensors& t) { return Tensors{argsort(t[0], 1, true).to(t[0].dtype())}; },
                    [](const Tensors& t) { return Tensors{ordered(t[0], 1, true, 6)[1]}; },
                    "torch.argsort(a, 1, True).to(a.dtype)"});
  s.good.back().args[0].grad = false;
  s.bad = {
      bad("dim", {real({2, 3})}, call(2, false), "IndexError", "sort: "),
      bad("negative dim", {real({2, 3})}, call(-3, false), "IndexError", "sort: "),
      bad("0-d dim", {real({})}, call(1, false), "IndexError", "sort: "),
      bad("undefined", {missing_arg()}, call(0, false), "ValueError", "undefined"),
  };
  return s;
}

OpSamples TopK::samples() {
  OpSamples s{.op = "topk", .dtypes = kAllTypes};
  auto call = [](int64_t k, int64_t dim, bool largest) {
    return [=](const Tensors& t) {
      auto [values, places] = topk(t[0], k, dim, largest);
      return Tensors{values, places};
    };
  };
  auto add = [&](std::string note, Shape in, int64_t k, int64_t dim, bool largest) {
    Arg x = distinct(in);
    s.good.push_back(
        {note + " k=" + std::to_string(k) + (largest ? "" : " smallest"),
         {x},
         call(k, dim, largest),
         [=](const Tensors& t) { return ordered(t[0], dim, largest, k); },
         "torch.topk(a, " + std::to_string(k) + ", " + std::to_string(dim) + ", " + python(largest) + ")"});
  };
  for (bool largest : {true, false}) {
    add("vector", {7}, 3, 0, largest);
    add("all", {6}, 6, 0, largest);
    add("none", {6}, 0, 0, largest);
    add("one", {2, 5}, 1, 1, largest);
    add("dim=-1", {2, 2, 6}, 2, -1, largest);
    add("dim=0", {5, 3}, 2, 0, largest);
    add("middle of rank 4", {2, 5, 2, 2}, 4, 1, largest);
    add("few of many", {70}, 3, 0, largest);
    add("0-d", {}, 1, 0, largest);
    add("no rows", {0, 4}, 2, 1, largest);
    add("of nothing", {3, 0}, 0, 1, largest);
  }
  s.bad = {
      bad("too many", {real({2, 3})}, call(4, 1, true), "ValueError", "topk: k = 4 is outside 0 to 3"),
      bad("negative", {real({2, 3})}, call(-1, 1, true), "ValueError", "topk: k = -1 is outside 0 to 3"),
      bad("0-d none", {real({})}, call(0, 0, true), "ValueError", "topk: a 0-d tensor has one value"),
      bad("0-d two", {real({})}, call(2, 0, true), "ValueError", "topk: k = 2"),
      bad("dim", {real({2, 3})}, call(1, 2, true), "IndexError", "topk: "),
      bad("undefined", {missing_arg()}, call(1, 0, true), "ValueError", "undefined"),
  };
  return s;
}

OpSamples Unique::samples() {
  OpSamples s{.op = "unique", .dtypes = kAllTypes, .grad = false};
  auto call = [](const Tensors& t) {
    auto [values, inverse, counts] = unique(t[0]);
    return Tensors{values, inverse, counts};
  };
  auto expect = [](const Tensors& t) {
    const double* v = t[0].data<double>();
    std::vector<double> all(v, v + t[0].numel());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    Tensor values = zeros({static_cast<int64_t>(all.size())}, DType::f64), inverse = zeros(t[0].sizes(), DType::f64);
    Tensor counts = zeros(values.sizes(), DType::f64);
    std::copy(all.begin(), all.end(), values.data<double>());
    for (int64_t i = 0; i < t[0].numel(); ++i) {
      auto place = std::lower_bound(all.begin(), all.end(), v[i]) - all.begin();
      inverse.data<double>()[i] = static_cast<double>(place);
      counts.data<double>()[place] += 1;
    }
    return Tensors{values, inverse, counts};
  };
  auto add = [&](std::string note, Arg x) {
    s.good.push_back({note, {x}, call, expect, "torch.unique(a, return_inverse=True, return_counts=True)"});
  };
  add("vector", real({9}));
  add("matrix", real({3, 5}));
  add("rank 3", real({2, 3, 4}));
  add("rank 4", real({2, 3, 2, 3}));
  add("0-d", real({}));
  add("one", real({1, 1}));
  add("empty", real({0, 2}));
  add("all equal", real({5, 3}, 1, 1));
  add("all different", distinct({17}));
  add("many", real({1500}));
  s.good.push_back({"repeated",
                    {index_arg({40}, 6)},
                    call,
                    [expect](const Tensors& t) { return expect({t[0].to(DType::f64)}); },
                    "torch.unique(a, return_inverse=True, return_counts=True)"});
  s.bad = {bad("undefined", {missing_arg()}, call, "ValueError", "undefined")};
  return s;
}

}  // namespace deft
