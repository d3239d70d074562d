#include "kernels/cpu/index/index.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/dense_util.h"

namespace deft::test {
namespace {

using cpu::Scatter;
using cpu::Strided;

// Sizes with the strides of memory ordered by `order`, last entry fastest, and `gap` elements between neighbours.
Strided strided(const std::vector<int64_t>& sizes, std::vector<int> order = {}, int64_t gap = 1) {
  Strided s;
  s.ndim = static_cast<int>(sizes.size());
  if (order.empty()) {
    for (int d = 0; d < s.ndim; ++d) order.push_back(d);
  }
  int64_t step = gap;
  for (int i = s.ndim - 1; i >= 0; --i) {
    const int d = order[static_cast<size_t>(i)];
    s.sizes[d] = sizes[static_cast<size_t>(d)];
    s.strides[d] = step;
    step *= s.sizes[d];
  }
  return s;
}
int64_t room(const Strided& s) {
  int64_t top = 0;
  for (int d = 0; d < s.ndim; ++d) {
    if (s.sizes[d] == 0) return 0;
    top += (s.sizes[d] - 1) * s.strides[d];
  }
  return top + 1;
}
// Calls f(coordinates) in row-major order.
template <class F>
void for_each(const Strided& s, F f) {
  int64_t at[kMaxDims] = {};
  for (int64_t p = 0; p < s.numel(); ++p) {
    int64_t rest = p;
    for (int d = s.ndim - 1; d >= 0; --d) {
      at[d] = rest % s.sizes[d];
      rest /= s.sizes[d];
    }
    f(at);
  }
}
int64_t offset(const Strided& s, const int64_t* at) {
  int64_t o = 0;
  for (int d = 0; d < s.ndim; ++d) o += at[d] * s.strides[d];
  return o;
}
Guarded<int64_t> indices(const Strided& s, int64_t size, uint32_t seed, bool negative = false) {
  auto g = filled<int64_t>(room(s), seed);
  for (int64_t i = 0; i < g.size(); ++i) {
    g[i] = static_cast<int64_t>(static_cast<uint64_t>(g[i]) >> 8) % size;
    if (negative && i % 3 == 0) g[i] -= size;
  }
  return g;
}

template <class T>
T apply(Scatter op, T a, T b) {
  if (op == Scatter::assign) return b;
  if constexpr (std::is_same_v<T, bool>) {
    return op == Scatter::add || op == Scatter::max ? (a || b) : (a && b);
  } else if constexpr (std::is_integral_v<T>) {
    if (op == Scatter::min) return a < b ? a : b;
    if (op == Scatter::max) return a > b ? a : b;
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(op == Scatter::add ? x + y : x * y);
  } else {
    const accumulate_t<T> x = a, y = b;
    if (op == Scatter::add) return static_cast<T>(x + y);
    if (op == Scatter::mul) return static_cast<T>(x * y);
    if (x != x || y != y) return x != x ? a : b;
    return (op == Scatter::min) == (x < y) ? a : b;
  }
}

template <class T>
float as_float(T x) {
  return static_cast<float>(x);
}

template <class T>
class Index : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Half, int8_t, uint8_t, int32_t, int64_t, bool>;
TYPED_TEST_SUITE(Index, Types);

template <class T>
void expect_same(const Guarded<T>& found, const Guarded<T>& expected) {
  for (int64_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::memcmp(&found[i], &expected[i], sizeof(T)), 0) << "at " << i;
  }
}

struct Shapes {
  std::vector<int64_t> data, index;
};
const std::vector<Shapes>& shapes() {
  static const std::vector<Shapes> all = {{{7}, {13}},
                                          {{5, 4}, {5, 4}},
                                          {{3, 6, 5}, {3, 6, 5}},
                                          {{4, 9, 3}, {2, 5, 3}},
                                          {{64, 80}, {64, 80}},
                                          {{2, 300, 70}, {2, 300, 70}},
                                          {{3, 4}, {0, 4}}};
  return all;
}

TYPED_TEST(Index, GatherAndScatter) {
  using T = TypeParam;
  for (const Shapes& shape : shapes()) {
    const int ndim = static_cast<int>(shape.data.size());
    for (int dim = 0; dim < ndim; ++dim) {
      for (bool transposed : {false, true}) {
        std::vector<int> order;
        for (int d = 0; d < ndim; ++d) order.push_back(transposed ? ndim - 1 - d : d);
        const Strided data_s = strided(shape.data, order, transposed ? 2 : 1);
        auto index_sizes = shape.index;
        if (ndim > 1) index_sizes[static_cast<size_t>(dim)] += index_sizes[static_cast<size_t>(dim)] > 0;  // repeats
        const Strided index_s = strided(index_sizes, order), out_s = strided(index_sizes, {}, transposed ? 3 : 1);
        const auto data = filled<T>(room(data_s), 1), src = filled<T>(room(out_s), 2);
        const auto index = indices(index_s, shape.data[static_cast<size_t>(dim)], 3);
        auto expected = filled<T>(room(out_s), 4);
        for_each(index_s, [&](int64_t* at) {
          const int64_t to = offset(out_s, at), keep = at[dim], which = index[offset(index_s, at)];
          at[dim] = which;
          expected[to] = data[offset(data_s, at)];
          at[dim] = keep;
        });
        const auto out = run_both(filled<T>(room(out_s), 4), [&](T* to) {
          cpu::gather(dtype_of<T>, data.data(), data_s, dim, index.data(), index_s, to, out_s);
        });
        expect_same(out, expected);
        for (Scatter op : {Scatter::assign, Scatter::add, Scatter::mul, Scatter::min, Scatter::max}) {
          SCOPED_TRACE(static_cast<int>(op));
          auto want = data, once = data;
          std::vector<float> sums(static_cast<size_t>(data.size()));
          if constexpr (sizeof(T) == 2)
            std::transform(data.data(), data.data() + data.size(), sums.begin(), as_float<T>);
          for_each(index_s, [&](int64_t* at) {
            const T value = src[offset(out_s, at)];
            const int64_t keep = at[dim], which = index[offset(index_s, at)];
            at[dim] = which;
            const int64_t there = offset(data_s, at);
            want[there] = apply(op, want[there], value);
            if constexpr (sizeof(T) == 2)
              once[there] = static_cast<T>(sums[static_cast<size_t>(there)] += as_float(value));
            at[dim] = keep;
          });
          const auto found = run_both(data, [&](T* to) {
            cpu::scatter("scatter", dtype_of<T>, op, to, data_s, dim, index.data(), index_s, src.data(), out_s);
          });
          const bool along_rows = !transposed && dim == ndim - 1 && op == Scatter::add;
          expect_same(found, along_rows && sizeof(T) == 2 ? once : want);
        }
      }
    }
  }
}

TYPED_TEST(Index, SelectAndAdd) {
  using T = TypeParam;
  for (const Shapes& shape : shapes()) {
    const int ndim = static_cast<int>(shape.data.size());
    for (int dim = 0; dim < ndim; ++dim) {
      for (bool transposed : {false, true}) {
        std::vector<int> order;
        for (int d = 0; d < ndim; ++d) order.push_back(transposed ? ndim - 1 - d : d);
        const Strided data_s = strided(shape.data, order);
        auto sizes = shape.data;
        const int64_t count = 11;
        sizes[static_cast<size_t>(dim)] = count;
        const Strided out_s = strided(sizes, order), list_s = strided({count}, {}, 2);
        const auto data = filled<T>(room(data_s), 1), src = filled<T>(room(out_s), 2);
        const auto index = indices(list_s, shape.data[static_cast<size_t>(dim)], 3, true);
        auto expected = filled<T>(room(out_s), 4), sum = data;
        for_each(out_s, [&](int64_t* at) {
          const int64_t here = offset(out_s, at), keep = at[dim];
          const int64_t v = index[keep * 2];
          at[dim] = v < 0 ? v + shape.data[static_cast<size_t>(dim)] : v;
          const int64_t there = offset(data_s, at);
          at[dim] = keep;
          expected[here] = data[there];
          sum[there] = apply(Scatter::add, sum[there], src[here]);
        });
        expect_same(run_both(filled<T>(room(out_s), 4),
                             [&](T* to) {
                               cpu::index_select(dtype_of<T>, data.data(), data_s, dim, index.data(), 2, true, to,
                                                 out_s);
                             }),
                    expected);
        expect_same(run_both(data,
                             [&](T* to) {
                               cpu::index_add(dtype_of<T>, to, data_s, dim, index.data(), 2, true, src.data(), out_s);
                             }),
                    sum);
      }
    }
  }
}

TYPED_TEST(Index, Rows) {
  using T = TypeParam;
  struct Size {
    int64_t rows, count, width;
  };
  // Many positions per row, and few positions in many rows.
  for (const auto& [rows, count, width] : {Size{37, 500, 0}, Size{37, 500, 1}, Size{37, 500, 5}, Size{37, 500, 64},
                                           Size{37, 500, 700}, Size{900, 60, 5}, Size{90, 9, 600}, Size{50, 0, 3}}) {
    const Strided list = strided({count});
    const auto index = indices(list, rows, 1);
    const int64_t skip = count ? index[0] : 4;
    const auto table = filled<T>(rows * (width + 3), 2), grad = filled<T>(count * width, 3);
    auto expected = filled<T>(count * width, 4);
    for (int64_t i = 0; i < count * width; ++i) expected[i] = table[index[i / width] * (width + 3) + i % width];
    expect_same(run_both(filled<T>(count * width, 4),
                         [&](T* to) {
                           cpu::take_rows(dtype_of<T>, table.data(), rows, width + 3, width, index.data(), count, to);
                         }),
                expected);
    for (bool accumulate : {false, true}) {
      const auto start = filled<T>(rows * width, 5);
      auto want = start;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          using S = std::conditional_t<std::is_integral_v<T>, uint64_t, accumulate_t<T>>;
          S sum = accumulate ? static_cast<S>(start[r * width + c]) : S(0);
          for (int64_t i = 0; i < count; ++i) {
            if (index[i] == r && r != skip) sum += static_cast<S>(grad[i * width + c]);
          }
          want[r * width + c] = static_cast<T>(sum);
        }
      }
      expect_same(run_both(start,
                           [&](T* to) {
                             cpu::add_rows(dtype_of<T>, grad.data(), count, width, index.data(), skip, to, rows,
                                           accumulate);
                           }),
                  want);
    }
  }
}

