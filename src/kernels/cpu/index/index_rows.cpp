// Whole rows by index: embedding and its gradient.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/index/index.h"
#include "kernels/cpu/reduce/row_sum.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kGrain = 32 * 1024;
constexpr int64_t kColumns = 512;
constexpr int64_t kAhead = 8;  // rows whose first bytes are fetched ahead: no prefetcher guesses the next index

Strided list(int64_t count) { return Strided::contiguous(&count, 1); }

// As row_sum(), for integers, which wrap.
template <class T>
void sum_integers(const void* table, int64_t stride, int64_t n, const int64_t* first, const int64_t* last, void* out,
                  bool accumulate) {
  T* to = static_cast<T*>(out);
  uint64_t sum[kColumns];
  for (int64_t c = 0; c < n; c += kColumns) {
    const int64_t m = std::min(kColumns, n - c);
    for (int64_t i = 0; i < m; ++i) sum[i] = accumulate ? static_cast<uint64_t>(to[c + i]) : 0;
    for (const int64_t* p = first; p < last; ++p) {
      const T* row = static_cast<const T*>(table) + *p * stride + c;
      for (int64_t i = 0; i < m; ++i) sum[i] += static_cast<uint64_t>(row[i]);
    }
    for (int64_t i = 0; i < m; ++i) to[c + i] = static_cast<T>(sum[i]);
  }
}
RowSumFn sum_of(DType dtype) {
  return dispatch_all(dtype, [&]<class T>() -> RowSumFn {
    if constexpr (std::is_integral_v<T>) {
      return &sum_integers<T>;
    } else {
      return row_sum(dtype);
    }
  });
}

// Few positions for many rows: sorted by row, so that nothing is done per row of out.
struct Group {
  int64_t row, position;
  auto operator<=>(const Group&) const = default;
};
void add_few_rows(DType dtype, const void* grad, int64_t count, int64_t width, const int64_t* index, int64_t skip,
                  char* out) {
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
  const RowSumFn sum = sum_of(dtype);
  const int64_t bytes = width * static_cast<int64_t>(size_of(dtype));
  parallel_for(0, rows, std::max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      sum(grad, width, width, order.data() + starts[k], order.data() + starts[k + 1],
          out + groups[starts[k]].row * bytes, true);
    }
  });
}

// Rows of a result that is larger than the caches are computed in L1 and written past the other caches.
class RowWriter {
 public:
  RowWriter(int64_t rows, int64_t bytes, const char* out)
      : bytes_(bytes), streams_(streams(rows * bytes) && (bytes | reinterpret_cast<intptr_t>(out)) % 64 == 0) {}
  int64_t scratch() const { return streams_ ? bytes_ : 0; }
  // make(to) writes a row that is not all zeros.
  template <class Make>
  void write(char* to, bool zeros, char* scratch, const Make& make) const {
    if (!streams_) return zeros ? void(std::memset(to, 0, static_cast<size_t>(bytes_))) : make(to);
    if (zeros) {
      std::memset(scratch, 0, static_cast<size_t>(bytes_));
    } else {
      make(scratch);
    }
    stream_copy(to, scratch, static_cast<size_t>(bytes_));
  }
  void end() const {
    if (streams_) end_stream();
  }

 private:
  int64_t bytes_;
  bool streams_;
};

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
    return add_few_rows(dtype, grad, count, width, index, skip, static_cast<char*>(out));
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
  const RowSumFn sum = sum_of(dtype);
  const int64_t bytes = width * static_cast<int64_t>(size_of(dtype));
  char* to = static_cast<char*>(out);
  const RowWriter writer(accumulate ? 0 : rows, bytes, to);
  parallel_for(0, rows, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    Workspace<char> scratch(writer.scratch());
    for (int64_t r = begin; r < end; ++r) {
      const int64_t *first = order.data() + (r ? starts[r - 1] : 0), *last = order.data() + starts[r];
      if (first == last && accumulate) continue;
      writer.write(to + r * bytes, first == last, scratch.data(),
                   [&](char* row) { sum(grad, width, width, first, last, row, accumulate); });
    }
    writer.end();
  });
}

}  // namespace deft::cpu
