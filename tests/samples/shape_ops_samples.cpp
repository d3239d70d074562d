#include "ops/binary.h"
#include "ops/shape_ops.h"
#include "samples/reference.h"

namespace deft {

namespace {

using reference::build;
using reference::element;
using reference::python_list;
using TensorFn = std::function<Tensor(const Tensor&)>;
using FromFn = std::function<Shape(const Shape&)>;

// A result whose element i is element from(i) of x.
Sample moved(std::string note, Shape in, Shape out, TensorFn call, FromFn from, std::string torch) {
  return {std::move(note),
          {real(in)},
          [call](const Tensors& t) { return Tensors{call(t[0])}; },
          [out, from](const Tensors& t) {
            return Tensors{build(out, [&](const Shape& at) { return element(t[0], from(at)); })};
          },
          std::move(torch)};
}
BadSample bad(std::string note, std::vector<Arg> args, SampleFn call, std::string error, std::string text) {
  return {std::move(note), std::move(args), std::move(call), std::move(error), std::move(text)};
}
BadSample bad_one(std::string note, Shape in, TensorFn call, std::string error, std::string text) {
  return bad(
      std::move(note), {real(in)}, [call](const Tensors& t) { return Tensors{call(t[0])}; }, std::move(error),
      std::move(text));
}

std::vector<Arg> reals(const std::vector<Shape>& shapes) {
  std::vector<Arg> args;
  for (const Shape& s : shapes) args.push_back(real(s));
  return args;
}
std::string letters(size_t n) {
  std::string s = "[";
  for (size_t i = 0; i < n; ++i) s += std::string(i ? ", " : "") + static_cast<char>('a' + i);
  return s + "]";
}

SampleFn cat_call(int64_t dim) {
  return [dim](const Tensors& t) { return Tensors{cat(t, dim)}; };
}
Sample cat_sample(std::string note, std::vector<Shape> shapes, int64_t dim, Shape out) {
  auto expect = [dim, out](const Tensors& t) {
    Tensor y = zeros(out, DType::f64);
    int d = static_cast<int>(dim < 0 ? dim + out.size() : dim);
    int64_t start = 0;
    for (const Tensor& x : t) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        Shape at = reference::coordinates(x.sizes(), i);
        at[d] += start;
        element(y, at) = x.data<double>()[i];
      }
      if (x.dim() == out.size()) start += x.sizes()[d];
    }
    return Tensors{y};
  };
  std::string torch = "torch.cat(" + letters(shapes.size()) + ", " + std::to_string(dim) + ")";
  return {std::move(note), reals(shapes), cat_call(dim), expect, torch};
}

}  // namespace

