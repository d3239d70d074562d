#include "kernels/cpu/reduce/reduce_driver.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kLongestChain = 128 * kReduceRows;  // rows whose blocks are added one after the other

struct Strip {
  int64_t base, width, stride;  // of the input
};

// n <= kReduceRows rows into acc, which is started anew.
template <class T>
void fold_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t n, T* acc) {
  alignas(64) char buffer[kRowsAtOnce][kReduceTile * 8], raw[kReduceTile * 8];
  std::fill_n(acc, s.width,
              std::is_same_v<T, int64_t> ? static_cast<T>(r.kernels.int_identity) : static_cast<T>(r.kernels.identity));
  Walker at(r.reduced, begin);
  const void* rows[kRowsAtOnce];
  for (int64_t done = 0; done < n;) {
    const int m = static_cast<int>(std::min<int64_t>(kRowsAtOnce, n - done));
    for (int k = 0; k < m; ++k, at.advance(1)) {
      rows[k] = fetch_run(r, s.base + at.offset(0), s.stride, s.width, buffer[k], raw);
    }
    r.kernels.columns(rows, m, s.width, acc, r.call.param);
    done += m;
  }
}

// Rows [begin, end) of a strip, in blocks one after the other.
template <class T, class Total>
void fold_blocks(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Total* total) {
  alignas(64) T acc[kReduceColumns];
  for (int64_t i = begin; i < end; i += kReduceRows) {
    fold_rows(r, s, i, std::min(kReduceRows, end - i), acc);
    if (i == begin) {
      std::copy_n(acc, s.width, total);
    } else {
      combine_columns(fold_of(r.call), total, acc, s.width);
    }
  }
}

// Rows of a narrow strip that lie end to end are folded as if they were one.
int64_t rows_as_one(const Reduction& r, const Strip& s, int64_t n) {
  const bool dense = r.elements_in_place() && r.reduced.ndim == 1 && r.reduced.inner_stride(0) == s.width;
  return dense ? std::clamp<int64_t>(512 / s.width, 1, std::max<int64_t>(1, n / 4)) : 1;
}
template <class T, class Total>
void fold_range(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Total* total) {
  const int64_t group = rows_as_one(r, s, end - begin), rows = (end - begin) / group, done = begin + rows * group;
  if (group == 1) return fold_blocks<T>(r, s, begin, end, total);
  Reduction wide = r;
  wide.reduced.sizes[0] = wide.reduced.total = rows;
  wide.reduced.strides[0][0] = group * s.width;
  Total sums[512];
  fold_blocks<T>(wide, Strip{s.base + begin * s.width, group * s.width, 1}, 0, rows, sums);
  for (int64_t k = 1; k < group; ++k) combine_columns(fold_of(r.call), sums, sums + k * s.width, s.width);
  std::copy_n(sums, s.width, total);
  if (done == end) return;
  fold_blocks<T>(r, s, done, end, sums);
  combine_columns(fold_of(r.call), total, sums, s.width);
}

// For ops that are no folds: tiles of rows, transposed, so that every column is a block.
template <class T>
void transpose_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t n, int64_t column, int64_t columns,
                    char* to) {
  T* tile = reinterpret_cast<T*>(to);
  alignas(64) char buffer[kReduceTile * 8], raw[kReduceTile * 8];
  Walker at(r.reduced, begin);
  for (int64_t k = 0; k < n; ++k, at.advance(1)) {
    const int64_t offset = s.base + at.offset(0) + column * s.stride;
    const T* row = static_cast<const T*>(fetch_run(r, offset, s.stride, columns, buffer, raw));
    for (int64_t c = 0; c < columns; ++c) store_bits(tile + c * kReduceRows + k, load_bits(row + c));
  }
}
// Narrow strips are left to the block kernels: a vector would hold more than a row of them.
bool has_tile(const Reduction& r, const Strip& s) {
  return r.kernels.tile && r.elements_in_place() && r.reduced.ndim == 1 && s.width >= 16;
}
void reduce_tile(const Reduction& r, const Strip& s, int64_t begin, int64_t n, Partial* out) {
  if (has_tile(r, s)) {
    const int64_t step = r.reduced.inner_stride(0);
    return r.kernels.tile(r.in_at(s.base + begin * step), step, n, s.width, out);
  }
  constexpr int64_t kColumns = 16;
  alignas(64) char tile[kColumns * kReduceRows * 8];
  const int64_t size = static_cast<int64_t>(size_of(r.storage));
  for (int64_t column = 0; column < s.width; column += kColumns) {
    const int64_t columns = std::min(kColumns, s.width - column);
    dispatch_bits(r.storage, [&]<class T>() { transpose_rows<T>(r, s, begin, n, column, columns, tile); });
    for (int64_t c = 0; c < columns; ++c) {
      r.kernels.block(tile + c * kReduceRows * size, n, begin, r.call.param, out + column + c);
    }
  }
}