// Writing rows past the caches changes nothing, empty ones included.
TYPED_TEST(Index, StreamedRows) {
  using T = TypeParam;
  constexpr int64_t kRows = 1500, kCount = 900, kWidth = 256;
  struct alignas(64) Line {
    T of[64 / sizeof(T)];
  };
  const int64_t before = cpu::stream_bytes_per_thread();
  const auto index = indices(strided({kCount}), kRows, 1);
  const auto grad = filled<T>(kCount * kWidth, 3);
  std::vector<Line> plain(kRows * kWidth * sizeof(T) / 64), streamed(plain.size(), Line{{static_cast<T>(1)}});
  for (auto* out : {&plain, &streamed}) {
    cpu::set_stream_bytes_per_thread(out == &plain ? 0 : 1);
    cpu::add_rows(dtype_of<T>, grad.data(), kCount, kWidth, index.data(), index[0], out->data(), kRows, false);
  }
  cpu::set_stream_bytes_per_thread(before);
  EXPECT_EQ(std::memcmp(plain.data(), streamed.data(), plain.size() * 64), 0);
}

TYPED_TEST(Index, NonzeroAndMasks) {
  using T = TypeParam;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{}, {0}, {1}, {17}, {3, 0, 2}, {5, 6, 7}, {70, 900}}) {
    for (bool transposed : {false, true}) {
      std::vector<int> order;
      const int ndim = static_cast<int>(sizes.size());
      for (int d = 0; d < ndim; ++d) order.push_back(transposed ? ndim - 1 - d : d);
      const Strided s = strided(sizes, order, transposed ? 2 : 1), mask_s = strided(sizes);
      auto x = filled<T>(room(s), 1);
      for (int64_t i = 0; i < x.size(); ++i) {
        if (i % 3 == 0) x[i] = T(0);
        if constexpr (!std::is_integral_v<T>) {
          if (i % 7 == 0) x[i] = T(i % 2 ? -0.0f : NAN);
        }
      }
      const auto mask = filled<bool>(room(mask_s), 2);
      std::vector<int64_t> coordinates;
      std::vector<int64_t> chosen;
      for_each(s, [&](int64_t* at) {
        if (as_double(x[offset(s, at)]) != 0) coordinates.insert(coordinates.end(), at, at + ndim);
        if (mask[offset(mask_s, at)]) chosen.push_back(offset(s, at));
      });
      int64_t count = 0;
      for_each(s, [&](int64_t* at) { count += as_double(x[offset(s, at)]) != 0; });
      ASSERT_EQ(cpu::count_nonzero(dtype_of<T>, x.data(), s), count);
      const auto found =
          run_both(filled<int64_t>(count * ndim, 3), [&](int64_t* to) { cpu::nonzero(dtype_of<T>, x.data(), s, to); });
      for (int64_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], coordinates[static_cast<size_t>(i)]);

      const auto n = static_cast<int64_t>(chosen.size());
      const auto packed = run_both(
          filled<T>(n, 4), [&](T* to) { cpu::masked_select(dtype_of<T>, x.data(), s, mask.data(), mask_s, to); });
      auto spread = filled<T>(room(s), 5);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::memcmp(&packed[i], &x[chosen[static_cast<size_t>(i)]], sizeof(T)), 0);
        spread[chosen[static_cast<size_t>(i)]] = packed[i];
      }
      expect_same(run_both(filled<T>(room(s), 5),
                           [&](T* to) { cpu::masked_scatter(dtype_of<T>, packed.data(), mask.data(), mask_s, to, s); }),
                  spread);
    }
  }
}