OpSamples Cat::samples() {
  OpSamples s{.op = "cat", .dtypes = kAllTypes};
  s.good = {
      cat_sample("rows", {{2, 3}, {4, 3}}, 0, {6, 3}),
      cat_sample("columns", {{3, 2}, {3, 5}}, 1, {3, 7}),
      cat_sample("dim=-1", {{2, 2, 3}, {2, 2, 1}, {2, 2, 2}}, -1, {2, 2, 6}),
      cat_sample("dim=-3", {{1, 2, 3}, {2, 2, 3}}, -3, {3, 2, 3}),
      cat_sample("middle of rank 4", {{2, 1, 3, 2}, {2, 3, 3, 2}}, 1, {2, 4, 3, 2}),
      cat_sample("vectors", {{5}, {1}, {7}}, 0, {13}),
      cat_sample("one tensor", {{3, 2}}, 1, {3, 2}),
      cat_sample("empty part", {{0, 3}, {2, 3}}, 0, {2, 3}),
      cat_sample("all empty", {{0}, {0}}, 0, {0}),
      cat_sample("empty other dim", {{2, 0}, {3, 0}}, 0, {5, 0}),
      cat_sample("empty vector is skipped", {{0}, {2, 3}}, 1, {2, 3}),
      cat_sample("empty vector last", {{2, 3}, {0}, {2, 1}}, -1, {2, 4}),
      cat_sample("four", {{1, 2}, {2, 2}, {3, 2}, {1, 2}}, 0, {7, 2}),
      cat_sample("odd", {{17, 3}, {17, 5}}, 1, {17, 8}),
  };
  s.good.push_back({"same tensor twice",
                    {real({2, 2})},
                    [](const Tensors& t) {
                      return Tensors{cat({t[0], t[0]}, 1)};
                    },
                    [](const Tensors& t) {
                      return Tensors{build({2, 4}, [&](const Shape& at) { return element(t[0], {at[0], at[1] % 2}); })};
                    },
                    "torch.cat([a, a], 1)"});
  s.good.push_back({"types promote",
                    {real({3}), index_arg({2}, 5)},
                    cat_call(0),
                    [](const Tensors& t) {
                      return Tensors{build({5}, [&](const Shape& at) {
                        return at[0] < 3 ? element(t[0], at) : static_cast<double>(t[1].data<int64_t>()[at[0] - 3]);
                      })};
                    },
                    "torch.cat([a, b], 0)"});
  s.bad = {
      bad(
          "none", {}, [](const Tensors&) { return Tensors{cat(std::vector<Tensor>{}, 0)}; }, "ValueError",
          "cat: needs at least one"),
      bad("undefined", {real({2}), missing_arg()}, cat_call(0), "ValueError", "undefined"),
      bad("0-d", reals({{}, {}}), cat_call(0), "ShapeError", "use stack()"),
      bad("0-d second", reals({{2}, {}}), cat_call(0), "ShapeError", "different ranks"),
      bad("ranks", reals({{2, 3}, {2, 3, 1}}), cat_call(0), "ShapeError", "different ranks"),
      bad("other size", reals({{2, 3}, {2, 4}}), cat_call(0), "ShapeError", "differ outside dimension 0"),
      bad("dim", reals({{2, 3}, {2, 3}}), cat_call(2), "IndexError", "cat: "),
      bad("negative dim", reals({{2, 3}, {2, 3}}), cat_call(-3), "IndexError", "cat: "),
  };
  return s;
}

OpSamples Stack::samples() {
  OpSamples s{.op = "stack", .dtypes = kAllTypes};
  auto call = [](int64_t dim) { return [dim](const Tensors& t) { return Tensors{stack(t, dim)}; }; };
  auto add = [&](std::string note, Shape each, size_t count, int64_t dim) {
    int d = static_cast<int>(dim < 0 ? dim + each.size() + 1 : dim);
    Shape out = each;
    out.insert(d, static_cast<int64_t>(count));
    s.good.push_back({note, reals(std::vector<Shape>(count, each)), call(dim),
                      [d, out](const Tensors& t) {
                        return Tensors{build(out, [&](Shape at) {
                          const Tensor& from = t[static_cast<size_t>(at[d])];
                          at.erase(d);
                          return element(from, at);
                        })};
                      },
                      "torch.stack(" + letters(count) + ", " + std::to_string(dim) + ")"});
  };
  add("rows", {3}, 2, 0);
  add("columns", {3}, 2, 1);
  add("dim=-1", {2, 3}, 3, -1);
  add("dim=-3", {2, 3}, 2, -3);
  add("0-d", {}, 3, 0);
  add("0-d dim=-1", {}, 2, -1);
  add("one", {2, 2}, 1, 1);
  add("empty", {0, 3}, 2, 1);
  add("middle", {2, 3, 5}, 4, 2);
  add("odd", {7}, 3, 0);
  s.bad = {
      bad(
          "none", {}, [](const Tensors&) { return Tensors{stack(std::vector<Tensor>{}, 0)}; }, "ValueError",
          "stack: needs"),
      bad("shapes", reals({{2, 3}, {3, 2}}), call(0), "ShapeError", "stack: shapes [2, 3] and [3, 2] differ"),
      bad("undefined", {real({2}), missing_arg()}, call(0), "ValueError", "stack: "),
      bad("undefined first", {missing_arg(), real({2})}, call(0), "ValueError", "stack: "),
      bad("dim", reals({{2}, {2}}), call(2), "IndexError", "stack: "),
      bad("negative dim", reals({{2}, {2}}), call(-3), "IndexError", "stack: "),
  };
  return s;
}

