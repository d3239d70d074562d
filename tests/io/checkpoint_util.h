// A state with values of all kinds, another one for every step, and how to compare two.
#pragma once

#include <limits>

#include "io/checkpoint.h"
#include "io_util.h"

namespace deft::io {

inline State example(int64_t step = 7) {
  RngScope rng({static_cast<uint64_t>(step), 0});
  State s;
  s.tensors = {{"model.w", randn({4, 5})}, {"model.steps", full({}, step, DType::i64)}, {"empty", zeros({0, 3})}};
  s.tensors.push_back({"half", randn({3}).to(DType::bf16)});
  s.values = {{"flag", true},
              {"count", int64_t{-5}},
              {"huge", std::numeric_limits<int64_t>::min()},
              {"rate", 0.1},
              {"tiny", 5e-324},
              {"inf", -std::numeric_limits<double>::infinity()},
              {"text", std::string("a \"quoted\" [text]\nö")},
              {"ints", std::vector<int64_t>{1, -2}},
              {"doubles", std::vector<double>{0.1, -1e300}},
              {"texts", std::vector<std::string>{"", "3:x", "y"}},
              {"none", std::vector<double>{}}};
  return s;
}

inline void expect_same(const State& a, const State& b) {
  EXPECT_EQ(a.values, b.values);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const NamedTensor& t : a.tensors) {
    const Tensor* other = find_tensor(b.tensors, t.name);
    ASSERT_TRUE(other) << t.name;
    EXPECT_TRUE(same_bits(t.tensor, *other)) << t.name;
  }
}

}  // namespace deft::io
