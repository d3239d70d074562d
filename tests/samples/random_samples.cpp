#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "core/op.h"
#include "ops/creation.h"
#include "ops/random.h"
#include "ops/sample.h"

namespace deft {

namespace {

constexpr PhiloxState kDraw{7, 3};

Sample dropout_case(Shape sizes, double p) {
  return {.note = to_string(sizes) + " p=" + std::to_string(p).substr(0, 4),
          .args = {real(sizes)},
          .call =
              [p](const Tensors& in) {
                RngScope fixed(kDraw);
                return Tensors{dropout(in[0], p)};
              },
          .expect =
              [p](const Tensors& in) {
                Tensor x = in[0].contiguous();
                Tensor y = x.clone(MemoryFormat::contiguous);
                double* v = y.data<double>();
                for (int64_t i = 0; i < y.numel(); ++i) {
                  auto words = philox(kDraw, static_cast<uint64_t>(i / 4));
                  bool kept = uniform_from_bits(words[static_cast<size_t>(i % 4)]) >= p;
                  v[i] = kept && p < 1 ? v[i] / (1 - p) : 0;
                }
                return Tensors{y};
              }};
}

// The i-th of a draw's uniform numbers, and its normal ones by the formula of Box and Muller.
double uniform_at(int64_t i) {
  return uniform_from_bits(philox(kDraw, static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)]);
}
double normal_at(int64_t i) {
  auto words = philox(kDraw, static_cast<uint64_t>(i / 4));
  size_t pair = static_cast<size_t>(i % 4 / 2 * 2);
  double u = (words[pair] + 0.5) / 4294967296.0, angle = 2 * std::numbers::pi * (words[pair + 1] + 0.5) / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle));
}

// A fill of a copy of the input, whose element i becomes value(i).
template <class Fill, class Value>
Sample fill_case(const std::string& note, Shape sizes, Fill fill, Value value) {
  return {.note = note + " " + to_string(sizes),
          .args = {real(sizes)},
          .call =
              [fill](const Tensors& in) {
                RngScope fixed(kDraw);
                return Tensors{fill(in[0].clone())};
              },
          .expect =
              [value](const Tensors& in) {
                Tensor y = empty(in[0].sizes(), DType::f64);
                for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = value(i, in[0].data<double>()[i]);
                return Tensors{y};
              }};
}
template <class Fill>
BadSample bad_fill(std::string note, Fill fill, std::string text) {
  return {.note = std::move(note),
          .args = {real({4})},
          .call = [fill](const Tensors& in) { return Tensors{fill(in[0].clone())}; },
          .error = "ValueError",
          .text = std::move(text)};
}
const Shape kShapes[] = {{}, {1}, {7}, {3, 5}, {0, 3}, {2, 3, 4, 1}};

BadSample bad_probability(double p) {
  return {.note = "p=" + std::to_string(p),
          .args = {real({4})},
          .call = [p](const Tensors& in) { return Tensors{dropout(in[0], p)}; },
          .error = "ValueError",
          .text = "probability lies in [0, 1]"};
}

}  // namespace

OpSamples Dropout::samples() {
  OpSamples s{.op = "dropout"};
  for (double p : {0.1, 0.5, 0.9, 1.0})
    for (Shape sizes : {Shape{7}, Shape{3, 5}, Shape{2, 3, 4, 5}}) s.good.push_back(dropout_case(sizes, p));
  s.good.push_back(dropout_case({}, 0.25));
  s.good.push_back(dropout_case({0, 3}, 0.25));
  for (double p : {-0.1, 1.5}) s.bad.push_back(bad_probability(p));
  return s;
}

OpSamples RandpermFill::samples() {
  OpSamples s{.op = "randperm_", .dtypes = only(DType::i64), .grad = false};
  for (int64_t n : {0, 1, 2, 7, 64, 1000})
    s.good.push_back({.note = fmt::format("{} numbers", n),
                      .args = {},
                      .call =
                          [n](const Tensors&) {
                            RngScope fixed(kDraw);
                            return Tensors{randperm(n)};
                          },
                      .expect =
                          [n](const Tensors&) {
                            Tensor y = arange(0, n, 1, DType::f64);
                            double* v = y.data<double>();
                            for (int64_t i = n - 1; i >= 1; --i) {  // Fisher-Yates, from the end
                              auto words = philox(kDraw, static_cast<uint64_t>(i));
                              uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
                              auto other = static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(i + 1) >> 64;
                              std::swap(v[i], v[static_cast<int64_t>(other)]);
                            }
                            return Tensors{y};
                          }});
  s.bad.push_back(
      {"negative", {}, [](const Tensors&) { return Tensors{randperm(-1)}; }, "ValueError", "must not be negative"});
  s.bad.push_back({"matrix",
                   {},
                   [](const Tensors&) {
                     Tensor x = zeros({2, 3}, DType::i64);
                     return Tensors{call_inplace<RandpermFill>(Site::current(), {kDraw}, x)};
                   },
                   "ShapeError",
                   "fills a vector"});
  return s;
}

