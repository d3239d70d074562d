// The blocked GEMM. Each thread cuts its part of c into blocks: a packed block of a (rows x k) stays in L2, a panel of
// b in L1, and the register tile runs over all panels of a for each panel of b. Partial sums over k beyond tile.block_k
// live in c itself where it can hold them, else in a workspace.
#include "kernels/cpu/gemm/blocked_gemm.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "kernels/cpu/autotune.h"
#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/gemm_few_rows.h"
#include "kernels/cpu/gemm/gemm_partition.h"
#include "kernels/cpu/gemm/gemm_requantized.h"
#include "kernels/cpu/gemm/pack_split.h"
#include "kernels/cpu/gemm/tile_series.h"
#include "kernels/cpu/workspace.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

namespace deft::cpu {

namespace {

using detail::ColumnTerms;
using detail::kMostColumns;
using detail::rows_in_place;

constexpr int64_t kBlockBytesB = 4 << 20, kSmallBlockBytesB = 576 << 10, kAmxBlockBytesB = 256 << 10;
constexpr int64_t kRowBytesB = 128;          // of a row of b where it is packed, at least: two cache lines
constexpr int64_t kPanelBytesB = 384 << 10;  // for a b of at most this size, every panel of a runs over all of b
constexpr int64_t kKeepBytesA = 1 << 20;     // rows of a of at most this size stay packed while b streams by
constexpr int64_t kSumRows = 1024, kSumBytes = 4 << 20;  // block of c whose partial sums live in a workspace
constexpr int64_t kShareBytes = 256 << 20;               // an operand larger than this is not packed as a whole
constexpr int64_t kMostRows = 1024;                      // of a block
constexpr int64_t kStackBytes = 32 << 10;
constexpr int64_t kBeyond = 128;  // bytes that may be read past the sums
// Split panels: while tiles run on a b that stays in L2, they prefetch the rows that are packed next, kAheadBytes per
// step.
constexpr int64_t kNearBytesB = 1 << 20, kAheadBytes = 1536;
// Prefetching the next panel of b in bursts holds up loads on x86 (128 x 768 x 3072 with AMX: 680 GFLOP/s with it, 800
// without; f32: 98 and 106). The f32 tiles there prefetch as they run (run_ahead, run_rows): 3 x 3 convolutions of 512
// channels on 7 x 7 pixels inside ResNet-50 run at 116 GFLOP/s instead of 94.
// Rows of c are worth prefetching on x86 only (fetch_rows()). Small tiles below each other are stored together, up to
// kStripBytes of sums: on a Neoverse-V1 the bf16 GEMMs of ResNet-50 take 0.98 to 1 of the time, those of BERT-base for
// one row 0.98, f32 as long; twice kStripBytes gains BERT 0.5 % and costs ResNet-50 0.4 %. (Not measured on x86.) A
// thread pays off there from kPackWork values to pack: BERT-base in bf16 takes 0.985 of the time, as both cores pack
// the 128 x 768. On 16 threads with AMX four times kPackWork makes no difference beyond the noise.
#if defined(__x86_64__)
constexpr bool kFetchPanels = false, kFetchRows = true;
constexpr int64_t kStripBytes = 0, kPackWork = 64 << 10;
#else
constexpr bool kFetchPanels = true, kFetchRows = false;
constexpr int64_t kStripBytes = 3072, kPackWork = 16 << 10;
#endif

int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
bool is_bytes(Panel panel) { return panel == Panel::s8 || panel == Panel::u8s8; }
int64_t sum_size(Panel panel) { return panel == Panel::f64 ? 8 : 4; }
DType sum_dtype(Panel panel) { return panel == Panel::f64 ? DType::f64 : is_bytes(panel) ? DType::i32 : DType::f32; }

void pack_panels(const PanelSource& from, const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0,
                 int64_t k, void* out, int32_t* sums) {
#if defined(__x86_64__)
  if (tile.panel == Panel::split) return pack_split(from, tile, side, l0, lines, k0, k, out);
#endif
  from.pack(tile, side, l0, lines, k0, k, out, sums);
}

// Scratch memory that is on the stack when small: an eager 64 x 64 matmul should not allocate.
class Scratch {
 public:
  Scratch(int64_t bytes, void* stack) : heap_(bytes > kStackBytes ? bytes : 0), data_(stack) {
    if (bytes > kStackBytes) data_ = heap_.data();
  }
  char* data() const { return static_cast<char*>(data_); }

