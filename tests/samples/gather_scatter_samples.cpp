#include "ops/gather_scatter.h"

#include <algorithm>

#include "ops/shape_ops.h"
#include "samples/reference.h"

namespace deft {

namespace {

using reference::build;
using reference::coordinates;
using reference::element;
using reference::place_of;

BadSample bad(std::string note, std::vector<Arg> args, SampleFn call, std::string error, std::string text) {
  return {std::move(note), std::move(args), std::move(call), std::move(error), std::move(text)};
}
Arg index_range(Shape sizes, int64_t low, int64_t high) {
  return {.sizes = sizes,
          .kind = Arg::Kind::index,
          .low = static_cast<double>(low),
          .high = static_cast<double>(high),
          .grad = false};
}
Arg distinct(Shape sizes, double low = -2, double high = 2) {
  Arg a = real(sizes, low, high);
  a.distinct = true;
  return a;
}
int64_t size_at(const Shape& s, int64_t dim) {
  return s.empty() ? 1 : s[static_cast<int>(dim < 0 ? dim + s.size() : dim)];
}
int axis(const Shape& s, int64_t dim) { return static_cast<int>(dim < 0 ? dim + std::max(s.size(), 1) : dim); }
// 0-d shapes behave as [1].
Shape at_least_1d(const Shape& s) { return s.empty() ? Shape{1} : s; }

// Where element i of the index points to in a tensor of shape `sizes`.
int64_t target(const Shape& sizes, int d, const Tensor& index, int64_t i) {
  Shape at = coordinates(at_least_1d(index.sizes()), i);
  at[d] = index.data<int64_t>()[i];
  return place_of(at_least_1d(sizes), at);
}
// Indices that differ along dim, as a constant.
Tensor spread_index(const Shape& sizes, int64_t dim, int64_t n) {
  Tensor t = zeros(sizes, DType::i64);
  int d = axis(sizes, dim);
  for (int64_t i = 0; i < t.numel(); ++i) {
    int64_t sum = 0;
    for (int64_t c : coordinates(at_least_1d(sizes), i)) sum += c;
    t.data<int64_t>()[i] = (2 * coordinates(at_least_1d(sizes), i)[d] + sum) % n;
  }
  return t;
}
std::string python(const Tensor& t) {
  return "torch.tensor(" + reference::python_list(t.to_vector<int64_t>()) + ", dtype=torch.int64).reshape(" +
         reference::python_list(std::vector<int64_t>(t.sizes().begin(), t.sizes().end())) + ")";
}

double combined(ScatterReduce r, double a, double b) {
  switch (r) {
    case ScatterReduce::assign:
      return b;
    case ScatterReduce::add:
      return a + b;
    case ScatterReduce::mul:
      return a * b;
    case ScatterReduce::amin:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}
Tensors scattered(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, ScatterReduce r) {
  Tensor y = x.clone();
  for (int64_t i = 0; i < index.numel(); ++i) {
    Shape at = coordinates(at_least_1d(index.sizes()), i);
    double& to = y.data<double>()[target(x.sizes(), axis(x.sizes(), dim), index, i)];
    to = combined(r, to, source.data<double>()[place_of(at_least_1d(source.sizes()), at)]);
  }
  return {y};
}
// The part of a source that takes part: PyTorch has no gradient for a larger one.
std::string python_part(const std::string& name, const Shape& index, const Shape& source) {
  if (index == source || index.size() != source.size()) return name;
  std::string s = name + "[";
  for (int d = 0; d < index.size(); ++d) s += (d ? ", :" : ":") + std::to_string(index[d]);
  return s + "]";
}
const char* torch_name(ScatterReduce r) {
  return r == ScatterReduce::mul ? "prod" : r == ScatterReduce::amin ? "amin" : "amax";
}

SampleFn scatter_call(int64_t dim, ScatterReduce r) {
  return [=](const Tensors& t) { return Tensors{scatter_reduce(t[0], dim, t[1], t[2], r)}; };
}
// Bad calls that all ways of scattering refuse.
std::vector<BadSample> bad_scatters(ScatterReduce r, const std::string& name) {
  auto call = scatter_call(0, r);
  return {
      bad("index too large", {real({3, 2}), index_range({2, 2}, 3, 5), real({2, 2})}, call, "IndexError",
          name + ": found index"),
      bad("index negative", {real({3, 2}), index_range({2, 2}, -2, -1), real({2, 2})}, call, "IndexError",
          "position (0, 0), expected 0 <= index < 3"),
      bad("index type", {real({3, 2}), real({2, 2}), real({2, 2})}, call, "DTypeError",
          name + ": the index must be i64"),
      bad("source type", {real({3}), index_arg({2}, 3), index_arg({2}, 3)}, call, "DTypeError",
          name + ": the source is i64, the tensor f32"),
      bad("index rank", {real({3, 2}), index_arg({2}, 3), real({2, 2})}, call, "ShapeError", "must have the same rank"),
      bad("source rank", {real({3, 2}), index_arg({2, 2}, 3), real({2})}, call, "ShapeError",
          "must have the same rank"),
      bad("index past the tensor", {real({3, 2}), index_arg({2, 3}, 3), real({2, 3})}, call, "ShapeError",
          "larger than the tensor"),
      bad("index past the source", {real({3, 2}), index_arg({2, 2}, 3), real({1, 2})}, call, "ShapeError",
          "larger than the source"),
      bad("dim", {real({3}), index_arg({2}, 3), real({2})}, scatter_call(1, r), "IndexError", name + ": "),
      bad("no index", {real({3}), missing_arg(), real({2})}, call, "ValueError", "the index is an undefined tensor"),
      bad("no source", {real({3}), index_arg({2}, 3), missing_arg()}, call, "ValueError",
          "the source is an undefined tensor"),
      bad("no tensor", {missing_arg(), index_arg({2}, 3), real({2})}, call, "ValueError", "undefined tensor"),
  };
}

}  // namespace

OpSamples Gather::samples() {
  OpSamples s{.op = "gather", .dtypes = kAllTypes};
  auto call = [](int64_t dim) { return [dim](const Tensors& t) { return Tensors{gather(t[0], dim, t[1])}; }; };
  auto add = [&](std::string note, Shape x, int64_t dim, Shape index) {
    auto expect = [x, dim](const Tensors& t) {
      Tensor y = zeros(t[1].sizes(), DType::f64);
      for (int64_t i = 0; i < y.numel(); ++i)
        y.data<double>()[i] = t[0].data<double>()[target(x, axis(x, dim), t[1], i)];
      return Tensors{y};
    };
    s.good.push_back({note,
                      {real(x), index_arg(index, size_at(x, dim))},
                      call(dim),
                      expect,
                      "torch.gather(a, " + std::to_string(dim) + ", b)"});
  };
  add("rows", {4, 3}, 0, {2, 3});
  add("columns", {3, 4}, 1, {3, 2});
  add("repeated", {3, 2}, 0, {9, 2});
  add("smaller index", {4, 5}, 0, {2, 3});
  add("dim=-1", {2, 3, 4}, -1, {2, 3, 5});
  add("dim=-2", {2, 3, 4}, -2, {1, 4, 2});
  add("vector", {5}, 0, {7});
  add("rank 4", {2, 3, 2, 3}, 1, {2, 2, 2, 3});
  add("0-d", {}, 0, {});
  add("0-d by vector", {}, 0, {3});
  add("vector by 0-d", {4}, 0, {});
  add("no indices", {3, 2}, 0, {0, 2});
  add("no columns", {3, 0}, 0, {2, 0});
  add("odd", {17, 3}, 0, {33, 3});
  s.bad = {
      bad("index too large", {real({3, 2}), index_range({2, 2}, 3, 4)}, call(0), "IndexError", "gather: found index"),
      bad("index negative", {real({3, 2}), index_range({2, 2}, -3, -1)}, call(0), "IndexError",
          "at position (0, 0), expected 0 <= index < 3"),
      bad("0-d index", {real({}), index_range({}, 1, 1)}, call(0), "IndexError", "gather: found index 1"),
      bad("of nothing", {real({0, 2}), index_range({1, 2}, 0, 0)}, call(0), "IndexError", "expected 0 <= index < 0"),
      bad("type", {real({3}), real({2})}, call(0), "DTypeError", "gather: the index must be i64"),
      bad("mask", {real({3}), boolean_arg({3})}, call(0), "DTypeError", "gather: the index must be i64"),
      bad("rank", {real({3, 2}), index_arg({2}, 3)}, call(0), "ShapeError",
          "gather: the index has shape [2], expected rank 2"),
      bad("larger", {real({3, 2}), index_arg({2, 3}, 3)}, call(0), "ShapeError",
          "larger than the input [3, 2] at dimension 1"),
      bad("dim", {real({3, 2}), index_arg({2, 2}, 2)}, call(2), "IndexError", "gather: "),
      bad("undefined", {real({3}), missing_arg()}, call(0), "ValueError", "gather: the index is an undefined tensor"),
  };
  return s;
}

OpSamples ScatterAdd::samples() {
  OpSamples s{.op = "scatter_add", .dtypes = kAllTypes, .growth = 16, .scale = 4};
  auto add = [&](std::string note, Shape x, int64_t dim, Shape index, Shape source) {
    s.good.push_back({note,
                      {real(x), index_arg(index, size_at(x, dim)), real(source)},
                      [dim](const Tensors& t) { return Tensors{scatter_add(t[0], dim, t[1], t[2])}; },
                      [dim](const Tensors& t) { return scattered(t[0], dim, t[1], t[2], ScatterReduce::add); },
                      "torch.scatter_add(a, " + std::to_string(dim) + ", b, " + python_part("c", index, source) + ")"});
  };
  // Indices differ along dim: with repeated ones it is not said which value wins.
  auto assign = [&](std::string note, Shape x, int64_t dim, Shape sizes, Shape source) {
    Tensor index = spread_index(sizes, dim, size_at(x, dim));
    s.good.push_back({"assign " + note,
                      {real(x), real(source)},
                      [=](const Tensors& t) { return Tensors{scatter(t[0], dim, index.to(t[0].device()), t[1])}; },
                      [=](const Tensors& t) { return scattered(t[0], dim, index, t[1], ScatterReduce::assign); },
                      "torch.scatter(a, " + std::to_string(dim) + ", " + python(index) + ", " +
                          python_part("b", sizes, source) + ")"});
  };
  add("rows", {4, 3}, 0, {2, 3}, {2, 3});
  add("columns", {3, 4}, 1, {3, 2}, {3, 2});
  add("repeated", {3, 2}, 0, {7, 2}, {7, 2});
  add("larger source", {4, 3}, 0, {2, 2}, {3, 5});
  add("dim=-1", {2, 3, 4}, -1, {2, 3, 5}, {2, 3, 5});
  add("dim=-2 part", {2, 3, 4}, -2, {1, 4, 2}, {2, 4, 3});
  add("rank 4", {2, 3, 2, 2}, 1, {2, 4, 2, 2}, {2, 4, 2, 2});
  add("vector", {5}, 0, {9}, {9});
  add("0-d", {}, 0, {}, {});
  add("0-d by vector", {}, 0, {3}, {3});
  add("vector at 0-d", {4}, 0, {}, {});
  add("mixed 0-d", {4}, 0, {1}, {});
  add("no indices", {3, 2}, 0, {0, 2}, {3, 2});
  add("no columns", {3, 0}, 0, {2, 0}, {2, 0});
  add("odd", {5, 7}, 0, {19, 7}, {19, 7});
  assign("rows", {5, 3}, 0, {2, 3}, {2, 3});
  assign("all columns", {3, 7}, 1, {3, 7}, {3, 7});
  assign("larger source", {5, 3}, 0, {2, 2}, {3, 4});
  assign("dim=-1", {2, 2, 5}, -1, {2, 2, 4}, {2, 2, 4});
  assign("rank 4", {2, 7, 2, 2}, 1, {2, 3, 2, 2}, {2, 3, 2, 2});
  assign("0-d", {}, 0, {}, {});
  assign("no indices", {3, 2}, 0, {0, 2}, {0, 2});
  Tensor index = spread_index({2, 3}, 0, 5);
  s.good.push_back({"assign a number",
                    {real({5, 3})},
                    [=](const Tensors& t) { return Tensors{scatter(t[0], 0, index.to(t[0].device()), 1)}; },
                    [=](const Tensors& t) {
                      return scattered(t[0], 0, index, ones({2, 3}, DType::f64), ScatterReduce::assign);
                    },
                    "torch.scatter(a, 0, " + python(index) + ", 1)"});
  Arg last = index_range({4}, 1, 1);
  Arg fixed = real({4});
  fixed.grad = false;
  s.good.push_back({"assign the last of repeated",
                    {real({3}), last, fixed},
                    [](const Tensors& t) { return Tensors{scatter(t[0], 0, t[1], t[2])}; },
                    [](const Tensors& t) { return scattered(t[0], 0, t[1], t[2], ScatterReduce::assign); }});
  s.bad = bad_scatters(ScatterReduce::add, "scatter_add");
  for (BadSample b : bad_scatters(ScatterReduce::assign, "scatter")) {
    b.note = "assign " + b.note;
    s.bad.push_back(b);
  }
  return s;
}

OpSamples Scatter::samples() {
  OpSamples s{.op = "scatter_reduce", .dtypes = kAllTypes, .growth = 16, .scale = 4};
  auto add = [&](std::string note, ScatterReduce r, Shape x, int64_t dim, Shape index, Shape source) {
    bool product = r == ScatterReduce::mul;
    Arg a = product ? real(x, 0.5, 1.5) : distinct(x), b = product ? real(source, 0.5, 1.5) : distinct(source);
    s.good.push_back({std::string(torch_name(r)) + " " + note,
                      {a, index_arg(index, size_at(x, dim)), b},
                      scatter_call(dim, r),
                      [=](const Tensors& t) { return scattered(t[0], dim, t[1], t[2], r); },
                      "torch.scatter_reduce(a, " + std::to_string(dim) + ", b, " + python_part("c", index, source) +
                          ", '" + torch_name(r) + "')"});
  };
  for (ScatterReduce r : {ScatterReduce::mul, ScatterReduce::amin, ScatterReduce::amax}) {
    add("rows", r, {4, 3}, 0, {2, 3}, {2, 3});
    add("columns repeated", r, {3, 2}, 1, {3, 4}, {3, 4});
    add("larger source", r, {4, 3}, 0, {2, 2}, {3, 5});
    add("dim=-2", r, {2, 3, 2}, -2, {1, 4, 2}, {1, 4, 2});
    add("rank 4", r, {2, 2, 2, 2}, 1, {2, 3, 2, 1}, {2, 3, 2, 1});
    add("vector", r, {5}, 0, {9}, {9});
    add("0-d", r, {}, 0, {}, {});
    add("no indices", r, {3, 2}, 0, {0, 2}, {0, 2});
    add("odd", r, {5, 7}, 0, {9, 7}, {9, 7});
  }
  // Products with none, one, two and three zeros among the factors of an element.
  Tensor places = tensor<int64_t>({1, 2, 2, 3, 3, 3, 0, 1, 2, 3, 0});
  s.good.push_back({"prod with zeros",
                    {real({5}), real({6}, 0, 0), real({5})},
                    [=](const Tensors& t) {
                      Tensor index = places.to(t[0].device());
                      return Tensors{scatter_reduce(t[0], 0, index, cat({t[1], t[2]}), ScatterReduce::mul)};
                    },
                    [=](const Tensors& t) {
                      return scattered(t[0], 0, places, cat({t[1], t[2]}), ScatterReduce::mul);
                    },
                    "torch.scatter_reduce(a, 0, " + python(places) + ", torch.cat([b, c]), 'prod')"});
  s.good.push_back({"prod onto zeros",
                    {real({3}, 0, 0), index_arg({6}, 3), real({6})},
                    scatter_call(0, ScatterReduce::mul),
                    [](const Tensors& t) { return scattered(t[0], 0, t[1], t[2], ScatterReduce::mul); },
                    "torch.scatter_reduce(a, 0, b, c, 'prod')"});
  s.bad = bad_scatters(ScatterReduce::mul, "scatter_reduce");
  s.bad.push_back(bad("amax index", {real({3}), index_range({2}, 3, 3), real({2})},
                      scatter_call(0, ScatterReduce::amax), "IndexError",
                      "scatter_reduce: found index 3 at position 0"));
  return s;
}

OpSamples IndexSelect::samples() {
  OpSamples s{.op = "index_select", .dtypes = kAllTypes};
  auto call = [](int64_t dim) { return [dim](const Tensors& t) { return Tensors{index_select(t[0], dim, t[1])}; }; };
  auto add = [&](std::string note, Shape x, int64_t dim, Shape index) {
    auto expect = [x, dim](const Tensors& t) {
      Shape out = x;
      if (x.size()) out[axis(x, dim)] = t[1].numel();
      return Tensors{build(out, [&](Shape at) {
        if (x.size()) at[axis(x, dim)] = t[1].data<int64_t>()[at[axis(x, dim)]];
        return element(t[0], at);
      })};
    };
    s.good.push_back({note,
                      {real(x), index_arg(index, size_at(x, dim))},
                      call(dim),
                      expect,
                      "torch.index_select(a, " + std::to_string(dim) + ", b)"});
  };
  add("rows", {4, 3}, 0, {2});
  add("columns", {3, 4}, 1, {3});
  add("repeated", {3, 2}, 0, {9});
  add("wide rows", {5, 11}, 0, {7});
  add("dim=-1", {2, 3, 4}, -1, {2});
  add("dim=-2", {2, 3, 9}, -2, {5});
  add("rank 4", {2, 3, 2, 3}, 1, {2});
  add("vector", {5}, 0, {7});
  add("by 0-d", {5, 2}, 0, {});
  add("0-d", {}, 0, {1});
  add("0-d by 0-d", {}, 0, {});
  add("no indices", {3, 2}, 0, {0});
  add("no columns", {3, 0}, 0, {2});
  s.bad = {
      bad("index too large", {real({3, 2}), index_range({2}, 3, 4)}, call(0), "IndexError",
          "index_select: found index"),
      bad("index negative", {real({3, 2}), index_range({2}, -3, -1)}, call(0), "IndexError",
          "at position 0, expected 0 <= index < 3"),
      bad("index of nothing", {real({0, 2}), index_range({2}, 0, 0)}, call(0), "IndexError", "expected 0 <= index < 0"),
      bad("index without columns", {real({3, 0}), index_range({2}, 3, 3)}, call(0), "IndexError",
          "index_select: found index 3"),
      bad("rank", {real({3}), index_arg({2, 2}, 3)}, call(0), "ShapeError",
          "index_select: the index must be 1-d, found shape [2, 2]"),
      bad("0-d many", {real({}), index_range({2}, 0, 0)}, call(0), "ShapeError",
          "a 0-d tensor takes one index, found 2"),
      bad("type", {real({3}), real({2})}, call(0), "DTypeError", "index_select: the index must be i64"),
      bad("dim", {real({3}), index_arg({2}, 3)}, call(-2), "IndexError", "index_select: "),
      bad("undefined", {real({3}), missing_arg()}, call(0), "ValueError", "the index is an undefined tensor"),
  };
  return s;
}

OpSamples IndexAdd::samples() {
  OpSamples s{.op = "index_add", .dtypes = kAllTypes, .growth = 16, .scale = 4};
  auto call = [](int64_t dim) { return [dim](const Tensors& t) { return Tensors{index_add(t[0], dim, t[1], t[2])}; }; };
  auto add = [&](std::string note, Shape x, int64_t dim, Shape index) {
    Shape source = x;
    if (x.size()) source[axis(x, dim)] = index.empty() ? 1 : index[0];
    auto expect = [x, dim](const Tensors& t) {
      Tensor y = t[0].clone();
      for (int64_t i = 0; i < t[2].numel(); ++i) {
        Shape at = coordinates(t[2].sizes(), i);
        if (x.size()) at[axis(x, dim)] = t[1].data<int64_t>()[at[axis(x, dim)]];
        element(y, at) += t[2].data<double>()[i];
      }
      return Tensors{y};
    };
    s.good.push_back({note,
                      {real(x), index_arg(index, size_at(x, dim)), real(source)},
                      call(dim),
                      expect,
                      "torch.index_add(a, " + std::to_string(dim) + ", b, c)"});
  };
  add("rows", {4, 3}, 0, {2});
  add("columns", {3, 4}, 1, {3});
  add("repeated", {3, 2}, 0, {9});
  add("dim=-1", {2, 3, 4}, -1, {5});
  add("dim=-2", {2, 3, 9}, -2, {5});
  add("rank 4", {2, 3, 2, 3}, 1, {2});
  add("vector", {5}, 0, {7});
  add("by 0-d", {5, 2}, 0, {});
  add("0-d", {}, 0, {1});
  add("no indices", {3, 2}, 0, {0});
  add("no columns", {3, 0}, 0, {2});
  s.bad = {
      bad("index too large", {real({3, 2}), index_range({2}, 3, 4), real({2, 2})}, call(0), "IndexError",
          "index_add: found index"),
      bad("index negative", {real({3, 2}), index_range({2}, -2, -1), real({2, 2})}, call(0), "IndexError",
          "at position 0, expected 0 <= index < 3"),
      bad("source shape", {real({3, 2}), index_arg({2}, 3), real({3, 2})}, call(0), "ShapeError",
          "the source has shape [3, 2], expected [2, 2]"),
      bad("source type", {real({3}), index_arg({2}, 3), index_arg({2}, 3)}, call(0), "DTypeError",
          "the source is i64, the tensor f32"),
      bad("rank", {real({3}), index_arg({2, 2}, 3), real({2})}, call(0), "ShapeError",
          "index_add: the index must be 1-d"),
      bad("0-d many", {real({}), index_range({2}, 0, 0), real({})}, call(0), "ShapeError",
          "a 0-d tensor takes one index, found 2"),
      bad("type", {real({3}), real({2}), real({2})}, call(0), "DTypeError", "index_add: the index must be i64"),
      bad("dim", {real({3}), index_arg({2}, 3), real({2})}, call(1), "IndexError", "index_add: "),
      bad("no index", {real({3}), missing_arg(), real({2})}, call(0), "ValueError", "the index is an undefined tensor"),
      bad("no source", {real({3}), index_arg({2}, 3), missing_arg()}, call(0), "ValueError",
          "the source is an undefined tensor"),
  };
  return s;
}

OpSamples Embedding::samples() {
  OpSamples s{.op = "embedding"};
  auto call = [](std::optional<int64_t> pad = {}) {
    return [pad](const Tensors& t) { return Tensors{embedding(t[1], t[0], pad)}; };
  };
  auto add = [&](std::string note, Shape table, Shape index, std::optional<int64_t> pad = {}) {
    auto expect = [](const Tensors& t) {
      Shape out = t[1].sizes();
      int64_t width = t[0].sizes()[1];
      out.push_back(width);
      Tensor y = zeros(out, DType::f64);
      for (int64_t i = 0; i < y.numel(); ++i)
        y.data<double>()[i] = element(t[0], {t[1].data<int64_t>()[i / width], i % width});
      return Tensors{y};
    };
    s.good.push_back(
        {note,
         {real(table), index_arg(index, table[0])},
         call(pad),
         expect,
         "torch.nn.functional.embedding(b, a" + (pad ? ", padding_idx=" + std::to_string(*pad) : "") + ")"});
  };
  add("vector", {5, 3}, {4});
  add("matrix", {5, 3}, {2, 3});
  add("rank 3", {4, 2}, {2, 2, 3});
  add("0-d", {4, 5}, {});
  add("repeated", {2, 7}, {13});
  add("no indices", {4, 3}, {0, 2});
  add("width 0", {4, 0}, {3});
  add("width 1", {4, 1}, {5});
  add("one row", {1, 3}, {4});
  add("odd", {9, 17}, {3});
  // The padding row's gradient is zero by decree, which differences do not see.
  add("padding", {4, 3}, {9}, 1);
  s.good.back().args[0].grad = false;
  add("padding from the end", {4, 3}, {2, 5}, -1);
  s.good.back().args[0].grad = false;
  s.bad = {
      bad("index too large", {real({3, 2}), index_range({2}, 3, 4)}, call(), "IndexError", "embedding: found index"),
      bad("index negative", {real({3, 2}), index_range({2}, -3, -1)}, call(), "IndexError", "expected 0 <= index < 3"),
      bad("table rank", {real({3}), index_arg({2}, 3)}, call(), "ShapeError",
          "embedding: the table must be [rows, width]"),
      bad("type", {real({3, 2}), real({2})}, call(), "DTypeError", "embedding: the index must be i64"),
      bad("padding", {real({3, 2}), index_arg({2}, 3)}, call(3), "IndexError",
          "embedding: padding index 3 is outside the 3 rows"),
      bad("negative padding", {real({3, 2}), index_arg({2}, 3)}, call(-4), "IndexError", "padding index -4"),
      bad("no index", {real({3, 2}), missing_arg()}, call(), "ValueError", "the index is an undefined tensor"),
      bad("no table", {missing_arg(), index_arg({2}, 3)}, call(), "ValueError", "embedding: "),
  };
  return s;
}

OpSamples Take::samples() {
  OpSamples s{.op = "take", .dtypes = kAllTypes};
  auto call = [](const Tensors& t) { return Tensors{take(t[0], t[1])}; };
  auto add = [&](std::string note, Shape x, Shape index) {
    int64_t n = checked_numel(x, DType::f64);
    auto expect = [n](const Tensors& t) {
      Tensor y = zeros(t[1].sizes(), DType::f64);
      for (int64_t i = 0; i < y.numel(); ++i)
        y.data<double>()[i] = t[0].data<double>()[(t[1].data<int64_t>()[i] + n) % n];
      return Tensors{y};
    };
    s.good.push_back({note, {real(x), index_range(index, -n, n - 1)}, call, expect, "torch.take(a, b)"});
  };
  add("vector", {5}, {4});
  add("matrix", {3, 4}, {7});
  add("matrix by matrix", {3, 4}, {2, 3});
  add("rank 4", {2, 3, 2, 2}, {3, 1, 2});
  add("0-d index", {4}, {});
  add("0-d", {}, {3});
  add("repeated", {2}, {9});
  add("no indices", {3, 2}, {0, 2});
  add("odd", {17}, {33});
  s.bad = {
      bad("index too large", {real({2, 3}), index_range({2}, 6, 8)}, call, "IndexError",
          "at element 0 is outside -6 to 5"),
      bad("index too negative", {real({2, 3}), index_range({2}, -9, -7)}, call, "IndexError",
          "at element 0 is outside -6 to 5"),
      bad("of nothing", {real({0}), index_range({2}, 0, 0)}, call, "IndexError", "take: index 0"),
      bad("type", {real({3}), real({2})}, call, "DTypeError", "take: the index must be i64"),
      bad("no index", {real({3}), missing_arg()}, call, "ValueError", "take: "),
      bad("no tensor", {missing_arg(), index_arg({2}, 3)}, call, "ValueError", "take: "),
  };
  return s;
}

}  // namespace deft
