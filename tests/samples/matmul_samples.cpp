#include "ops/creation.h"
#include "ops/matmul.h"
#include "ops/sample.h"
#include "ops/view.h"

namespace deft {

namespace {

const double* values(const Tensor& t) { return t.data<double>(); }

// Element of a dense tensor at an index of the broadcast batch shape: sizes of 1 repeat.
int64_t batch_offset(const Shape& sizes, int rank, const Shape& batch, int64_t flat) {
  int64_t offset = 0, step = 1;
  for (int i = 1; i <= batch.size(); ++i) {
    int64_t at = flat % batch[batch.size() - i];
    flat /= batch[batch.size() - i];
    if (i > rank) continue;
    int64_t size = sizes[rank - i];
    if (size != 1) offset += at * step;
    step *= size;
  }
  return offset;
}

// Three loops over every matrix of the batch.
Tensor naive_matmul(const Tensor& a, const Tensor& b) {
  int ra = a.dim(), rb = b.dim();
  int64_t m = ra > 1 ? a.sizes()[ra - 2] : 1, k = a.sizes()[ra - 1], n = rb > 1 ? b.sizes()[rb - 1] : 1;
  int batch_a = std::max(ra - 2, 0), batch_b = std::max(rb - 2, 0);
  Shape batch;
  for (int i = std::max(batch_a, batch_b); i >= 1; --i) {
    int64_t x = i <= batch_a ? a.sizes()[batch_a - i] : 1, y = i <= batch_b ? b.sizes()[batch_b - i] : 1;
    batch.push_back(x == 1 ? y : x);
  }
  int64_t count = 1;
  for (int64_t s : batch) count *= s;
  Shape sizes = batch;
  if (ra > 1) sizes.push_back(m);
  if (rb > 1) sizes.push_back(n);
  Tensor out = zeros(sizes, DType::f64);
  for (int64_t i = 0; i < count; ++i) {
    const double* x = values(a) + batch_offset(a.sizes(), batch_a, batch, i) * m * k;
    const double* y = values(b) + batch_offset(b.sizes(), batch_b, batch, i) * k * n;
    double* z = out.data<double>() + i * m * n;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t q = 0; q < n; ++q)
        for (int64_t l = 0; l < k; ++l) z[r * n + q] += x[r * k + l] * y[l * n + q];
  }
  return out;
}

using Product = Tensor (*)(const Tensor&, const Tensor&, Site);

Sample product_sample(std::string note, Shape a, Shape b, Product f, std::string torch) {
  return {note,
          {real(a), real(b)},
          [f](const Tensors& t) -> Tensors { return {f(t[0], t[1], Site::current())}; },
          [](const Tensors& t) -> Tensors { return {naive_matmul(t[0], t[1])}; },
          torch};
}
Sample matmul_sample(std::string note, Shape a, Shape b) {
  return product_sample(note, a, b, &matmul, "torch.matmul(a, b)");
}

BadSample bad_product(std::string note, Shape a, Shape b, Product f, std::string error, std::string text) {
  return {note,
          {real(a), real(b)},
          [f](const Tensors& t) -> Tensors { return {f(t[0], t[1], Site::current())}; },
          error,
          text};
}

}  // namespace

