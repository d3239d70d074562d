#include "ops/packed_linear.h"

#include "ops/activation.h"
#include "ops/binary.h"
#include "ops/matmul.h"
#include "ops/sample.h"
#include "ops/unary.h"

namespace deft {

namespace {

Tensor same(const Tensor& x) { return x; }
Tensor gelu_erf(const Tensor& x) { return deft::gelu(x); }
Tensor gelu_by_tanh(const Tensor& x) { return deft::gelu(x, GeluApproximation::tanh); }
Tensor silu_of(const Tensor& x) { return deft::silu(x); }
Tensor relu_of(const Tensor& x) { return x.relu(); }
Tensor sigmoid_of(const Tensor& x) { return x.sigmoid(); }
Tensor tanh_of(const Tensor& x) { return x.tanh(); }

Sample sample(std::string note, Shape x, Shape w, bool bias, bool residual,
              FusedActivation activation = FusedActivation::none, Tensor (*expected)(const Tensor&) = same) {
  Shape out = x;
  out[out.size() - 1] = w[0];
  return {note,
          {real(x), real(w), bias ? real({w[0]}) : missing_arg(), residual ? real(out) : missing_arg()},
          [activation](const Tensors& t) -> Tensors { return {PackedLinear(t[1], t[2])(t[0], activation, t[3])}; },
          [expected](const Tensors& t) -> Tensors {
            Tensor y = linear(t[0], t[1], t[2]);
            return {expected(t[3].defined() ? y + t[3] : y)};
          }};
}

BadSample bad(std::string note, Arg x, Arg w, Arg bias, Arg residual, std::string error, std::string text) {
  return {note,
          {x, w, bias, residual},
          [](const Tensors& t) -> Tensors { return {PackedLinear(t[1], t[2])(t[0], FusedActivation::none, t[3])}; },
          error,
          text};
}

}  // namespace

OpSamples FusedLinear::samples() {
  OpSamples s{.op = "fused_linear", .growth = 64, .scale = 4, .grad = false, .gradgrad = false};
  using enum FusedActivation;
  s.good = {
      sample("plain", {3, 4}, {5, 4}, false, false),
      sample("bias", {3, 4}, {5, 4}, true, false),
      sample("bias residual", {3, 4}, {5, 4}, true, true),
      sample("relu", {3, 4}, {5, 4}, true, true, relu, relu_of),
      sample("gelu", {9, 13}, {17, 13}, true, false, gelu, gelu_erf),
      sample("gelu tanh", {9, 13}, {17, 13}, false, false, gelu_tanh, gelu_by_tanh),
      sample("silu residual", {9, 13}, {17, 13}, false, true, silu, silu_of),
      sample("sigmoid", {2, 3, 4}, {5, 4}, true, false, sigmoid, sigmoid_of),
      sample("tanh", {2, 3, 4}, {5, 4}, true, true, tanh, tanh_of),
      sample("1d", {4}, {5, 4}, true, true),
      sample("1x64x64", {1, 64}, {64, 64}, true, false, relu, relu_of),
      sample("larger", {35, 41}, {37, 41}, true, true, relu, relu_of),
      sample("one", {1, 1}, {1, 1}, true, true),
      sample("in=0", {3, 0}, {4, 0}, true, true, relu, relu_of),
      sample("out=0", {3, 4}, {0, 4}, true, false),
      sample("rows=0", {0, 4}, {5, 4}, true, true),
  };
  const Arg no = missing_arg();
  s.bad = {
      bad("inner size", real({3, 4}), real({5, 3}), no, no, "ShapeError", "its last size must be 3"),
      bad("weight rank", real({3, 4}), real({4}), no, no, "ShapeError", "the weight must be [out, in]"),
      bad("bias size", real({3, 4}), real({5, 4}), real({4}), no, "ShapeError", "a bias of shape [4] does not fit"),
      bad("residual size", real({3, 4}), real({5, 4}), no, real({3, 4}), "ShapeError", "the residual is"),
      bad("no weight", real({3, 4}), no, no, no, "ValueError", "undefined tensor"),
      bad("integers", real({3, 4}), index_arg({5, 4}, 3), no, no, "DTypeError", "does not take i64 weights"),
  };
  return s;
}

}  // namespace deft
