// What the tests of core share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "core/graph_stats.h"
#include "core/tensor.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/random.h"

namespace deft {

inline std::vector<double> values(const Tensor& t) {
  return t.defined() ? t.to_vector<double>() : std::vector<double>{NAN};
}
#define EXPECT_VALUES(tensor, ...) EXPECT_EQ(values(tensor), (std::vector<double>{__VA_ARGS__}))

// Distinct values of both signs, the same in every run.
inline Tensor sample(IntList sizes, uint64_t seed = 1, TensorOptions options = {DType::f64}) {
  Shape shape(sizes);
  Tensor t = empty(shape, DType::f64);
  for (int64_t i = 0; i < t.numel(); ++i) {
    auto bits = philox({seed, 0}, static_cast<uint64_t>(i));
    t.data<double>()[i] = uniform_from_bits(bits[0], bits[1]) * 2 - 1;
  }
  Tensor out = t.to(options.dtype);
  if (options.requires_grad) out.requires_grad_();
  return out;
}
inline Tensor leaf(IntList sizes, uint64_t seed = 1) { return sample(sizes, seed, with_grad(DType::f64)); }

// Equal up to the rounding of a few operations.
inline void expect_close(const Tensor& a, const Tensor& b, const std::string& what = "",
                         double tolerance = 64 * 0x1p-52) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  std::vector<double> x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) {
    double error = std::abs(x[i] - y[i]);
    if (!(error <= tolerance * (1 + std::abs(y[i]))))
      ADD_FAILURE() << what << " at " << i << ": " << x[i] << " and " << y[i];
  }
}

// The message of the E that f throws.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}
template <class E, class F>
void expect_error(F&& f, const std::string& part) {
  std::string text = message_of<E>(f);
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in \"" << text << "\"";
}

// What is alive.
struct Alive {
  int64_t bytes = memory_live().total;
  int64_t nodes = graph_stats().live_nodes;
  int64_t saved = graph_stats().saved_bytes;
  bool operator==(const Alive&) const = default;
  friend void PrintTo(const Alive& a, std::ostream* out) {
    *out << a.bytes << " bytes, " << a.nodes << " nodes, " << a.saved << " saved bytes";
  }
};
template <class F>
void expect_leaves_nothing(F&& f) {
  Alive before;
  f();
  EXPECT_EQ(Alive(), before);
}
inline int64_t nodes_made_by(auto&& f) {
  int64_t before = graph_stats().live_nodes;
  auto kept = f();
  return graph_stats().live_nodes - before;
}

}  // namespace deft