OpSamples Matmul::samples() {
  OpSamples s{.op = "matmul", .dtypes = kNumbers, .growth = 64, .scale = 4};
  s.good = {
      matmul_sample("2d 2d", {3, 4}, {4, 5}),
      matmul_sample("1d 1d", {7}, {7}),
      matmul_sample("1d 2d", {4}, {4, 5}),
      matmul_sample("2d 1d", {3, 4}, {4}),
      matmul_sample("1d 3d", {4}, {2, 4, 3}),
      matmul_sample("3d 1d", {2, 3, 4}, {4}),
      matmul_sample("1d 4d", {3}, {2, 2, 3, 2}),
      matmul_sample("4d 1d", {2, 2, 3, 3}, {3}),
      matmul_sample("3d 3d", {2, 3, 4}, {2, 4, 5}),
      matmul_sample("3d 2d", {2, 3, 4}, {4, 5}),
      matmul_sample("2d 3d", {3, 4}, {2, 4, 5}),
      matmul_sample("4d 2d", {2, 3, 2, 4}, {4, 3}),
      matmul_sample("batch broadcast left", {1, 3, 4}, {2, 4, 5}),
      matmul_sample("batch broadcast right", {2, 3, 4}, {1, 4, 2}),
      matmul_sample("batch broadcast both", {2, 1, 3, 2}, {1, 3, 2, 2}),
      matmul_sample("batch broadcast rank", {2, 3, 2, 3}, {3, 3, 2}),
      matmul_sample("batch broadcast inner", {2, 3, 2, 2}, {2, 1, 2, 2}),
      matmul_sample("5d", {2, 1, 2, 2, 3}, {2, 2, 1, 3, 2}),
      matmul_sample("ones", {1, 1}, {1, 1}),
      matmul_sample("one row", {1, 9}, {9, 7}),
      matmul_sample("one column", {9, 7}, {7, 1}),
      matmul_sample("outer", {5, 1}, {1, 6}),
      matmul_sample("odd", {17, 13}, {13, 11}),
      matmul_sample("larger", {37, 41}, {41, 35}),
      matmul_sample("batch of larger", {3, 33, 29}, {3, 29, 31}),
      matmul_sample("shared large right", {5, 19, 23}, {23, 21}),
      matmul_sample("k=0", {3, 0}, {0, 4}),
      matmul_sample("k=0 1d", {0}, {0}),
      matmul_sample("k=0 batch", {2, 3, 0}, {2, 0, 4}),
      matmul_sample("m=0", {0, 4}, {4, 5}),
      matmul_sample("n=0", {3, 4}, {4, 0}),
      matmul_sample("batch 0", {0, 3, 4}, {0, 4, 2}),
      matmul_sample("batch 0 broadcast", {0, 3, 4}, {4, 2}),
      product_sample("mm", {3, 4}, {4, 2}, &mm, "torch.mm(a, b)"),
      product_sample("bmm", {3, 2, 4}, {3, 4, 2}, &bmm, "torch.bmm(a, b)"),
      product_sample("mv", {3, 4}, {4}, &mv, "torch.mv(a, b)"),
      product_sample("dot", {5}, {5}, &dot, "torch.dot(a, b)"),
  };
  s.bad = {
      bad_product("inner sizes", {3, 4}, {5, 2}, &matmul, "ShapeError",
                  "matmul: inner sizes 4 and 5 of shapes [3, 4] and [5, 2]"),
      bad_product("inner size 1 does not broadcast", {3, 1}, {4, 2}, &matmul, "ShapeError", "inner sizes 1 and 4"),
      bad_product("inner sizes 1d", {3}, {4}, &matmul, "ShapeError", "inner sizes 3 and 4"),
      bad_product("0d", {}, {3}, &matmul, "ShapeError", "at least 1 dimension"),
      bad_product("0d right", {3}, {}, &matmul, "ShapeError", "at least 1 dimension"),
      bad_product("batches", {2, 3, 4}, {3, 4, 5}, &matmul, "ShapeError",
                  "matmul: shapes [2] and [3] do not broadcast"),
      bad_product("mm rank", {2, 3, 4}, {4, 5}, &mm, "ShapeError", "mm: operands of shape [2, 3, 4] and [4, 5]"),
      bad_product("bmm rank", {3, 4}, {4, 5}, &bmm, "ShapeError", "bmm: operands of shape"),
      bad_product("bmm batch", {1, 3, 4}, {2, 4, 5}, &bmm, "ShapeError", "bmm: batches of 1 and 2"),
      bad_product("mv rank", {3, 4}, {4, 1}, &mv, "ShapeError", "mv: operands of shape"),
      bad_product("dot rank", {3, 1}, {3}, &dot, "ShapeError", "dot: operands of shape"),
      bad_product("dot size", {3}, {4}, &dot, "ShapeError", "inner sizes 3 and 4"),
      {"dtypes",
       {real({3, 4}), index_arg({4, 5}, 3)},
       [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; },
       "DTypeError",
       "the second operand is i64"},
      {"bool",
       {boolean_arg({3, 4}), boolean_arg({4, 5})},
       [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; },
       "DTypeError",
       "matmul: does not take bool"},
      {"undefined",
       {real({3, 4}), missing_arg()},
       [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; },
       "ValueError",
       "undefined tensor"},
      {"undefined left",
       {missing_arg(), real({3, 4})},
       [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; },
       "ValueError",
       "undefined tensor"},
      {"too many dims",
       {real({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), real({3, 4})},
       [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1])}; },
       "ShapeError",
       "inner sizes"},
  };
  return s;
}