 private:
  Workspace<char> heap_;
  void* data_;
};

// One thread's rectangle of c.
class Region {
 public:
  explicit Region(const BlockedGemm& p) : p_(p), t_(*p.tile), rows_in_place_(rows_in_place(p)) {
    const Epilogue& e = p.epilogue;
    holds_sums_ = p.c_dtype == sum_dtype(t_.panel) && p.c_col == 1 && !p.row_offsets;
    direct_ = holds_sums_ && e.plain();
    const bool sums_in_c = holds_sums_ && (direct_ || (!e.accumulate && e.residual != p.c));
    own_sums_ = !sums_in_c && p.k > t_.block_k;
    streams_ = p.c_dtype == DType::bf16 && !e.accumulate && e.residual != p.c && streams(p.m * p.n * 2);
  }

  void run(int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const int64_t depth = std::min(t_.padded_k(p_.k), t_.block_k), size = size_of(t_.panel);
    rows_ = block_rows(m1 - m0, depth * size);
    columns_ = own_sums_ ? std::min(n1 - n0, kSumBytes / sum_size(t_.panel) / kSumRows / t_.nr * t_.nr) : n1 - n0;
    // Where all of a fits into L2, b streams by in blocks small enough to be in cache when they are used: 256 x 768 x
    // 768 with rows in place gains 5 %. Prefetching in the tile what is packed next gains nothing. With AMX, blocks of
    // b of 256 KB instead of 576: bf16 128 x 768 x 768 takes 0.94 of the time, 49 x 512 x 4608 0.9, bytes 0.9 to 0.95.
    const int64_t chunk = own_sums_ ? std::min(m1 - m0, round_up(kSumRows, t_.mr)) : m1 - m0;
    const bool small_a = round_up(chunk, t_.mr) * depth * size <= kKeepBytesA;
    keeps_packed_ = p_.b && !p_.packed_b && !p_.packed_a && !rows_in_place_ && small_a;
    const bool keeps_a = small_a && (p_.packed_a || keeps_packed_ || rows_in_place_);
    const int64_t b_block = !keeps_a ? kBlockBytesB : t_.begin ? kAmxBlockBytesB : kSmallBlockBytesB;
    b_columns_ = columns_;
    if (!p_.packed_b) {
      const int64_t most = std::max({b_block / depth / size, kRowBytesB / size, int64_t{t_.nr}});
      b_columns_ = std::min(columns_, most / t_.nr * t_.nr);
    }
    const int64_t a_rows = rows_in_place_ ? t_.mr : round_up(keeps_packed_ ? chunk : std::min(rows_, chunk), t_.mr);
    const int64_t a_bytes = p_.packed_a ? 0 : a_rows * depth * size;
    const int64_t b_bytes = p_.packed_b ? 0 : round_up(b_columns_, t_.nr) * depth * size;
    const int64_t sum_bytes = own_sums_ ? chunk * columns_ * sum_size(t_.panel) : 0;
    const bool sums_of_b = is_bytes(t_.panel) && !p_.packed_b && p_.epilogue.a_zero != 0;
    const int64_t line_bytes = sums_of_b ? round_up(columns_, t_.nr) * 4 : 0;
    const int64_t part_bytes = parts_of(depth / t_.k_step) > 1 ? rows_ * t_.nr * sum_size(t_.panel) + kBeyond : 0;
    alignas(64) char stack[kStackBytes];
    const Scratch scratch(
        round_up(a_bytes, 64) + round_up(b_bytes, 64) + round_up(sum_bytes, 64) + part_bytes + line_bytes, stack);
    a_ = scratch.data();
    b_ = a_ + round_up(a_bytes, 64);
    sums_ = b_ + round_up(b_bytes, 64);
    part_sums_ = sums_ + round_up(sum_bytes, 64);
    line_sums_ = line_bytes ? reinterpret_cast<int32_t*>(part_sums_ + part_bytes) : nullptr;
    const detail::TileSeries series(t_);
    for (int64_t i = m0; i < m1; i += chunk) {
      for (int64_t j = n0; j < n1; j += columns_) columns(i, std::min(m1, i + chunk), j, std::min(n1, j + columns_));
    }
    if (streams_) end_stream();
  }