OpSamples UniformFill::samples() {
  auto fill = [](double low, double high) { return [=](Tensor x) { return uniform_(x, low, high); }; };
  OpSamples s{.op = "uniform_"};
  for (Shape sizes : kShapes) {
    s.good.push_back(fill_case("0 to 1", sizes, fill(0, 1), [](int64_t i, double) { return uniform_at(i); }));
    s.good.push_back(
        fill_case("-3 to 2", sizes, fill(-3, 2), [](int64_t i, double) { return -3 + 5 * uniform_at(i); }));
  }
  s.good.push_back(fill_case("one value", {5}, fill(2, 2), [](int64_t, double) { return 2.0; }));
  s.bad = {bad_fill("order", fill(1, 0), "uniform_: needs finite low <= high, found 1 and 0"),
           bad_fill("infinite", fill(0, HUGE_VAL), "finite"), bad_fill("NaN", fill(NAN, 1), "finite")};
  return s;
}

OpSamples NormalFill::samples() {
  auto fill = [](double mean, double std) { return [=](Tensor x) { return normal_(x, mean, std); }; };
  OpSamples s{.op = "normal_"};
  for (Shape sizes : kShapes) {
    s.good.push_back(fill_case("0 1", sizes, fill(0, 1), [](int64_t i, double) { return normal_at(i); }));
    s.good.push_back(
        fill_case("-2 0.5", sizes, fill(-2, 0.5), [](int64_t i, double) { return -2 + 0.5 * normal_at(i); }));
  }
  s.good.push_back(fill_case("std=0", {5}, fill(3, 0), [](int64_t, double) { return 3.0; }));
  s.bad = {bad_fill("std", fill(0, -1), "normal_: needs a finite mean and std >= 0, found 0 and -1"),
           bad_fill("mean", fill(HUGE_VAL, 1), "finite mean"), bad_fill("NaN", fill(0, NAN), "std >= 0")};
  return s;
}

OpSamples RandintFill::samples() {
  // Shape and type come from the input; its values do not matter.
  auto make = [](int64_t low, int64_t high) {
    return [=](const Tensor& x) { return randint(low, high, x.sizes(), TensorOptions(x.dtype(), x.device())); };
  };
  auto value = [](int64_t low, int64_t high) {
    return [=](int64_t i, double) {
      auto words = philox(kDraw, static_cast<uint64_t>(i));
      long double share =
          (static_cast<long double>(words[0]) + static_cast<long double>(words[1]) / 4294967296.0L) / 4294967296.0L;
      return static_cast<double>(low) + static_cast<double>(std::floor(share * static_cast<long double>(high - low)));
    };
  };
  OpSamples s{.op = "randint_", .dtypes = kAllTypes};
  s.grad = s.gradgrad = false;
  for (Shape sizes : kShapes) {
    s.good.push_back(fill_case("0 to 10", sizes, make(0, 10), value(0, 10)));
    s.good.push_back(fill_case("5 to 100", sizes, make(5, 100), value(5, 100)));
  }
  s.good.push_back(fill_case("one value", {5}, make(3, 4), value(3, 4)));
  s.bad = {bad_fill("empty range", make(2, 2), "randint: needs low < high, found 2 and 2"),
           bad_fill("order", make(3, 1), "low < high")};
  return s;
}

OpSamples Bernoulli::samples() {
  auto sample = [](Shape sizes, double low, double high) {
    auto call = [](const Tensor& p) { return bernoulli(p); };
    auto value = [](int64_t i, double p) { return uniform_at(i) < p ? 1.0 : 0.0; };
    Sample s = fill_case("p from " + std::to_string(low).substr(0, 3), sizes, call, value);
    s.args[0].low = low;
    s.args[0].high = high;
    return s;
  };
  OpSamples s{.op = "bernoulli"};
  for (Shape sizes : kShapes) s.good.push_back(sample(sizes, 0, 1));
  for (Shape sizes : {Shape{19}, Shape{2, 3, 5}}) s.good.push_back(sample(sizes, 0.8, 1));
  for (double p : {0.0, 1.0}) {
    s.good.push_back(sample({7}, p, p));
    s.good.back().args[0].grad = false;  // differences would leave [0, 1]
  }
  auto bad = [&](std::string note, double p) {
    return bad_fill(
        std::move(note), [p](const Tensor& x) { return bernoulli(full_like(x, p)); }, "probabilities lie in [0, 1]");
  };
  s.bad = {bad("negative", -0.5), bad("above 1", 1.5), bad("NaN", NAN)};
  return s;
}

}  // namespace deft