namespace {

Tensors naive_linear(const Tensors& t) {
  const Tensor &x = t[0], &w = t[1];
  int64_t out = w.sizes()[0], in = w.sizes()[1];
  Shape sizes = x.sizes();
  sizes[x.dim() - 1] = out;
  Tensor y = zeros(sizes, DType::f64);
  int64_t rows = out ? y.numel() / out : 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double sum = t[2].defined() ? values(t[2])[o] : 0;
      for (int64_t i = 0; i < in; ++i) sum += values(x)[r * in + i] * values(w)[o * in + i];
      y.data<double>()[r * out + o] = sum;
    }
  return {y};
}

Sample linear_sample(std::string note, Shape x, Shape w, bool bias = true) {
  return {note,
          {real(x), real(w), bias ? real({w[0]}) : missing_arg()},
          [](const Tensors& t) -> Tensors { return {linear(t[0], t[1], t[2])}; },
          &naive_linear,
          bias ? "torch.nn.functional.linear(a, b, c)" : "torch.nn.functional.linear(a, b)"};
}
BadSample bad_linear(std::string note, Arg x, Arg w, Arg bias, std::string error, std::string text) {
  return {note, {x, w, bias}, [](const Tensors& t) -> Tensors { return {linear(t[0], t[1], t[2])}; }, error, text};
}

}  // namespace

OpSamples Linear::samples() {
  OpSamples s{.op = "linear", .dtypes = kNumbers, .growth = 64, .scale = 4};
  s.good = {
      linear_sample("2d", {3, 4}, {5, 4}),
      linear_sample("2d no bias", {3, 4}, {5, 4}, false),
      linear_sample("1d", {4}, {5, 4}),
      linear_sample("1d no bias", {4}, {5, 4}, false),
      linear_sample("3d", {2, 3, 4}, {5, 4}),
      linear_sample("3d no bias", {2, 3, 4}, {2, 4}, false),
      linear_sample("4d", {2, 2, 3, 4}, {3, 4}),
      linear_sample("5d", {2, 1, 2, 2, 3}, {2, 3}),
      linear_sample("one", {1, 1}, {1, 1}),
      linear_sample("one output", {5, 7}, {1, 7}),
      linear_sample("one input", {5, 1}, {6, 1}),
      linear_sample("1x64x64", {1, 64}, {64, 64}),
      linear_sample("odd", {7, 13}, {11, 13}),
      linear_sample("larger", {35, 41}, {37, 41}),
      linear_sample("larger 3d", {3, 17, 33}, {29, 33}),
      linear_sample("in=0", {3, 0}, {4, 0}),
      linear_sample("in=0 no bias", {3, 0}, {4, 0}, false),
      linear_sample("out=0", {3, 4}, {0, 4}),
      linear_sample("rows=0", {0, 4}, {5, 4}),
      linear_sample("rows=0 3d", {2, 0, 4}, {5, 4}),
  };
  s.bad = {
      bad_linear("inner size", real({3, 4}), real({5, 3}), missing_arg(), "ShapeError",
                 "linear: an input of shape [3, 4] does not fit a weight of shape [5, 3]: its last size must be 3"),
      bad_linear("0d input", real({}), real({5, 3}), missing_arg(), "ShapeError", "does not fit a weight"),
      bad_linear("weight rank 1", real({3, 4}), real({4}), missing_arg(), "ShapeError", "the weight must be [out, in]"),
      bad_linear("weight rank 3", real({3, 4}), real({1, 5, 4}), missing_arg(), "ShapeError",
                 "the weight must be [out, in]"),
      bad_linear("bias size", real({3, 4}), real({5, 4}), real({4}), "ShapeError", "a bias of shape [4] does not fit"),
      bad_linear("bias rank", real({3, 4}), real({5, 4}), real({1, 5}), "ShapeError",
                 "a bias of shape [1, 5] does not fit"),
      bad_linear("weight dtype", real({3, 4}), index_arg({5, 4}, 3), missing_arg(), "DTypeError", "the weight is i64"),
      bad_linear("bias dtype", real({3, 4}), real({5, 4}), index_arg({5}, 3), "DTypeError", "the bias is i64"),
      bad_linear("no weight", real({3, 4}), missing_arg(), missing_arg(), "ValueError",
                 "the weight is an undefined tensor"),
      bad_linear("bool", boolean_arg({3, 4}), boolean_arg({5, 4}), missing_arg(), "DTypeError",
                 "linear: does not take bool"),
  };
  return s;
}