 private:
  // As many rows as fit into L2, in blocks of about the same size.
  int64_t block_rows(int64_t rows, int64_t line_bytes) const {
    // AMX panels are deep. On a Neoverse-V1 (kStripBytes) bf16 takes half of L1 instead of a quarter: 3136 x 64 x 576
    // takes 0.96 of the time, 3136 x 128 x 256 0.98, 784 x 128 x 512 1.01. f32 gains nothing.
    const bool near = p_.block_bytes == kBlockBytes[1] && kStripBytes > 0 && t_.panel == Panel::bf16;
    const int64_t bytes = t_.begin || near ? 2 * p_.block_bytes : p_.block_bytes;
    const int64_t most = std::clamp<int64_t>(bytes / line_bytes, t_.mr, kMostRows) / t_.mr * t_.mr;
    const int64_t blocks = (rows + most - 1) / most;
    return round_up((rows + blocks - 1) / blocks, t_.mr);
  }

  void columns(int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    m0_ = m0, n0_ = n0;
    if (line_sums_) std::memset(line_sums_, 0, static_cast<size_t>(n1 - n0) * 4);
    for (int64_t k0 = 0; k0 < p_.k; k0 += t_.block_k) {
      const int64_t k = std::min(t_.block_k, p_.k - k0);
      for (int64_t j = n0; j < n1; j += b_columns_) {
        const int64_t columns = std::min(b_columns_, n1 - j);
        const void* b = b_;
        if (p_.packed_b) {
          b = p_.packed_b->panels(j, k0);
        } else {
          pack_panels(*p_.b, t_, Side::b, j, columns, k0, k, b_, line_sums_ ? line_sums_ + (j - n0) : nullptr);
        }
        if (keeps_packed_ && j == n0) pack_panels(*p_.a, t_, Side::a, m0, m1 - m0, k0, k, a_, nullptr);
        for (int64_t i = m0; i < m1; i += rows_) {
          const int64_t rows = std::min(rows_, m1 - i);
          b_next_ = i + rows < m1 || !p_.packed_b ? b : after(j, columns, n0, n1, k0, k);
          a_next_ = i + rows < m1 && columns * k * size_of(t_.panel) <= kNearBytesB ? rows_at(i + rows) : nullptr;
          block(left(i, rows, k0, k), b, i, rows, j, columns, k0, k);
        }
      }
    }
  }
  // Where b is read next after this block of it.
  const void* after(int64_t j, int64_t columns, int64_t n0, int64_t n1, int64_t k0, int64_t k) const {
    if (j + columns < n1) return p_.packed_b->panels(j + columns, k0);
    if (k0 + k < p_.k) return p_.packed_b->panels(n0, k0 + k);
    return n1 < p_.n ? p_.packed_b->panels(n1, 0) : p_.packed_b->panels(n0, 0);
  }
  // The rows of a that are split next, if they are contiguous.
  const char* rows_at(int64_t i) const {
    const bool packs = t_.panel == Panel::split && p_.a && !p_.packed_a && !keeps_packed_;
    const StridedMatrix* a = packs ? p_.a->strided() : nullptr;
    if (!a || a->step != 1 || a->line != p_.k || p_.k > t_.block_k) return nullptr;
    return static_cast<const char*>(a->in) + i * a->line * static_cast<int64_t>(deft::size_of(a->dtype));
  }
  // Panels of a block of rows of a, packed unless a is read in place.
  const void* left(int64_t i, int64_t rows, int64_t k0, int64_t k) {
    if (p_.packed_a) return p_.packed_a->panels(i, k0);
    if (keeps_packed_) return a_ + (i - m0_) * t_.padded_k(k) * size_of(t_.panel);
    if (!reads_in_place(i + rows)) pack_panels(*p_.a, t_, Side::a, i, rows, k0, k, a_, nullptr);
    return a_;
  }
  // A last tile with too few rows starts earlier, on rows the tile before it has done, and drops their results. Only a
  // matrix with fewer rows than a tile has to be packed.
  bool reads_in_place(int64_t end) const { return rows_in_place_ && end >= t_.mr; }