OpSamples Repeat::samples() {
  OpSamples s{.op = "repeat", .dtypes = kAllTypes};
  auto add = [&](std::string note, Shape in, std::vector<int64_t> counts) {
    Shape out;
    int lead = static_cast<int>(counts.size()) - in.size();
    for (int i = 0; i < static_cast<int>(counts.size()); ++i)
      out.push_back(counts[static_cast<size_t>(i)] * (i < lead ? 1 : in[i - lead]));
    auto from = [in, lead](const Shape& at) {
      Shape source = in;
      for (int i = 0; i < in.size(); ++i) source[i] = at[lead + i] % in[i];
      return source;
    };
    s.good.push_back(moved(
        note, in, out, [counts](const Tensor& x) { return repeat(x, counts); }, from,
        "a.repeat(" + python_list(counts) + ")"));
  };
  add("vector", {3}, {2});
  add("rows", {2, 3}, {3, 1});
  add("columns", {2, 3}, {1, 2});
  add("both", {2, 3}, {2, 3});
  add("new dim", {3}, {4, 2});
  add("two new dims", {2}, {2, 3, 1});
  add("0-d", {}, {3});
  add("0-d to 0-d", {}, {});
  add("count 0", {2, 3}, {0, 2});
  add("of nothing", {0, 2}, {3, 2});
  add("once", {5}, {1});
  add("rank 4", {1, 2, 1, 3}, {2, 1, 3, 2});
  s.bad = {
      bad_one(
          "too few counts", {2, 3}, [](const Tensor& x) { return repeat(x, {2}); }, "ShapeError",
          "repeat: 1 counts given"),
      bad_one(
          "negative", {2, 3},
          [](const Tensor& x) {
            return repeat(x, {-1, 2});
          },
          "ValueError", "repeat: a count must not be"),
      bad_one(
          "too many dims", {2},
          [](const Tensor& x) {
            return repeat(x, {1, 1, 1, 1, 1, 1, 1});
          },
          "ShapeError", "at most 6"),
      bad_one(
          "overflow", {2}, [](const Tensor& x) { return repeat(x, {INT64_MAX}); }, "ShapeError", ""),
      bad(
          "undefined", {missing_arg()}, [](const Tensors& t) { return Tensors{repeat(t[0], {2})}; }, "ValueError",
          "repeat: "),
  };
  return s;
}

OpSamples RepeatInterleave::samples() {
  OpSamples s{.op = "repeat_interleave", .dtypes = kAllTypes};
  auto call = [](int64_t count, int64_t dim) {
    return [=](const Tensor& x) { return repeat_interleave(x, count, dim); };
  };
  auto add = [&](std::string note, Shape in, int64_t count, int64_t dim) {
    int d = static_cast<int>(dim < 0 ? dim + in.size() : dim);
    Shape out = in;
    out[d] *= count;
    auto from = [d, count](Shape at) {
      at[d] /= count;
      return at;
    };
    s.good.push_back(moved(note, in, out, call(count, dim), from,
                           "a.repeat_interleave(" + std::to_string(count) + ", " + std::to_string(dim) + ")"));
  };
  add("vector", {3}, 2, 0);
  add("rows", {2, 3}, 3, 0);
  add("columns", {2, 3}, 2, 1);
  add("dim=-1", {2, 2, 3}, 2, -1);
  add("dim=-2", {2, 3, 2}, 4, -2);
  add("once", {4}, 1, 0);
  add("never", {4, 2}, 0, 0);
  add("of nothing", {0, 3}, 2, 0);
  add("rank 4", {2, 1, 3, 2}, 3, 2);
  s.bad = {
      bad_one("negative", {3}, call(-1, 0), "ValueError",
              "repeat_interleave: the count must not be negative, found -1"),
      bad_one("0-d", {}, call(2, 0), "ShapeError", "repeat_interleave: a 0-d tensor"),
      bad_one("dim", {3}, call(2, 1), "IndexError", "repeat_interleave: "),
      bad_one("overflow", {3}, call(INT64_MAX, 0), "ShapeError", ""),
      bad(
          "undefined", {missing_arg()}, [](const Tensors& t) { return Tensors{repeat_interleave(t[0], 2, 0)}; },
          "ValueError", "repeat_int"),
  };
  return s;
}