namespace {

// beta * x + alpha * product, x broadcast to the product's shape.
Tensors naive_scaled_sum(const Tensors& t, double beta, double alpha) {
  Tensor y = naive_matmul(t[1], t[2]);
  Tensor x = t[0].expand(y.sizes()).contiguous();
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = beta * values(x)[i] + alpha * values(y)[i];
  return {y};
}

using ScaledSum = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar, Site);

Sample scaled_sample(ScaledSum f, const char* name, std::string note, Shape x, Shape a, Shape b, int64_t beta = 1,
                     int64_t alpha = 1) {
  return {note,
          {real(x), real(a), real(b)},
          [=](const Tensors& t) -> Tensors { return {f(t[0], t[1], t[2], beta, alpha, Site::current())}; },
          [=](const Tensors& t) { return naive_scaled_sum(t, static_cast<double>(beta), static_cast<double>(alpha)); },
          std::string("torch.") + name + "(a, b, c, beta=" + std::to_string(beta) + ", alpha=" + std::to_string(alpha) +
              ")"};
}
BadSample bad_scaled(ScaledSum f, std::string note, Arg x, Arg a, Arg b, std::string error, std::string text) {
  return {note,
          {x, a, b},
          [=](const Tensors& t) -> Tensors { return {f(t[0], t[1], t[2], 1, 1, Site::current())}; },
          error,
          text};
}

}  // namespace

OpSamples Addmm::samples() {
  OpSamples s{.op = "addmm", .dtypes = kNumbers, .growth = 64, .scale = 8};
  auto add_sample = [&](std::string note, Shape x, Shape a, Shape b, int64_t beta = 1, int64_t alpha = 1) {
    s.good.push_back(scaled_sample(&addmm, "addmm", note, x, a, b, beta, alpha));
  };
  add_sample("plain", {3, 5}, {3, 4}, {4, 5});
  add_sample("alpha", {3, 5}, {3, 4}, {4, 5}, 1, 3);
  add_sample("beta", {3, 5}, {3, 4}, {4, 5}, 2, 1);
  add_sample("beta=0", {3, 5}, {3, 4}, {4, 5}, 0, 2);
  add_sample("alpha=0", {3, 5}, {3, 4}, {4, 5}, 2, 0);
  add_sample("both", {3, 5}, {3, 4}, {4, 5}, -2, 3);
  add_sample("row", {5}, {3, 4}, {4, 5}, 2, 3);
  add_sample("column", {3, 1}, {3, 4}, {4, 5});
  add_sample("number", {}, {3, 4}, {4, 5}, 3, 2);
  add_sample("odd", {7, 9}, {7, 11}, {11, 9});
  add_sample("k=0", {3, 5}, {3, 0}, {0, 5}, 2, 3);
  add_sample("m=0", {0, 5}, {0, 4}, {4, 5});
  s.bad = {
      bad_scaled(&addmm, "rank", real({3, 5}), real({1, 3, 4}), real({4, 5}), "ShapeError", "addmm: operands of shape"),
      bad_scaled(&addmm, "inner size", real({3, 5}), real({3, 4}), real({3, 5}), "ShapeError", "inner sizes 4 and 3"),
      bad_scaled(&addmm, "summand size", real({3, 4}), real({3, 4}), real({4, 5}), "ShapeError",
                 "addmm: shapes [3, 4] and [3, 5]"),
      bad_scaled(&addmm, "summand larger", real({2, 3, 5}), real({3, 4}), real({4, 5}), "ShapeError",
                 "addmm: a summand of shape [2, 3, 5]"),
      bad_scaled(&addmm, "summand dtype", index_arg({3, 5}, 3), real({3, 4}), real({4, 5}), "DTypeError",
                 "addmm: the summand is i64"),
      bad_scaled(&addmm, "undefined", missing_arg(), real({3, 4}), real({4, 5}), "ValueError",
                 "addmm: an input is an undefined tensor"),
  };
  return s;
}