  void block(const void* a, const void* b, int64_t i0, int64_t rows, int64_t j0, int64_t columns, int64_t k0,
             int64_t k) {
    const bool last = k0 + k == p_.k;
    const int64_t padded = t_.padded_k(k), size = size_of(t_.panel);
    const int64_t panel_bytes = t_.nr * padded * size, share = round_up(panel_bytes * t_.mr / rows, 64);
    const bool accumulates = direct_ && p_.epilogue.accumulate;
    const bool in_place = reads_in_place(i0 + rows), asks_ahead = in_place || t_.run_ahead;
    int64_t offsets[kMostRows];
    if (last && !direct_) row_offsets(i0, rows, offsets);
    for (int64_t j = 0; j < columns; j += t_.nr) {
      const char* b_panel = static_cast<const char*>(b) + j * padded * size;
      const int live_columns = static_cast<int>(std::min<int64_t>(t_.nr, columns - j));
      if (last && !direct_) terms_of(j0 + j, live_columns);
      // Each tile prefetches a part of the next panel of b. With few tiles per panel (few rows) the hardware does
      // better alone: 22 instead of 12 GB/s for bf16.
      const char* ahead = b_panel + panel_bytes;
      const bool fetch_next = kFetchPanels && rows > 3 * t_.mr && j + t_.nr < columns;
      const char* ahead_end = fetch_next ? ahead + panel_bytes : ahead;
      const char* const next = j + t_.nr < columns ? ahead : static_cast<const char*>(b_next_);
      const int64_t parts = parts_of(padded / t_.k_step);
      const auto fetch = [&] {
        const char* fetched = std::min(ahead_end, ahead + share);
        for (; ahead < fetched; ahead += 64) __builtin_prefetch(ahead, 0, 2);
      };
      int64_t done = 0;
      const bool stores = last && !direct_, near = p_.c_row <= INT_MAX / kMostRows;
      if (kStripBytes > 0 && !in_place && parts == 1 && live_columns == t_.nr && (near || !stores)) {
        const Tile first{a, b_panel, padded / t_.k_step, i0, j0 + j, static_cast<int>(rows / t_.mr * t_.mr), t_.nr};
        done = whole_tiles(first, t_.mr * padded * size, k0 > 0 || accumulates, stores, offsets, fetch);
      }
      for (int64_t part = 0; part < parts; ++part) {
        for (int64_t i = done; i < rows; i += t_.mr) {
          fetch();
          Tile tile{a,           b_panel, padded / t_.k_step,
                    i0 + i,      j0 + j,  static_cast<int>(std::min<int64_t>(t_.mr, rows - i)),
                    live_columns};
          if (in_place) {
            find_rows(tile, k0, j == 0);
          } else {
            tile.a = static_cast<const char*>(a) + i * padded * size;
          }
          if (asks_ahead) tile.b_ahead = next + i / t_.mr * share;
          if (a_next_) tile.b_ahead = a_next_, a_next_ += tile.steps * kAheadBytes;
          if (parts > 1) cut(tile, i, rows, part, parts);
          if (part + 1 < parts) {
            sum_part(tile, part > 0, k0 > 0 || accumulates, i0 + i - m0_, j0 + j - n0_);
          } else if (direct_ || !last) {
            sum_tile(tile, k0 > 0 || accumulates, i0 + i - m0_, j0 + j - n0_);
          } else {
            finish_tile(tile, k0 > 0, i0 + i - m0_, j0 + j - n0_, offsets + i);
          }
        }
      }
    }
  }

  int64_t parts_of(int64_t steps) const {
    if (rows_in_place_ || t_.part_steps == 0) return 1;
    return std::max<int64_t>(1, (steps + t_.part_steps / 2) / t_.part_steps);
  }