OpSamples Flip::samples() {
  OpSamples s{.op = "flip", .dtypes = kAllTypes};
  auto call = [](std::vector<int64_t> dims) { return [dims](const Tensor& x) { return flip(x, dims); }; };
  auto add = [&](std::string note, Shape in, std::vector<int64_t> dims) {
    auto from = [in, dims](Shape at) {
      for (int64_t d : dims) {
        int i = static_cast<int>(d < 0 ? d + in.size() : d);
        if (in.size()) at[i] = in[i] - 1 - at[i];
      }
      return at;
    };
    s.good.push_back(moved(note, in, in, call(dims), from, "a.flip(" + python_list(dims) + ")"));
  };
  add("vector", {5}, {0});
  add("rows", {3, 4}, {0});
  add("columns", {3, 4}, {1});
  add("both", {3, 4}, {0, 1});
  add("dim=-1", {2, 3, 4}, {-1});
  add("outer and inner", {2, 3, 4}, {0, -1});
  add("no dims", {2, 3}, {});
  add("size 1", {1, 5, 1}, {0, 2});
  add("of nothing", {0, 3}, {0, 1});
  add("0-d", {}, {});
  add("rank 4", {2, 3, 2, 3}, {1, 3});
  add("odd", {17, 3}, {0});
  s.bad = {
      bad_one("twice", {2, 3}, call({0, -2}), "IndexError", "flip: dimension -2 is named twice"),
      bad_one("dim", {2, 3}, call({2}), "IndexError", "flip: "),
      bad_one("negative dim", {2, 3}, call({-3}), "IndexError", "flip: "),
      bad(
          "undefined", {missing_arg()}, [](const Tensors& t) { return Tensors{flip(t[0], {0})}; }, "ValueError",
          "flip: "),
  };
  return s;
}

OpSamples Roll::samples() {
  OpSamples s{.op = "roll", .dtypes = kAllTypes};
  auto call = [](int64_t shift, int64_t dim) { return [=](const Tensor& x) { return roll(x, shift, dim); }; };
  auto add = [&](std::string note, Shape in, int64_t shift, int64_t dim) {
    int d = static_cast<int>(dim < 0 ? dim + in.size() : dim);
    auto from = [in, d, shift](Shape at) {
      int64_t n = in[d];
      at[d] = ((at[d] - shift) % n + n) % n;
      return at;
    };
    s.good.push_back(moved(note, in, in, call(shift, dim), from,
                           "a.roll(" + std::to_string(shift) + ", " + std::to_string(dim) + ")"));
  };
  add("by 1", {5}, 1, 0);
  add("by -1", {5}, -1, 0);
  add("by 0", {5}, 0, 0);
  add("by the size", {4}, 4, 0);
  add("past the size", {4}, 7, 0);
  add("far back", {4}, -11, 0);
  add("rows", {3, 4}, 2, 0);
  add("dim=-1", {3, 4}, 3, -1);
  add("middle", {2, 5, 3}, -2, 1);
  add("of nothing", {0, 3}, 1, 0);
  add("size 1", {1, 3}, 5, 0);
  add("rank 4", {2, 3, 2, 3}, 1, -3);
  s.bad = {
      bad_one("0-d", {}, call(1, 0), "ShapeError", "roll: a 0-d tensor"),
      bad_one("dim", {3}, call(1, 1), "IndexError", "roll: "),
      bad_one("negative dim", {3}, call(1, -2), "IndexError", "roll: "),
      bad(
          "undefined", {missing_arg()}, [](const Tensors& t) { return Tensors{roll(t[0], 1, 0)}; }, "ValueError",
          "roll: "),
  };
  return s;
}