OpSamples Baddbmm::samples() {
  OpSamples s{.op = "baddbmm", .dtypes = kNumbers, .growth = 64, .scale = 8};
  auto add_sample = [&](std::string note, Shape x, Shape a, Shape b, int64_t beta = 1, int64_t alpha = 1) {
    s.good.push_back(scaled_sample(&baddbmm, "baddbmm", note, x, a, b, beta, alpha));
  };
  add_sample("plain", {2, 3, 5}, {2, 3, 4}, {2, 4, 5});
  add_sample("alpha", {2, 3, 5}, {2, 3, 4}, {2, 4, 5}, 1, 3);
  add_sample("beta", {2, 3, 5}, {2, 3, 4}, {2, 4, 5}, 2, 1);
  add_sample("beta=0", {2, 3, 5}, {2, 3, 4}, {2, 4, 5}, 0, 2);
  add_sample("broadcast", {3, 1}, {2, 3, 4}, {2, 4, 5}, 2, 3);
  add_sample("one", {1, 1, 1}, {1, 1, 1}, {1, 1, 1});
  add_sample("k=0", {2, 3, 5}, {2, 3, 0}, {2, 0, 5});
  add_sample("batch 0", {0, 3, 5}, {0, 3, 4}, {0, 4, 5});
  s.bad = {
      bad_scaled(&baddbmm, "rank", real({3, 5}), real({3, 4}), real({4, 5}), "ShapeError",
                 "baddbmm: operands of shape"),
      bad_scaled(&baddbmm, "batch", real({2, 3, 5}), real({2, 3, 4}), real({1, 4, 5}), "ShapeError",
                 "batches of 2 and 1"),
      bad_scaled(&baddbmm, "summand", real({2, 2, 5}), real({2, 3, 4}), real({2, 4, 5}), "ShapeError",
                 "do not broadcast"),
  };
  return s;
}

OpSamples Outer::samples() {
  OpSamples s{.op = "outer", .dtypes = kAllTypes};
  auto expect = [](const Tensors& t) -> Tensors {
    Tensor y = zeros({t[0].numel(), t[1].numel()}, DType::f64);
    for (int64_t i = 0; i < t[0].numel(); ++i)
      for (int64_t j = 0; j < t[1].numel(); ++j)
        y.data<double>()[i * t[1].numel() + j] = values(t[0])[i] * values(t[1])[j];
    return {y};
  };
  auto call_outer = [](const Tensors& t) -> Tensors { return {outer(t[0], t[1])}; };
  for (auto [n, m] : {std::pair{3, 4}, {1, 1}, {1, 5}, {6, 1}, {7, 9}, {0, 3}, {3, 0}, {33, 17}})
    s.good.push_back({std::to_string(n) + " by " + std::to_string(m),
                      {real({n}), real({m})},
                      call_outer,
                      expect,
                      "torch.outer(a, b)"});
  s.bad = {{"rank", {real({3, 1}), real({4})}, call_outer, "ShapeError", "outer: operands of shape [3, 1] and [4]"},
           {"0d", {real({3}), real({})}, call_outer, "ShapeError", "outer: operands of shape [3] and []"},
           {"undefined", {real({3}), missing_arg()}, call_outer, "ValueError", "undefined tensor"}};
  return s;
}