  struct Tile {
    const void *a, *b;
    int64_t steps, i, j;
    int rows, columns;
    bool in_place = false;
    int dropped = 0;    // rows above the tile that are computed again and dropped
    int64_t ahead = 0;  // bytes to the rows of the next tile while they still come from memory; else 0
    const void* b_ahead = nullptr;
    char* waiting = nullptr;  // sums over the parts of k so far, in rows of nr
  };
  // Points the tile at rows of a in place.
  void find_rows(Tile& t, int64_t k0, bool from_memory) const {
    const int64_t size = size_of(t_.panel), line = rows_in_place_->line;
    t.in_place = true;
    t.dropped = t_.mr - t.rows;
    t.a = static_cast<const char*>(rows_in_place_->in) + ((t.i - t.dropped) * line + k0) * size;
    t.ahead = from_memory ? t_.mr * line * size : 0;
  }
  // Limits the tile at row i of a block to one of the parts of k. What is prefetched of b is the part that follows in
  // its panel.
  void cut(Tile& t, int64_t i, int64_t rows, int64_t part, int64_t parts) const {
    const int64_t begin = t.steps * part / parts, step = t_.k_step * size_of(t_.panel);
    t.a = static_cast<const char*>(t.a) + begin * step * t_.mr;
    t.b = static_cast<const char*>(t.b) + begin * step * t_.nr;
    t.steps = t.steps * (part + 1) / parts - begin;
    t.waiting = part_sums_ + i * t_.nr * sum_size(t_.panel);
    const int64_t bytes = t.steps * step * t_.nr;
    if (part + 1 < parts) t.b_ahead = static_cast<const char*>(t.b) + bytes + round_up(bytes * i / rows, 64);
  }
  void multiply(const Tile& t, void* c, int64_t c_row, bool add) const {
    if (!t.in_place && t_.run_ahead) return t_.run_ahead(t.steps, t.a, t.b, c, c_row, add, t.b_ahead);
    if (!t.in_place) return t_.run(t.steps, t.a, t.b, c, c_row, add);
    t_.run_rows(t.steps, t.a, t.b, c, c_row, add, rows_in_place_->line * size_of(t_.panel), t.ahead, t.b_ahead);
  }

  // Where the sums of a tile live between blocks of k.
  void* sums_at(const Tile& t, int64_t row, int64_t column, int64_t& step) const {
    const int64_t size = sum_size(t_.panel);
    if (!own_sums_) return step = p_.c_row, static_cast<char*>(p_.c) + (t.i * p_.c_row + t.j) * size;
    return step = columns_, sums_ + (row * columns_ + column) * size;
  }

  // Sums any part of k but the last.
  void sum_part(const Tile& t, bool later, bool add, int64_t row, int64_t column) {
    if (add && !later) {
      int64_t step = 0;
      const void* sums = sums_at(t, row, column, step);
      copy_part(t, sums, step * sum_size(t_.panel), t.waiting, t_.nr * sum_size(t_.panel));
    }
    multiply(t, t.waiting, t_.nr, later || add);
  }
  // A whole tile is summed in place, an incomplete one through the buffer. Both start from the old sums, so that no
  // element depends on which of the two it met.
  void sum_tile(const Tile& t, bool add, int64_t row, int64_t column) {
    int64_t step = 0;
    void* sums = sums_at(t, row, column, step);
    const int64_t size = sum_size(t_.panel);
    if (t.waiting) {
      multiply(t, t.waiting, t_.nr, true);
      return copy_part(t, t.waiting, t_.nr * size, sums, step * size);
    }
    if (t.rows == t_.mr && t.columns == t_.nr) {
      if (kFetchRows) fetch(sums, t, step * size, t.columns * size);
      return multiply(t, sums, step, add);
    }
    if (add) copy_part(t, sums, step * size, rows_in_buffer(t), t_.nr * size);
    multiply(t, buffer_, t_.nr, add);
    copy_part(t, rows_in_buffer(t), t_.nr * size, sums, step * size);
  }
  // Prefetches c while its sums are computed: 4096 x 768 x 768 of f32 gains 4 % with AVX-512. (Writing a large c from
  // the buffer with streaming stores instead gains f32 2 %. bf16 does so: 4096 x 3072 x 768 takes 0.85 of the time.)
  static void fetch(void* c, const Tile& t, int64_t row_bytes, int64_t bytes) {
    for (int i = 0; i < t.rows; ++i) {
      const char* row = static_cast<const char*>(c) + i * row_bytes;
      for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 1);
    }
  }
  // The same for rows at any offset, and for the residual: ResNet-50's convolutions with a residual gain 1 to 2 %. (A
  // Neoverse-V1 prefetches them in hardware: without this, bf16 GEMMs of ResNet-50 take 0.94 to 1 of the time.)
  void fetch_rows(const Tile& t, const int64_t* offsets) const {
    if (p_.c_col != 1) return;
    const auto size = static_cast<int64_t>(deft::size_of(p_.c_dtype));
    const char *c = static_cast<const char*>(p_.c), *residual = static_cast<const char*>(p_.epilogue.residual);
    for (int i = 0; i < t.rows; ++i) {
      const int64_t begin = (offsets[i] + t.j) * size, end = begin + t.columns * size;
      for (int64_t at = begin; at < end; at += 64) {
        if (!streams_) __builtin_prefetch(c + at, 1);
        if (residual) __builtin_prefetch(residual + at);
      }
    }
  }
  char* rows_in_buffer(const Tile& t) { return buffer_ + t.dropped * t_.nr * sum_size(t_.panel); }
  void copy_part(const Tile& t, const void* from, int64_t from_step, void* to, int64_t to_step) const {
    const auto bytes = static_cast<size_t>(t.columns * sum_size(t_.panel));
    for (int i = 0; i < t.rows; ++i) {
      std::memcpy(static_cast<char*>(to) + i * to_step, static_cast<const char*>(from) + i * from_step, bytes);
    }
  }

