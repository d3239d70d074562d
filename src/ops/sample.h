// Samples: what tests, benchmarks and the support table know about an op. Defined in tests/samples, which
// tests and the command line link, but not the library.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ops/elementwise.h"

namespace deft {

// How to make one input.
struct Arg {
  enum class Kind : uint8_t {
    real,     // follows the element type under test; uniform in [low, high]
    index,    // i64, uniform in [low, high] (whole numbers)
    boolean,  // bool, half true
    missing,  // an undefined tensor (optional input)
  };
  Shape sizes;
  Kind kind = Kind::real;
  double low = -2, high = 2;
  bool grad = true;        // take part in gradient checks
  double away_from = NAN;  // keep |x - away_from| >= 0.05: kinks of relu, abs, floor ...
  double period = 0;       // with away_from: the same around every multiple of the period (floor, round)
  bool distinct = false;   // all values different and at least 0.05 apart: max, sort, pooling
};
inline Arg real(Shape sizes, double low = -2, double high = 2) { return {.sizes = sizes, .low = low, .high = high}; }
inline Arg index_arg(Shape sizes, int64_t count) {
  return {.sizes = sizes, .kind = Arg::Kind::index, .low = 0, .high = static_cast<double>(count - 1), .grad = false};
}
inline Arg boolean_arg(Shape sizes) { return {.sizes = sizes, .kind = Arg::Kind::boolean, .grad = false}; }
inline Arg missing_arg() { return {.sizes = {}, .kind = Arg::Kind::missing, .grad = false}; }

using Tensors = std::vector<Tensor>;
using SampleFn = std::function<Tensors(const Tensors&)>;

// One way of calling an op. `call` is what a user writes; `expect` computes the same by independent means (plain loops,
// or a composition of simpler ops) from f64 inputs, and may return fewer outputs than call() to leave the rest
// unchecked.
struct Sample {
  std::string note;  // "dim=1 keepdim": names the case
  std::vector<Arg> args;
  SampleFn call;
  SampleFn expect;
  // The same call in Python over inputs a, b, c, d, for the run against PyTorch (tools/torch_diff): "torch.softmax(a,
  // 1)". Empty: torch.<op>(a, b...) for elementwise ops, otherwise no counterpart.
  std::string torch = {};
};

// A call that must throw `error` (class name) with `text` somewhere in its message, and leave its inputs unchanged.
struct BadSample {
  std::string note;
  std::vector<Arg> args;
  SampleFn call;
  std::string error;
  std::string text;
};

struct OpSamples {
  const char* op = "";
  DTypeSet dtypes = kFloats;  // element types for Arg::Kind::real
  // Error bound: eps(dtype) * growth * (|expected| + scale). `growth` grows with the length of sums inside the op.
  double growth = 8;
  double scale = 1;
  bool grad = true;        // check gradients against differences in f64
  bool gradgrad = true;    // and gradients of gradients
  bool may_alias = false;  // a result may share memory with an input though the op is no view (contiguous, to)
  bool any_layout = true;  // run also with transposed, strided, expanded and channels_last inputs
  std::vector<Sample> good = {};
  std::vector<BadSample> bad = {};
};

// All ops of the library: for each line of all_ops.def either Op::samples() or, for elementwise ops, samples made from
// the formula.
std::vector<OpSamples> all_samples();
// The data of the op of that name; nullptr if there is none.
const OpInfo* find_op_info(std::string_view name);
// Ops that all_samples() leaves out, each with the op whose samples cover it ("" if none does: a gap).
struct Uncovered {
  const char* op = "";
  std::string by;
};
std::vector<Uncovered> ops_without_samples();

// Elementwise ops may state the part of the real line where they are defined and smooth (Domain, ops/elementwise.h):
//   static constexpr Domain domain{-0.95, 0.95};
template <class Op>
OpSamples unary_samples();
template <class Op>
OpSamples binary_samples();

}  // namespace deft
