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
constexpr int64_t kAhead = 8;  // rows whose first bytes are fetched ahead: no prefetcher guesses the next index

Strided list(int64_t count) { return Strided::contiguous(&count, 1); }

template <class T>
using sum_t = std::conditional_t<std::is_integral_v<T>, uint64_t, accumulate_t<T>>;

// Adds the rows of grad listed in [first, last) to one row of out, in order; four at a time, so that sums are loaded
// and stored less often.
template <class T>
void sum_row(const T* grad, int64_t width, const int64_t* first, const int64_t* last, T* out, bool accumulate) {
  using S = sum_t<T>;
  S sum[kColumns];
  for (int64_t c = 0; c < width; c += kColumns) {
    const int64_t n = std::min(kColumns, width - c);
    for (int64_t i = 0; i < n; ++i) sum[i] = accumulate ? static_cast<S>(out[c + i]) : S(0);
    const int64_t* p = first;
    for (; p + 4 <= last; p += 4) {
      const T *r0 = grad + p[0] * width + c, *r1 = grad + p[1] * width + c;
      const T *r2 = grad + p[2] * width + c, *r3 = grad + p[3] * width + c;
      for (int64_t i = 0; i < n; ++i) {
        sum[i] = sum[i] + static_cast<S>(r0[i]) + static_cast<S>(r1[i]) + static_cast<S>(r2[i]) + static_cast<S>(r3[i]);
      }
    }
    for (; p < last; ++p) {
      const T* row = grad + *p * width + c;
      for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<S>(row[i]);
    }
    for (int64_t i = 0; i < n; ++i) out[c + i] = static_cast<T>(sum[i]);
  }
}

// Few positions for many rows: sorted by row, so that nothing is done per row of out.
struct Group {
  int64_t row, position;
  auto operator<=>(const Group&) const = default;
};
template <class T>
void add_few_rows(const T* grad, int64_t count, int64_t width, const int64_t* index, int64_t skip, T* out) {
  Workspace<Group> groups(count);
  Workspace<int64_t> order(count), starts(count + 1);
  int64_t n = 0, rows = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] != skip) groups[n++] = {index[i], i};
  }
  std::sort(groups.data(), groups.data() + n);
  for (int64_t i = 0; i < n; ++i) {
    order[i] = groups[i].position;
    if (i == 0 || groups[i].row != groups[i - 1].row) starts[rows++] = i;
  }
  starts[rows] = n;
  parallel_for(0, rows, std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      sum_row(grad, width, order.data() + starts[k], order.data() + starts[k + 1], out + groups[starts[k]].row * width,
              true);
    }
  });
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
      if (i + kAhead < end) {
        const char* next = from + index[i + kAhead] * table_row * size;
        for (int64_t b = 0; b < std::min<int64_t>(width * size, 512); b += 64) __builtin_prefetch(next + b);
      }
      std::memcpy(to + i * width * size, from + index[i] * table_row * size, static_cast<size_t>(width * size));
    }
  });
}

void add_rows(DType dtype, const void* grad, int64_t count, int64_t width, const int64_t* index, int64_t skip,
              void* out, int64_t rows, bool accumulate) {
  check_indices("embedding_backward", index, list(count), rows, false);
  if (rows <= 0 || width <= 0) return;
  if (count < rows / 8) {
    const int64_t bytes = rows * width * static_cast<int64_t>(size_of(dtype));
    if (!accumulate) {
      parallel_for(0, bytes, kGrain * 8, [&](int64_t begin, int64_t end) {
        std::memset(static_cast<char*>(out) + begin, 0, static_cast<size_t>(end - begin));
      });
    }
    return dispatch_all(dtype, [&]<class T>() {
      add_few_rows(static_cast<const T*>(grad), count, width, index, skip, static_cast<T*>(out));
    });
  }
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
