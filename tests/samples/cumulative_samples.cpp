#include "ops/cumulative.h"

#include <algorithm>

#include "ops/binary.h"
#include "samples/reference.h"

namespace deft {

using namespace reference;

namespace {

Row running_sums(const Row& v) {
  Row out;
  double s = 0;
  for (double x : v) out.push_back(s += x);
  return out;
}
Row running_products(const Row& v) {
  Row out;
  double p = 1;
  for (double x : v) out.push_back(p *= x);
  return out;
}

using ScanFn = Tensor (*)(const Tensor&, int64_t, Site);

OpSamples scan_samples(const char* op, ScanFn f, Row (*row)(const Row&)) {
  OpSamples s{.op = op, .dtypes = kAllTypes, .growth = 16};
  auto add = [&](std::string note, Shape sizes, int64_t dim) {
    s.good.push_back({note,
                      {real(sizes, -1.6, 1.6)},
                      [=](const Tensors& t) -> Tensors { return {f(t[0], dim, Site::current())}; },
                      [=](const Tensors& t) -> Tensors { return {map_rows(t[0], dim, row)}; },
                      std::string("torch.") + op + "(a, " + std::to_string(dim) + ")"});
  };
  add("dim=0", {5, 3}, 0);
  add("dim=1", {3, 5}, 1);
  add("dim=-1", {2, 3, 4}, -1);
  add("dim=1 middle", {2, 3, 4}, 1);
  add("dim=-3", {3, 2, 2}, -3);
  add("vector", {7}, 0);
  add("0-d", {}, 0);
  add("0-d dim=-1", {}, -1);
  add("one element", {1}, 0);
  add("size one", {3, 1}, 1);
  add("four dims", {2, 3, 2, 3}, 1);
  add("no rows", {0, 3}, 1);
  add("empty rows", {3, 0}, 1);
  auto bad = [&](std::string note, Shape sizes, int64_t dim) {
    s.bad.push_back({note,
                     {real(sizes)},
                     [=](const Tensors& t) -> Tensors { return {f(t[0], dim, Site::current())}; },
                     "IndexError",
                     std::string(op) + ": "});
  };
  bad("dim too large", {2, 3}, 2);
  bad("dim too small", {2, 3}, -3);
  bad("0-d dim=1", {}, 1);
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [=](const Tensors& t) -> Tensors { return {f(t[0], 0, Site::current())}; },
                   "ValueError",
                   "undefined"});
  return s;
}

}  // namespace

OpSamples CumSum::samples() {
  auto s = scan_samples("cumsum", &cumsum, running_sums);
  s.good.push_back({"long rows",
                    {real({3, 517}, 0, 1)},
                    [](const Tensors& t) -> Tensors { return {cumsum(t[0], 1)}; },
                    [](const Tensors& t) -> Tensors { return {map_rows(t[0], 1, running_sums)}; },
                    "torch.cumsum(a, 1)"});
  return s;
}

OpSamples CumProd::samples() {
  auto s = scan_samples("cumprod", &cumprod, running_products);
  // Some factors come from another input that is all zeros, so that they have gradients of their own.
  auto zeros_at = [&](std::string note, Shape sizes, Shape zero_sizes, int64_t dim, std::vector<double> where) {
    auto mixed = [=](const Tensors& t) {
      Tensor at = tensor(where, {DType::f64}).to(t[0].dtype()).to(t[0].device());
      if (dim == 0) at = at.unsqueeze(1);
      return t[0] * eq(at, 0).to(at.dtype()) + t[1] * at;
    };
    s.good.push_back({note,
                      {real(sizes), real(zero_sizes, 0, 0)},
                      [=](const Tensors& t) -> Tensors { return {cumprod(mixed(t), dim)}; },
                      [=](const Tensors& t) -> Tensors { return {map_rows(mixed(t), dim, running_products)}; }});
  };
  zeros_at("zero first", {2, 4}, {2, 1}, 1, {1, 0, 0, 0});
  zeros_at("zero inside", {2, 5}, {2, 1}, 1, {0, 0, 1, 0, 0});
  zeros_at("two zeros", {2, 5}, {2, 1}, -1, {0, 1, 0, 1, 0});
  zeros_at("zero last", {2, 4}, {2, 1}, 1, {0, 0, 0, 1});
  zeros_at("zeros down a column", {4, 2}, {1, 2}, 0, {0, 1, 1, 0});
  return s;
}

OpSamples Diff::samples() {
  OpSamples s{.op = "diff", .dtypes = kAllTypes};
  auto add = [&](std::string note, Shape sizes, int64_t n, int64_t dim) {
    s.good.push_back({note,
                      {real(sizes)},
                      [=](const Tensors& t) -> Tensors {
                        bool number = t[0].dtype() != DType::boolean || n < 2;  // bool differs by "not equal"
                        return {diff(number ? t[0] : t[0].to(DType::i64), n, dim)};
                      },
                      [=](const Tensors& t) -> Tensors {
                        Tensor y = t[0];
                        int d = static_cast<int>(dim < 0 ? dim + y.dim() : dim);
                        for (int64_t k = 0; k < n; ++k) {
                          Shape less = y.sizes();
                          less[d] = std::max<int64_t>(less[d] - 1, 0);
                          Tensor z = zeros(less, DType::f64);
                          int64_t inner = 1;
                          for (int i = d + 1; i < y.dim(); ++i) inner *= less[i];
                          for (int64_t i = 0; i < z.numel(); ++i) {
                            int64_t block = less[d] * inner, at = i / block * (block + inner) + i % block;
                            z.data<double>()[i] = y.data<double>()[at + inner] - y.data<double>()[at];
                          }
                          y = z;
                        }
                        return {y};
                      },
                      "torch.diff(a, " + std::to_string(n) + ", " + std::to_string(dim) + ")"});
  };
  s.good.push_back({"more often than there are elements",
                    {real({2, 3})},
                    [](const Tensors& t) -> Tensors { return {diff(t[0], INT64_MAX, 1)}; },
                    [](const Tensors&) -> Tensors {
                      return {zeros({2, 0}, DType::f64)};
                    },
                    "torch.diff(a, 9, 1)"});
  add("vector", {6}, 1, -1);
  add("dim=0", {4, 3}, 1, 0);
  add("dim=1", {3, 5}, 1, 1);
  add("middle", {2, 4, 3}, 1, 1);
  add("n=2", {3, 5}, 2, -1);
  add("n=3 dim=0", {5, 2}, 3, 0);
  add("n=0", {3, 2}, 0, 0);
  add("one element", {1}, 1, 0);
  add("n too large", {2, 3}, 5, 1);
  add("empty", {3, 0}, 1, 1);
  auto bad = [&](std::string note, Shape sizes, int64_t n, int64_t dim, std::string error) {
    s.bad.push_back(
        {note, {real(sizes)}, [=](const Tensors& t) -> Tensors { return {diff(t[0], n, dim)}; }, error, "diff: "});
  };
  bad("0-d", {}, 1, 0, "ShapeError");
  bad("n=-1", {3}, -1, 0, "ValueError");
  bad("dim too large", {3}, 1, 1, "IndexError");
  return s;
}

}  // namespace deft
