// Shared by the forward and backward pass of attention. Internal.
//
// Note [Lanes are queries]: tiles are about 8 x 12, heads 64 features wide. With features on side a and queries (or
// keys) on side b nothing is wasted on padding, a tile of scores comes out as a panel of side b, ready for the next
// GEMM, and maxima and sums over keys run down the columns of vectors.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_rows.h"
#include "kernels/cpu/gemm/pack.h"
#include "kernels/cpu/gemm/pack_rows.h"
#include "kernels/cpu/gemm/pack_split.h"
#include "kernels/cpu/gemm/tile_series.h"
#include "kernels/cpu/workspace.h"

namespace deft::cpu::heads {

using detail::TileSeries;

constexpr double kLog2E = 1.44269504088896340736;

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
inline char* at(const void* p, int64_t bytes) { return static_cast<char*>(const_cast<void*>(p)) + bytes; }

// The number of items that is enough work for a thread, for items of this many multiplications.
inline int64_t grain_of(int64_t multiplications) {
  return std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, multiplications));
}

// Parts of one block of scratch memory: threads keep only a few blocks each (runtime/scratch.h), and threads that take
// twenty of them queue for the rest. Laid out twice, first without memory to measure the size.
class Parts {
 public:
  template <class T>
  void take(T*& part, int64_t count) {
    part = base_ ? reinterpret_cast<T*>(base_ + bytes_) : nullptr;
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
  }
  int64_t bytes() const { return bytes_; }
  void begin_at(char* base) { base_ = base, bytes_ = 0; }

 private:
  char* base_ = nullptr;
  int64_t bytes_ = 0;
};
// Calls lay_out(parts) twice; the memory lives as long as this object.
class PartsBlock {
 public:
  template <class F>
  explicit PartsBlock(const F& lay_out) : block_(bytes_of(lay_out)) {
    Parts parts;
    parts.begin_at(block_.data());
    lay_out(parts);
  }

 private:
  template <class F>
  static int64_t bytes_of(const F& lay_out) {
    Parts parts;
    lay_out(parts);
    return parts.bytes();
  }
  Workspace<char> block_;
};

// n split evenly into blocks of at most `most` (or one unit), each but the last a multiple of `unit`.
struct Blocks {
  int64_t n, size, count;
  Blocks(int64_t total, int64_t most, int64_t unit) : n(total) {
    const int64_t wanted = std::max<int64_t>(1, (n + most - 1) / most);
    size = std::max(unit, round_up((n + wanted - 1) / wanted, unit));
    count = (n + size - 1) / size;
  }
  int64_t begin(int64_t i) const { return i * size; }
  int64_t length(int64_t i) const { return std::min(size, n - i * size); }
};

// Packs a matrix, times a factor, into panels of T.
template <class T>
class ScaledSource : public PanelSource {
 public:
  ScaledSource(const StridedMatrix& m, const RowPasses<T>& rows, T factor) : matrix_(m), rows_(rows), factor_(factor) {}
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t*) const override {
    cpu::pack(tile, side, matrix_, l0, lines, k0, k, out);
    const int64_t count = packed_bytes(tile, side, lines, k) / static_cast<int64_t>(sizeof(T));
    rows_.store_rows(static_cast<T*>(out), count, 1, count, factor_, dtype_of<T>, out, count);
  }

 private:
  StridedMatrix matrix_;
  const RowPasses<T>& rows_;
  T factor_;
};

// What the forward and backward pass know about a call.
template <class T>
struct Problem {
  const AttentionCall& call;
  const GemmTile& tile;
  RowPasses<T> rows;
  int64_t heads = 1;
  int mr, nr;
  int64_t value_bytes;   // of a panel
  bool split;            // panels hold T in parts
  bool in_place;         // panels hold T: scores become weights in place
  int64_t weight_bytes;  // of a weight before it is packed
  T query_scale, scale;  // of packed queries, and of the scores: 16-bit queries would be rounded a second time

