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

}  // namespace deft