  void finish_tile(const Tile& t, bool earlier, int64_t row, int64_t column, const int64_t* offsets) {
    char* sums_of_tile = t.waiting ? t.waiting : buffer_;
    if (earlier && !t.waiting) {
      int64_t step = 0;
      const void* sums = sums_at(t, row, column, step);
      copy_part(t, sums, step * sum_size(t_.panel), rows_in_buffer(t), t_.nr * sum_size(t_.panel));
    }
    if (kFetchRows) fetch_rows(t, offsets);
    multiply(t, sums_of_tile, t_.nr, earlier || t.waiting);
    const char* rows = t.waiting ? t.waiting : rows_in_buffer(t);
    detail::store_tile(p_, {t.i, t.j, t.rows, t.columns, t_.nr, rows, offsets, streams_}, terms_);
  }

  // Whole tiles below each other, t.rows in all. At the end of k, a strip of tiles is stored together, from the buffer
  // or from where the sums of earlier blocks of k live, which may be c itself. Returns t.rows.
  template <class Fetch>
  int64_t whole_tiles(Tile t, int64_t panel_bytes, bool add, bool stores, const int64_t* offsets, const Fetch& fetch) {
    const int64_t size = sum_size(t_.panel), rows = t.rows;
    const int64_t most = stores ? std::max<int64_t>(1, kStripBytes / (t_.mr * t_.nr * size)) * t_.mr : rows;
    for (int64_t i = 0; i < rows; i += t.rows, offsets += t.rows, t.i += t.rows) {
      t.rows = static_cast<int>(std::min(most, rows - i));
      int64_t step = t_.nr;
      void* const sums = stores && !add ? buffer_ : sums_at(t, t.i - m0_, t.j - n0_, step);
      char* tile_sums = static_cast<char*>(sums);
      for (int row = 0; row < t.rows; row += t_.mr, tile_sums += t_.mr * step * size) {
        fetch();
        t_.run(t.steps, t.a, t.b, tile_sums, step, add);
        t.a = static_cast<const char*>(t.a) + panel_bytes;
      }
      if (!stores) continue;
      detail::store_tile(p_, {t.i, t.j, t.rows, t.columns, static_cast<int>(step), sums, offsets, streams_}, terms_);
    }
    return rows;
  }

  void row_offsets(int64_t i0, int64_t count, int64_t* offsets) const {
    if (p_.row_offsets) return (*p_.row_offsets)(i0, count, offsets);
    for (int64_t i = 0; i < count; ++i) offsets[i] = (i0 + i) * p_.c_row;
  }
  void terms_of(int64_t j, int count) {
    const int32_t* sums = line_sums_ ? line_sums_ - n0_ : p_.packed_b ? p_.packed_b->sums() : nullptr;
    detail::column_terms(p_, j, count, sums ? sums + j : nullptr, terms_);
  }