OpSamples Triangle::samples() {
  OpSamples s{.op = "tril", .dtypes = kAllTypes};
  auto call = [](int64_t k, bool upper) {
    return [=](const Tensors& t) { return Tensors{upper ? triu(t[0], k) : tril(t[0], k)}; };
  };
  auto add = [&](std::string note, Shape in, int64_t k, bool upper) {
    auto expect = [in, k, upper](const Tensors& t) {
      return Tensors{build(in, [&](const Shape& at) {
        int64_t above = at[in.size() - 1] - at[in.size() - 2];
        bool kept = upper ? above >= k : above <= k;
        return kept ? element(t[0], at) : 0;
      })};
    };
    s.good.push_back({(upper ? "upper " : "lower ") + note,
                      {real(in)},
                      call(k, upper),
                      expect,
                      std::string(upper ? "a.triu(" : "a.tril(") + std::to_string(k) + ")"});
  };
  for (bool upper : {false, true}) {
    add("square", {4, 4}, 0, upper);
    add("above", {4, 5}, 1, upper);
    add("below", {5, 4}, -2, upper);
    add("far above", {3, 3}, 7, upper);
    add("far below", {3, 3}, -7, upper);
    add("batch", {2, 3, 3}, 0, upper);
    add("rank 4", {2, 1, 3, 5}, 2, upper);
    add("one", {1, 1}, 0, upper);
    add("row", {1, 7}, 3, upper);
    add("no rows", {0, 3}, 0, upper);
    add("no columns", {3, 0}, 0, upper);
  }
  add("widest", {3, 3}, INT64_MAX, false);
  add("lowest", {3, 3}, INT64_MIN, true);
  s.good[s.good.size() - 1].torch = s.good[s.good.size() - 2].torch = "";
  s.bad = {
      bad("0-d", {real({})}, call(0, false), "ShapeError", "tril: needs at least 2 dimensions, found shape []"),
      bad("vector", {real({3})}, call(0, true), "ShapeError", "triu: needs at least 2 dimensions, found shape [3]"),
      bad("undefined", {missing_arg()}, call(0, true), "ValueError", "undefined"),
  };
  return s;
}

OpSamples OneHot::samples() {
  OpSamples s{.op = "one_hot", .dtypes = only(DType::i64), .grad = false};
  auto call = [](int64_t classes) { return [classes](const Tensors& t) { return Tensors{one_hot(t[0], classes)}; }; };
  auto add = [&](std::string note, Shape in, int64_t count, int64_t classes) {
    auto expect = [classes](const Tensors& t) {
      const int64_t* v = t[0].data<int64_t>();
      int64_t n = classes;
      if (classes == -1)
        for (int64_t i = 0; i < t[0].numel(); ++i) n = std::max(n, v[i] + 1);
      Shape out = t[0].sizes();
      out.push_back(n);
      Tensor y = zeros(out, DType::f64);
      for (int64_t i = 0; i < t[0].numel(); ++i) y.data<double>()[i * n + v[i]] = 1;
      return Tensors{y};
    };
    s.good.push_back({note,
                      {index_arg(in, count)},
                      call(classes),
                      expect,
                      "torch.nn.functional.one_hot(a, " + std::to_string(classes) + ")"});
  };
  add("vector", {5}, 3, 3);
  add("classes unused", {4}, 2, 7);
  add("matrix", {2, 3}, 4, 4);
  add("rank 3", {2, 3, 2}, 5, 5);
  add("0-d", {}, 3, 3);
  add("empty", {0, 2}, 3, 3);
  add("counted", {6}, 4, -1);
  add("counted matrix", {3, 3}, 6, -1);
  add("one class", {4}, 1, 1);
  add("odd", {17}, 9, 9);
  auto number = [](double low, double high) {
    return Arg{.sizes = {3}, .kind = Arg::Kind::index, .low = low, .high = high, .grad = false};
  };
  s.bad = {
      bad("class too large", {number(5, 7)}, call(5), "IndexError", "is outside 0 to 4"),
      bad("negative class", {number(-2, -1)}, call(5), "IndexError", "at element 0 is outside 0 to 4"),
      bad("negative class, counted", {number(-2, -1)}, call(-1), "IndexError",
          "one_hot: class numbers must not be negative"),
      bad("no classes", {number(0, 2)}, call(0), "ValueError", "must be positive, found 0"),
      bad("negative count", {number(0, 2)}, call(-2), "ValueError", "must be positive, found -2"),
      bad("empty, counted", {index_arg({0}, 3)}, call(-1), "ValueError", "of an empty tensor is unknown"),
      bad("type", {real({3})}, call(3), "DTypeError", "one_hot: "),
      bad("type, counted", {real({3})}, call(-1), "DTypeError", "one_hot: class numbers are i64, found f32"),
      bad("undefined", {missing_arg()}, call(3), "ValueError", "one_hot: "),
  };
  return s;
}

}  // namespace deft