void reduce_rows(const Reduction& r, const Strip& s, int64_t begin, int64_t end, Partial* out) {
  const int64_t n = end - begin;
  if (n <= kReduceRows) return reduce_tile(r, s, begin, n, out);
  Partial right[kReduceTile];
  const int64_t left = left_part(n, kReduceRows);
  reduce_rows(r, s, begin, begin + left, out);
  reduce_rows(r, s, begin + left, end, right);
  combine(r, out, right, s.width, left, n - left);
}

// The outputs as strips of at most `columns` neighbours, and the rows as pieces: by their number, never by threads.
struct Strips {
  const Reduction& r;
  int64_t columns, across, count, width;
  Strips(const Reduction& reduction, int64_t most)
      : r(reduction),
        columns(most),
        across((r.kept.inner() + most - 1) / most),
        count(r.kept.total / r.kept.inner() * across),
        width(std::min(r.kept.inner(), most)) {}
  Strip at(int64_t k) const {
    const int64_t column = k % across * columns, stride = r.kept.inner_stride(0);
    const Walker start(r.kept, k / across * r.kept.inner());
    return Strip{start.offset(0) + column * stride, std::min(columns, r.kept.inner() - column), stride};
  }
  int64_t out_offset(int64_t k) const {
    return Walker(r.kept, k / across * r.kept.inner() + k % across * columns).offset(1);
  }
  int64_t grain() const { return std::max<int64_t>(1, kElementGrain / (r.count() * width)); }
};

template <class T, class Total>
void fold_outer(const Reduction& r) {
  const Strips strips(r, r.elements_in_place() ? kReduceColumns : kReduceTile);
  const int64_t n = r.count(), stride = r.kept.inner_stride(1), width = strips.width;
  int64_t piece = kLongestChain;
  if (strips.count < kFewUnits) piece = std::max(kReduceRows, left_part(kPiece / width, kReduceRows));
  const int64_t pieces = n >= 2 * piece ? (n + piece - 1) / piece : 1;
  if (pieces == 1) {
    parallel_for(0, strips.count, strips.grain(), [&](int64_t begin, int64_t end) {
      Total total[kReduceColumns];
      for (int64_t k = begin; k < end; ++k) {
        const Strip s = strips.at(k);
        fold_range<T>(r, s, 0, n, total);
        finish_folds(r, total, s.width, strips.out_offset(k), stride);
      }
    });
    return;
  }
  Workspace<Total> totals(strips.count * pieces * width);
  parallel_for(0, strips.count * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = k % pieces * piece;
      fold_range<T>(r, strips.at(k / pieces), from, std::min(n, from + piece), totals.data() + k * width);
    }
  });
  for (int64_t k = 0; k < strips.count; ++k) {
    Total* t = totals.data() + k * pieces * width;
    const int64_t w = strips.at(k).width;
    for (int64_t step = 1; step < pieces; step *= 2) {
      for (int64_t i = 0; i + step < pieces; i += 2 * step) {
        combine_columns(fold_of(r.call), t + i * width, t + (i + step) * width, w);
      }
    }
    finish_folds(r, t, w, strips.out_offset(k), stride);
  }
}

}  // namespace

void reduce_outer(const Reduction& r) {
  if (r.kernels.columns) {
    return dispatch_acc(r, [&]<class T, class Total>(T, Total) { fold_outer<T, Total>(r); });
  }
  const Strips strips(r, kReduceTile);
  const int64_t n = r.count(), width = strips.width;
  const int64_t piece = std::max(kReduceRows, left_part(kPiece / width, kReduceRows));
  const int64_t pieces = strips.count < kFewUnits && n >= 2 * piece ? (n + piece - 1) / piece : 1;
  auto finish_strip = [&](int64_t k, const Partial* p) {
    const int64_t offset = strips.out_offset(k), w = strips.at(k).width;
    for (int64_t c = 0; c < w; ++c) finish(r, p[c], offset + c * r.kept.inner_stride(1));
  };
  if (pieces == 1) {
    parallel_for(0, strips.count, strips.grain(), [&](int64_t begin, int64_t end) {
      Partial p[kReduceTile];
      for (int64_t k = begin; k < end; ++k) {
        reduce_rows(r, strips.at(k), 0, n, p);
        finish_strip(k, p);
      }
    });
    return;
  }
  Workspace<Partial> partials(strips.count * pieces * width);
  parallel_for(0, strips.count * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t from = k % pieces * piece;
      reduce_rows(r, strips.at(k / pieces), from, std::min(n, from + piece), partials.data() + k * width);
    }
  });
  for (int64_t k = 0; k < strips.count; ++k) {
    Partial* p = partials.data() + k * pieces * width;
    combine_pieces(r, p, width, pieces, piece, n);
    finish_strip(k, p);
  }
}

}  // namespace deft::cpu