OpSamples Bilinear::samples() {
  OpSamples s{.op = "bilinear", .dtypes = kNumbers, .growth = 64, .scale = 4};
  auto call_bilinear = [](const Tensors& t) -> Tensors { return {bilinear(t[0], t[1], t[2], t[3])}; };
  auto expect = [](const Tensors& t) -> Tensors {
    int64_t out = t[2].sizes()[0], in1 = t[2].sizes()[1], in2 = t[2].sizes()[2];
    Shape sizes = t[0].sizes();
    sizes[t[0].dim() - 1] = out;
    Tensor y = zeros(sizes, DType::f64);
    for (int64_t r = 0; out && r < y.numel() / out; ++r)
      for (int64_t o = 0; o < out; ++o) {
        double sum = t[3].defined() ? values(t[3])[o] : 0;
        for (int64_t i = 0; i < in1; ++i)
          for (int64_t j = 0; j < in2; ++j)
            sum += values(t[0])[r * in1 + i] * values(t[2])[(o * in1 + i) * in2 + j] * values(t[1])[r * in2 + j];
        y.data<double>()[r * out + o] = sum;
      }
    return {y};
  };
  auto add_sample = [&](std::string note, Shape a, Shape b, Shape w, bool bias) {
    s.good.push_back({note,
                      {real(a, -1, 1), real(b, -1, 1), real(w), bias ? real({w[0]}) : missing_arg()},
                      call_bilinear,
                      expect,
                      bias ? "torch.nn.functional.bilinear(a, b, c, d)" : "torch.nn.functional.bilinear(a, b, c)"});
  };
  add_sample("2d", {3, 4}, {3, 2}, {5, 4, 2}, true);
  add_sample("2d no bias", {3, 4}, {3, 2}, {5, 4, 2}, false);
  add_sample("1d", {4}, {2}, {3, 4, 2}, true);
  add_sample("3d", {2, 3, 2}, {2, 3, 3}, {2, 2, 3}, true);
  add_sample("one", {1, 1}, {1, 1}, {1, 1, 1}, true);
  add_sample("odd", {5, 3}, {5, 7}, {3, 3, 7}, false);
  add_sample("rows=0", {0, 3}, {0, 2}, {4, 3, 2}, true);
  add_sample("in=0", {2, 0}, {2, 3}, {4, 0, 3}, true);
  s.bad = {
      {"weight rank",
       {real({3, 4}), real({3, 2}), real({4, 2}), missing_arg()},
       call_bilinear,
       "ShapeError",
       "the weight must be"},
      {"first size",
       {real({3, 5}), real({3, 2}), real({5, 4, 2}), missing_arg()},
       call_bilinear,
       "ShapeError",
       "do not fit a weight"},
      {"second size",
       {real({3, 4}), real({3, 3}), real({5, 4, 2}), missing_arg()},
       call_bilinear,
       "ShapeError",
       "do not fit a weight"},
      {"rows",
       {real({3, 4}), real({2, 2}), real({5, 4, 2}), missing_arg()},
       call_bilinear,
       "ShapeError",
       "differ before their last"},
      {"bias",
       {real({3, 4}), real({3, 2}), real({5, 4, 2}), real({4})},
       call_bilinear,
       "ShapeError",
       "a bias of shape [4]"},
      {"bias dtype",
       {real({3, 4}), real({3, 2}), real({5, 4, 2}), index_arg({5}, 3)},
       call_bilinear,
       "DTypeError",
       "the bias is i64"},
  };
  return s;
}

}  // namespace deft