  const BlockedGemm& p_;
  const GemmTile& t_;
  const StridedMatrix* rows_in_place_;
  bool holds_sums_, direct_, own_sums_, streams_;
  bool keeps_packed_ = false;                       // all rows of a stay packed while b streams by
  int64_t rows_ = 0, columns_ = 0, b_columns_ = 0;  // sizes of the block of a, of sums, of b
  int64_t m0_ = 0, n0_ = 0;                         // where the block of sums begins
  char *a_ = nullptr, *b_ = nullptr, *sums_ = nullptr, *part_sums_ = nullptr;
  const void* b_next_ = nullptr;  // what is read after the last panel of this block of b
  const char* a_next_ = nullptr;  // rows that are packed next, where b stays in cache
  int32_t* line_sums_ = nullptr;
  ColumnTerms terms_;
  alignas(64) char buffer_[32 * kMostColumns * 8 + kBeyond];  // one tile, or a strip of small ones
};

void run_grid(const BlockedGemm& p, detail::Grid grid, bool bytes) {
  const GemmTile& t = *p.tile;
  const detail::Span row_tiles{0, (p.m + t.mr - 1) / t.mr}, col_tiles{0, (p.n + t.nr - 1) / t.nr};
  const detail::Pieces pieces = detail::choose_pieces(p, grid);
  parallel_balanced(0, grid.rows * grid.cols * pieces.count, pieces.count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t thread = i / pieces.count, piece = i % pieces.count;
      detail::Span rows = row_tiles.part(thread / grid.cols, grid.rows),
                   cols = col_tiles.part(thread % grid.cols, grid.cols);
      (pieces.of_rows ? rows : cols) = (pieces.of_rows ? rows : cols).piece(piece, pieces.count);
      const int64_t m0 = rows.begin * t.mr, m1 = std::min(p.m, rows.end * t.mr);
      const int64_t n0 = cols.begin * t.nr, n1 = std::min(p.n, cols.end * t.nr);
      bytes ? detail::run_bytes(p, m0, m1, n0, n1) : Region(p).run(m0, m1, n0, n1);
    }
  });
}

// An operand that several threads read is packed once, by all of them.
std::unique_ptr<PackedMatrix> share(const BlockedGemm& p, Side side) {
  const PanelSource* from = side == Side::a ? p.a : p.b;
  const int64_t lines = side == Side::a ? p.m : p.n;
  if (packed_bytes(*p.tile, side, lines, p.k) > kShareBytes) return nullptr;
  return std::make_unique<PackedMatrix>(*p.tile, side, *from, lines, p.k, p.epilogue.a_zero != 0);
}

// With k == 0 all sums are zero.
void store_zeros(const BlockedGemm& p) {
  alignas(64) const char zeros[kMostColumns * 8 + 128] = {};
  ColumnTerms terms;
  for (int64_t j = 0; j < p.n; j += p.tile->nr) {
    const int columns = static_cast<int>(std::min<int64_t>(p.tile->nr, p.n - j));
    detail::column_terms(p, j, columns, nullptr, terms);
    for (int64_t i = 0; i < p.m; ++i) {
      int64_t offset = i * p.c_row;
      if (p.row_offsets) (*p.row_offsets)(i, 1, &offset);
      detail::store_tile(p, {i, j, 1, columns, p.tile->nr, zeros, &offset}, terms);
    }
  }
}

}  // namespace

PackedMatrix::PackedMatrix(const GemmTile& tile, Side side, const PanelSource& from, int64_t lines, int64_t k,
                           bool with_sums)
    : tile_(tile), side_(side), lines_(lines), k_(k), bytes_(packed_bytes(tile, side, lines, k)) {
  data_ = allocate_buffer(static_cast<size_t>(std::max<int64_t>(bytes_, 1)));
  const int64_t width = tile.width(side), panels = (lines + width - 1) / width;
  const int64_t grain = std::max<int64_t>(1, kPackWork / std::max<int64_t>(1, width * k));
  try {
    if (side == Side::b && is_bytes(tile.panel) && with_sums) {
      sums_ = static_cast<int32_t*>(allocate_buffer(static_cast<size_t>(std::max<int64_t>(lines, 1)) * 4));
      std::memset(sums_, 0, static_cast<size_t>(lines) * 4);
    }
    parallel_for(0, panels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t k0 = 0; k0 < k; k0 += tile.block_k) {
        const int64_t l0 = begin * width, count = std::min(lines, end * width) - l0;
        pack_panels(from, tile, side, l0, count, k0, std::min(tile.block_k, k - k0),
                    const_cast<void*>(this->panels(l0, k0)), sums_ ? sums_ + l0 : nullptr);
      }
    });
  } catch (...) {
    release();
    throw;
  }
}

