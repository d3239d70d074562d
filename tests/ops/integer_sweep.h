// How a function is called with all the numbers of integer_values.h: a right result or a typed error.
#pragma once

#include <cmath>
#include <functional>

#include "integer_values.h"
#include "ops/all_ops.h"

namespace deft::testing {

struct Function {
  std::string name;
  Numbers good;
  std::function<Tensor(const Numbers&)> call;
  // The element at a place of the result, by its definition. Null: only that results can be read is checked.
  std::function<double(const Numbers&, const Shape&)> expect = nullptr;
  bool grad = false;  // whether the gradient is computed, too
};

inline Shape place_of(const Shape& sizes, int64_t flat) {
  Shape at = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    at[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  return at;
}

inline void check_values(const Function& f, const Numbers& numbers, const Tensor& y) {
  if (y.numel() == 0 || y.numel() > kFewElements) return;
  const std::vector<double> values = y.to_vector<double>();
  if (!f.expect) return;
  const int64_t step = std::max<int64_t>(1, y.numel() / 16);
  for (int64_t i = 0; i < y.numel(); i += step) {
    const double want = f.expect(numbers, place_of(y.sizes(), i)), got = values[static_cast<size_t>(i)];
    ASSERT_TRUE(std::fabs(got - want) <= 1e-5 * (1 + std::fabs(want)))
        << f.name << "(" << text_of(numbers) << ") gives " << to_string(y.sizes()) << " with " << got << " at element "
        << i << ", want " << want;
  }
}

// 1 where there is a result.
inline int run(const Function& f, const Numbers& numbers) {
  try {
    Tensor y = f.call(numbers);
    check_values(f, numbers, y);
    if (f.grad && y.requires_grad() && y.numel() > 0 && y.numel() <= 4096) y.sum().backward();
    return 1;
  } catch (const InternalError& e) {
    ADD_FAILURE() << f.name << "(" << text_of(numbers) << "): " << e.what();
  } catch (const Error&) {
  } catch (const std::exception& e) {
    ADD_FAILURE() << f.name << "(" << text_of(numbers) << ") throws no typed error: " << e.what();
  }
  return 0;
}

inline void sweep(const std::vector<Function>& functions) {
  for (const Function& f : functions) {
    int results = 0;
    EXPECT_EQ(run(f, f.good), 1) << f.name << " must take the numbers it begins with: " << text_of(f.good);
    for_each_change(f.good, [&](const Numbers& numbers) { results += run(f, numbers); });
    EXPECT_GT(results, 1) << f.name;
    if (::testing::Test::HasFatalFailure()) return;
  }
}

inline Tensor counting(Shape sizes) {
  return arange(0, checked_numel(sizes, f32), 1, TensorOptions(f32)).reshape(sizes) * 0.01 + 1;
}

}  // namespace deft::testing