  Problem(const AttentionCall& c, const GemmTile& t, const RowPasses<T>& r)
      : call(c),
        tile(t),
        rows(r),
        mr(t.mr),
        nr(t.nr),
        value_bytes(size_of(t.panel)),
        split(t.panel == Panel::split),
        in_place(split || t.panel == (sizeof(T) == 8 ? Panel::f64 : Panel::f32)),
        weight_bytes(in_place ? static_cast<int64_t>(sizeof(T)) : value_bytes),
        query_scale(in_place ? static_cast<T>(c.scale * kLog2E) : T(1)),
        scale(in_place ? T(1) : static_cast<T>(c.scale * kLog2E)) {
    for (int i = 0; i < c.lead_dims; ++i) heads *= c.lead[i];
  }

  char* head(const HeadsView& view, int64_t index, DType dtype) const {
    int64_t offset = 0;
    for (int i = call.lead_dims - 1; i >= 0; --i) {
      offset += index % call.lead[i] * view.lead[i];
      index /= call.lead[i];
    }
    return at(view.data, offset * static_cast<int64_t>(size_of(dtype)));
  }
  // The rows of a head as lines over features, and its features as lines over rows.
  StridedMatrix lines(const HeadsView& view, int64_t index) const {
    return {call.dtype, head(view, index, call.dtype), view.row, 1};
  }
  StridedMatrix columns(const HeadsView& view, int64_t index) const {
    return {call.dtype, head(view, index, call.dtype), 1, view.row};
  }

  // Whether rows [begin, begin + n) are finite: infinity or NaN times zero is NaN.
  bool all_finite(const HeadsView& view, int64_t index, int64_t begin, int64_t n, int64_t width) const {
    Workspace<T> zeros(n), sums(width);
    std::fill_n(zeros.data(), n, T(0));
    std::fill_n(sums.data(), width, T(0));
    const char* from = head(view, index, call.dtype) + begin * view.row * static_cast<int64_t>(size_of(call.dtype));
    rows.add_rows(call.dtype, zeros.data(), from, view.row, n, width, sums.data());
    return std::all_of(sums.data(), sums.data() + width, [](T sum) { return sum == 0; });
  }

  // Queries over features, scaled where the panels can hold that. (Scaling the scores instead costs nothing, but the
  // rounding error of the factor is shared by all scores and shows fully in the result.)
  void pack_queries(Side side, int64_t index, int64_t begin, int64_t n, char* out) const {
    if (!in_place) return pack(tile, side, lines(call.q, index), begin, n, 0, call.features, out);
    const ScaledSource<T> from(lines(call.q, index), rows, query_scale);
#if defined(__x86_64__)
    if (split) return pack_split(from, tile, side, begin, n, 0, call.features, out);
#endif
    from.pack(tile, side, begin, n, 0, call.features, out, nullptr);
  }
  // Rows [begin, n) of weights, computed in place or in `panels`, as panels of side b.
  char* as_panels(T* weights, [[maybe_unused]] int64_t begin, [[maybe_unused]] int64_t n, char* panels) const {
    if (!in_place) return panels;
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, float>) {
      if (split) return split_rows(weights + begin * nr, nr, n - begin, panels + begin * nr * value_bytes), panels;
    }
#endif
    return reinterpret_cast<char*>(weights);
  }

  int64_t padded(int64_t lines, Side side) const { return round_up(lines, tile.width(side)); }
  // c (+)= one panel times another over k values from k0, a multiple of k_step.
  void run(const void* a, const void* b, int64_t k0, int64_t k, T* c, bool add) const { run(a, b, k0, k, c, nr, add); }
  void run(const void* a, const void* b, int64_t k0, int64_t k, T* c, int64_t c_row, bool add) const {
    for (int64_t p = k0; p < k; p += tile.block_k, add = true) {
      const int64_t steps = (std::min(tile.block_k, k - p) + tile.k_step - 1) / tile.k_step;
      tile.run(steps, at(a, p * mr * value_bytes), at(b, p * nr * value_bytes), c, c_row, add);
    }
    for (int64_t i = 0; i < mr && k0 >= k && !add; ++i) {  // no features: the result is zero
      std::fill_n(c + i * c_row, nr, T(0));
    }
  }

  // Writes the mask of `lines` lines over k as rows of k, in powers of 2. Bool masks use a table: where flags have no
  // pattern, branches take half of a forward pass.
  template <class S>
  void fill_mask(const S* in, int64_t line, int64_t step, int64_t lines, int64_t k, int64_t width, T* out) const {
    constexpr T kValues[] = {-std::numeric_limits<T>::infinity(), T(0)};
    for (int64_t p = 0; p < k; ++p, in += step, out += width) {
      for (int64_t l = 0; l < lines; ++l) {
        if constexpr (std::is_same_v<S, bool>) {
          out[l] = kValues[in[l * line]];
        } else {
          out[l] = static_cast<T>(in[l * line]) * static_cast<T>(kLog2E);
        }
      }
    }
  }
  // The mask of queries from q0 and keys from k0 as rows of `width`; lines are queries or keys.
  void load_mask(int64_t index, int64_t q0, int64_t k0, bool lines_are_queries, int64_t lines, int64_t k, int64_t width,
                 T* out) const {
    const int64_t row = call.mask.row, key = call.mask_key;
    const int64_t from = q0 * row + k0 * key;
    const int64_t line = lines_are_queries ? row : key, step = lines_are_queries ? key : row;
    const char* in = at(head(call.mask, index, call.mask_dtype), from * static_cast<int64_t>(size_of(call.mask_dtype)));
    if (lines < width) std::fill_n(out, k * width, T(0));
    if (call.mask_dtype == DType::boolean) {
      fill_mask(reinterpret_cast<const bool*>(in), line, step, lines, k, width, out);
    } else {
      dispatch_floating(call.mask_dtype, [&]<class S>() {
        fill_mask(reinterpret_cast<const S*>(in), line, step, lines, k, width, out);
      });
    }
  }
  bool drops() const { return call.drop.p > 0; }
  // The dropout factors of one query and keys from k0.
  void load_keep(int64_t index, int64_t query, int64_t k0, int64_t k, T* out) const {
    drop_factors(call.drop, static_cast<uint64_t>((index * call.queries + query) * call.keys + k0), k, out);
  }
  // Scales and masks the scores of a panel.
  void mask_scores(int64_t index, int64_t q0, int64_t k0, bool lines_are_queries, int64_t lines, int64_t k, T* scores,
                   T* scratch) const {
    load_mask(index, q0, k0, lines_are_queries, lines, k, nr, scratch);
    rows.add_mask(nr, {scores, k, scale}, scratch);
  }
};