template <class F>
void expect_index_error(const std::string& text, F f) {
  try {
    f();
    FAIL() << "nothing was thrown";
  } catch (const IndexError& e) {
    EXPECT_EQ(std::string(e.what()), text);
  }
}

TEST(Index, BadIndicesAreNamedAndNothingIsWritten) {
  const Strided s = strided({2, 3});
  const auto x = filled<float>(6, 1);
  const auto start = filled<float>(6, 2);
  auto out = start;
  const std::vector<int64_t> grid = {0, 1, 1, 0, 2, 0};
  expect_index_error("gather: found index 2 at position (1, 1), expected 0 <= index < 2",
                     [&] { cpu::gather(DType::f32, x.data(), s, 0, grid.data(), s, out.data(), s); });
  const std::vector<int64_t> negative = {0, 1, 1, 0, -1, 0};
  expect_index_error("scatter: found index -1 at position (1, 1), expected 0 <= index < 3", [&] {
    cpu::scatter("scatter", DType::f32, Scatter::add, out.data(), s, 1, negative.data(), s, x.data(), s);
  });
  const std::vector<int64_t> line = {0, 1, -4};
  expect_index_error("index_select: found index -4 at position 2, expected -3 <= index < 3",
                     [&] { cpu::index_select(DType::f32, x.data(), s, 1, line.data(), 1, true, out.data(), s); });
  expect_index_error("index_add: found index -4 at position 2, expected 0 <= index < 3",
                     [&] { cpu::index_add(DType::f32, out.data(), s, 1, line.data(), 1, false, x.data(), s); });
  expect_index_error("embedding: found index -4 at position 2, expected 0 <= index < 2",
                     [&] { cpu::take_rows(DType::f32, x.data(), 2, 3, 3, line.data(), 3, out.data()); });
  expect_index_error("embedding_backward: found index -4 at position 2, expected 0 <= index < 2",
                     [&] { cpu::add_rows(DType::f32, x.data(), 3, 2, line.data(), -1, out.data(), 2, false); });
  EXPECT_TRUE(out.same_bits(start));
}

TEST(Index, OneIndexOutsideIsFoundAnywhere) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (auto [low, size] : {std::pair<int64_t, int64_t>{0, 7}, {-7, 7}, {0, 1}, {0, kHuge}, {-kHuge, kHuge}}) {
    for (int64_t n = 0; n <= 40; ++n) {
      std::vector<int64_t> index(static_cast<size_t>(n), size - 1);
      for (size_t i = 0; i < index.size(); i += 2) index[i] = low;
      EXPECT_FALSE(cpu::any_outside(index.data(), n, low, size)) << n;
      for (int64_t& at : index) {
        const int64_t keep = at;
        for (int64_t bad : {size, low - 1, kLowest, kHighest}) {
          at = bad;
          EXPECT_TRUE(cpu::any_outside(index.data(), n, low, size)) << bad << " of " << n;
        }
        at = keep;
      }
    }
  }
  const int64_t zeros[20] = {};
  EXPECT_FALSE(cpu::any_outside(zeros, 0, 0, 0));
  EXPECT_TRUE(cpu::any_outside(zeros, 20, 0, 0));
}

}  // namespace
}  // namespace deft::test
