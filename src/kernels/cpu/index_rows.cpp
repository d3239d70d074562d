// Whole rows by index: embedding and its gradient.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kGrain = 32 * 1024;
constexpr int64_t kColumns = 512;

Strided list(int64_t count) { return Strided::contiguous(&count, 1); }

template <class T>
using sum_t = std::conditional_t<std::is_integral_v<T>, uint64_t, accumulate_t<T>>;

// Adds the rows of grad listed in [first, last) to one row of out, in order.
template <class T>
void sum_row(const T* grad, int64_t width, const int64_t* first, const int64_t* last, T* out, bool accumulate) {
  using S = sum_t<T>;
  S sum[kColumns];
  for (int64_t c = 0; c < width; c += kColumns) {
    const int64_t n = std::min(kColumns, width - c);
    for (int64_t i = 0; i < n; ++i) sum[i] = accumulate ? static_cast<S>(out[c + i]) : S(0);
    for (const int64_t* p = first; p < last; ++p) {
      const T* row = grad + *p * width + c;
      for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<S>(row[i]);
    }
    for (int64_t i = 0; i < n; ++i) out[c + i] = static_cast<T>(sum[i]);
  }
}

}  // namespace

void take_rows(DType dtype, const void* table, int64_t rows, int64_t table_row, int64_t width, const int64_t* index,
               int64_t count, void* out) {
  check_indices("embedding", index, list(count), rows, false);
  if (width <= 0) return;
  const int64_t size = static_cast<int64_t>(size_of(dtype));
  const char* from = static_cast<const char*>(table);
  char* to = static_cast<char*>(out);
  parallel_for(0, count, std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(to + i * width * size, from + index[i] * table_row * size, static_cast<size_t>(width * size));
    }
  });
}

void add_rows(DType dtype, const void* grad, int64_t count, int64_t width, const int64_t* index, int64_t skip,
              void* out, int64_t rows, bool accumulate) {
  check_indices("embedding_backward", index, list(count), rows, false);
  if (rows <= 0 || width <= 0) return;
  // Positions by row, in order: starts[r] .. starts[r + 1].
  Workspace<int64_t> starts(rows + 1), order(count);
  std::fill_n(starts.data(), rows + 1, int64_t{0});
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] != skip) ++starts[index[i] + 1];
  }
  for (int64_t r = 0; r < rows; ++r) starts[r + 1] += starts[r];
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] != skip) order[starts[index[i]]++] = i;  // moves starts[r] to the end of row r
  }
  const int64_t cost = width * (count / rows + 1);
  dispatch_all(dtype, [&]<class T>() {
    const T* g = static_cast<const T*>(grad);
    T* to = static_cast<T*>(out);
    parallel_for(0, rows, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t first = r ? starts[r - 1] : 0, last = starts[r];
        if (first == last && accumulate) continue;
        sum_row(g, width, order.data() + first, order.data() + last, to + r * width, accumulate);
      }
    });
  });
}

}  // namespace deft::cpu
