#include "ops/softmax.h"

#include <algorithm>

#include "samples/reference.h"

namespace deft {

using namespace reference;

namespace {

double log_sum(const Row& v, double sign) {
  double m = sign * v[0], sum = 0;
  for (double x : v) m = std::max(m, sign * x);
  for (double x : v) sum += std::exp(sign * x - m);
  return m + std::log(sum);
}
Row softmax_of(const Row& v) {
  Row out;
  for (double x : v) out.push_back(std::exp(x - log_sum(v, 1)));
  return out;
}
Row log_softmax_of(const Row& v) {
  Row out;
  for (double x : v) out.push_back(x - log_sum(v, 1));
  return out;
}
Row softmin_of(const Row& v) {
  Row out;
  for (double x : v) out.push_back(std::exp(-x - log_sum(v, -1)));
  return out;
}

using RowCall = Tensor (*)(const Tensor&, int64_t, Site);

OpSamples row_samples(const char* op, RowCall f, Row (*row)(const Row&)) {
  OpSamples s{.op = op, .growth = 16};
  auto add = [&](std::string note, Shape sizes, int64_t dim, double range = 2) {
    std::string name = std::string(op) == "softmin" ? "torch.nn.functional.softmin" : std::string("torch.") + op;
    s.good.push_back({note,
                      {real(sizes, -range, range)},
                      [=](const Tensors& t) -> Tensors { return {f(t[0], dim, Site::current())}; },
                      [=](const Tensors& t) -> Tensors { return {map_rows(t[0], dim, row)}; },
                      name + "(a, " + std::to_string(dim) + ")"});
  };
  add("dim=0", {5, 3}, 0);
  add("dim=1", {5, 3}, 1);
  add("dim=-1", {2, 3, 7}, -1);
  add("dim=1 middle", {2, 3, 4}, 1);
  add("dim=-3", {2, 3, 4}, -3);
  add("channels", {2, 3, 2, 4}, 1);
  add("last of four", {2, 3, 2, 4}, 3);
  add("five dims", {2, 1, 3, 2, 2}, 2);
  add("0-d", {}, 0);
  add("0-d dim=-1", {}, -1);
  add("one element", {1}, 0);
  add("size one", {3, 1}, 1);
  add("vector", {9}, 0);
  add("no rows", {0, 3}, 1);
  add("empty rows", {3, 0}, 1);
  add("large values", {3, 5}, 1, 80);
  s.good.back().args[0].grad = false;
  add("long rows", {3, 519}, 1);
  add("long columns", {67, 130}, 0);
  auto bad = [&](std::string note, Shape sizes, int64_t dim) {
    s.bad.push_back({note,
                     {real(sizes)},
                     [=](const Tensors& t) -> Tensors { return {f(t[0], dim, Site::current())}; },
                     "IndexError",
                     "softmax: "});
  };
  bad("dim too large", {2, 3}, 2);
  bad("dim too small", {2, 3}, -3);
  bad("0-d dim=1", {}, 1);
  s.bad.push_back({"of integers",
                   {real({3})},
                   [=](const Tensors& t) -> Tensors { return {f(t[0].to(DType::i64), 0, Site::current())}; },
                   "DTypeError",
                   "softmax: does not take i64"});
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [=](const Tensors& t) -> Tensors { return {f(t[0], 0, Site::current())}; },
                   "ValueError",
                   "undefined"});
  return s;
}

}  // namespace

OpSamples Softmax::samples() { return row_samples("softmax", &softmax, softmax_of); }
OpSamples LogSoftmax::samples() {
  auto s = row_samples("log_softmax", &log_softmax, log_softmax_of);
  s.scale = 4;
  return s;
}
OpSamples Softmin::samples() { return row_samples("softmin", &softmin, softmin_of); }

}  // namespace deft
