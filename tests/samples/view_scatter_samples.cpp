#include <algorithm>

#include "ops/creation.h"
#include "ops/sample.h"
#include "ops/view.h"

namespace deft {

OpSamples AsStridedScatter::samples() {
  auto sample = [](std::string note, Shape base, Shape sizes, Shape strides, int64_t offset, std::string torch) {
    auto call = [=](const Tensors& a) { return Tensors{as_strided_scatter(a[0], a[1], sizes, strides, offset)}; };
    auto expect = [=](const Tensors& a) {
      Tensor out = empty(base, DType::f64);
      std::copy_n(a[0].data<double>(), out.numel(), out.data<double>());
      for (int64_t n = 0; n < a[1].numel(); ++n) {
        int64_t rest = n, at = offset;
        for (int d = sizes.size() - 1; d >= 0; --d) {
          at += rest % sizes[d] * strides[d];
          rest /= sizes[d];
        }
        out.data<double>()[at] = a[1].data<double>()[n];
      }
      return Tensors{out};
    };
    return Sample{std::move(note), {real(base), real(sizes)}, call, expect, std::move(torch)};
  };
  auto bad = [](std::string note, Shape base, Shape source, Shape sizes, Shape strides, std::string error,
                std::string text) {
    auto call = [=](const Tensors& a) { return Tensors{as_strided_scatter(a[0], a[1], sizes, strides, 0)}; };
    return BadSample{std::move(note), {real(base), real(source)}, call, std::move(error), std::move(text)};
  };
  OpSamples s{.op = "as_strided_scatter", .dtypes = kAllTypes};
  s.good = {
      sample("every other", {8}, {3}, {2}, 1, "scatter(a, b, (3,), (2,), 1)"),
      sample("block", {4, 5}, {2, 2}, {5, 1}, 6, "scatter(a, b, (2, 2), (5, 1), 6)"),
      sample("column", {3, 4}, {3}, {4}, 2, "scatter(a, b, (3,), (4,), 2)"),
      sample("all", {2, 3}, {3, 2}, {1, 3}, 0, "scatter(a, b, (3, 2), (1, 3), 0)"),
      sample("0-d", {5}, {}, {}, 2, "scatter(a, b, (), (), 2)"),
      sample("nothing", {5}, {0}, {1}, 0, ""),
      sample("diagonal", {3, 3}, {3}, {4}, 0, "scatter(a, b, (3,), (4,), 0)"),
      sample("one", {1, 1}, {1}, {1}, 0, "scatter(a, b, (1,), (1,), 0)"),
  };
  s.bad = {
      bad("source shape", {8}, {4}, {3}, {2}, "ShapeError", "the source has shape [4], the region [3]"),
      bad("too long", {8}, {5}, {5}, {2}, "IndexError", "reach outside the 8 elements"),
  };
  return s;
}

}  // namespace deft