// The tile that pads the features least, among those as wide as the best one and at least half as tall: 64 features
// take 72 rows in tiles of 12, and 64 in tiles of 8.
template <class T>
const GemmTile* tile_for(const AttentionCall& call, Panel panel) {
  const auto padded = [&](const GemmTile& t) {
    return round_up(call.value_features, t.mr) + round_up(call.features, t.mr);
  };
  const GemmTile *first = nullptr, *best = nullptr;
  for (const GemmTile& tile : gemm_tiles(panel)) {
    if (!row_passes<T>(tile).exp_columns) continue;
    if (!first) first = best = &tile;
    if (tile.nr == first->nr && 2 * tile.mr >= first->mr && padded(tile) < padded(*best)) best = &tile;
  }
  return best;
}

// Calls f with the problem set up for the best tile that the row passes support.
template <class T, class F>
void with_tile(const AttentionCall& call, Panel panel, const F& f) {
  if (const GemmTile* tile = tile_for<T>(call, panel)) return f(Problem<T>(call, *tile, row_passes<T>(*tile)));
  DEFT_ASSERT(panel != Panel::f32 && panel != Panel::f64);
  with_tile<T>(call, Panel::f32, f);
}

// f32 is split where that gains. 12 heads of 64 features, one thread: 128 queries and keys take 0.85 of the time
// forward and 0.78 backward, 512 0.67 and 0.68, causal ones 0.93 and 0.78.
inline Panel panel_of(const AttentionCall& call) {
  constexpr int64_t kMany = 128;
  if (call.dtype != DType::f32 || !splits_fast() || std::min(call.queries, call.keys) < kMany) {
    return panel_for(call.dtype);
  }
  return panel_for(call.dtype, call.queries, call.keys, call.features + call.value_features);
}

inline bool is_empty(const AttentionCall& call) {
  for (int i = 0; i < call.lead_dims; ++i) {
    if (call.lead[i] == 0) return true;
  }
  return false;
}

}  // namespace deft::cpu::heads