PackedMatrix::~PackedMatrix() { release(); }

void PackedMatrix::release() {
  free_buffer(data_, static_cast<size_t>(std::max<int64_t>(bytes_, 1)));
  if (sums_) free_buffer(sums_, static_cast<size_t>(std::max<int64_t>(lines_, 1)) * 4);
}

const void* PackedMatrix::panels(int64_t l0, int64_t k0) const {
  const int64_t all = round_up(lines_, tile_.width(side_));
  const int64_t depth = tile_.padded_k(std::min(tile_.block_k, k_ - k0));
  return static_cast<const char*>(data_) + (k0 * all + l0 * depth) * size_of(tile_.panel);
}

int32_t packed_zero(const GemmTile& tile, DType a, int32_t zero) {
  if (tile.panel == Panel::s8 && a == DType::u8) return zero - 128;
  if (tile.panel == Panel::u8s8 && a == DType::i8) return zero + 128;
  return zero;
}

namespace {

// What callers inside the library must respect.
void check(const BlockedGemm& p) {
  const Epilogue& e = p.epilogue;
  const bool bytes = is_bytes(p.tile->panel), f64 = p.tile->panel == Panel::f64;
  DEFT_ASSERT(f64 == (p.c_dtype == DType::f64));
  DEFT_ASSERT(bytes || p.c_dtype != DType::i32);
  DEFT_ASSERT(p.c_dtype != DType::i32 ||
              (e.alpha == 1 && !e.scale && !e.bias && !e.residual && e.activation == Activation::none));
  DEFT_ASSERT(!e.bias || is_floating(e.bias_dtype));
}

// Where all of b stays in L2, it is read again for each small block of a, which is then still in L1 when it is used:
// 784 x 128 x 512 gains 2 %. Prefetching the next block of a meanwhile loses 1 to 3 %.
int64_t block_bytes(const BlockedGemm& p, int choice) {
  const bool small = p.n * std::min(p.k, p.tile->block_k) * size_of(p.tile->panel) <= kPanelBytesB;
  return kBlockBytes[small && choice < 2 ? 1 - choice : choice];
}

}  // namespace

void run_blocked_gemm(const BlockedGemm& problem) {
  check(problem);
  if (problem.m <= 0 || problem.n <= 0) return;
  if (problem.k <= 0) return store_zeros(problem);
  if (problem.m <= kFewRows && run_few_rows(problem)) return;
  BlockedGemm p = problem;
  if (detail::has_byte_tile(p)) {
    const auto own_b = p.b ? share(p, Side::b) : nullptr;
    if (own_b) p.packed_b = own_b.get();
    if (p.packed_b) return run_grid(p, detail::choose_grid(p), true);
  }
  std::optional<TunedRun> tuned;
  if (p.block_bytes == 0) {
    const auto mr = static_cast<uint32_t>(p.tile->mr), nr = static_cast<uint32_t>(p.tile->nr);
    const uint32_t layout = mr << 8 | nr << 2 | (p.packed_a != nullptr) << 1 | (p.packed_b != nullptr);
    const TuneKey key(TunedOp::gemm, sum_dtype(p.tile->panel), layout,
                      {p.m, p.n, p.k, size_of(p.tile->panel), p.tile->block_k});
    p.block_bytes = block_bytes(p, tuned.emplace(key, std::size(kBlockBytes), p.m * p.n * p.k).choice());
  }
  const detail::Grid grid = detail::choose_grid(p);
  const auto shared_a = detail::shares(p, Side::a, grid) ? share(p, Side::a) : nullptr;
  const auto shared_b = detail::shares(p, Side::b, grid) ? share(p, Side::b) : nullptr;
  if (shared_a) p.packed_a = shared_a.get();
  if (shared_b) p.packed_b = shared_b.get();
  run_grid(p, grid, false);
}

}  // namespace deft::cpu
