#include "kernels/cpu/gemm/blocked_gemm.h"

#include <atomic>
#include <functional>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "kernels/engine_util.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "runtime/threads_util.h"

namespace deft::test {
namespace {

using cpu::BlockedGemm;

DType sum_dtype(Panel panel) { return panel == Panel::f64 ? DType::f64 : is_bytes(panel) ? DType::i32 : DType::f32; }
#if defined(__aarch64__)
constexpr bool kChainsRestart = true;  // sums of a later block of k begin at zero and are added to c
#else
constexpr bool kChainsRestart = false;
#endif

struct Shape {
  int64_t m, n, k;
};
struct Layouts {
  int a = 0, b = 0, c = 0;
};
// The layout of c: rows, with gaps, columns, reversed rows, every second column.
struct Place {
  int64_t row, col, origin, elements;
};
constexpr int kPlaces = 5;
Place place(int kind, int64_t m, int64_t n) {
  const Place all[kPlaces] = {{n, 1, 0, m * n},
                              {n + 3, 1, 0, (m - 1) * (n + 3) + n},
                              {1, m, 0, m * n},
                              {-n, 1, (m - 1) * n, m * n},
                              {2 * n, 2, 0, 2 * m * n - 1}};
  return all[kind];
}

// Two matrices, and c next to a fence: everything a GEMM reads and writes.
class Problem {
 public:
  Problem(const GemmTile& tile, Shape s, Layouts l, DType a, DType b, Fill fill, uint32_t seed)
      : tile_(tile),
        s_(s),
        rng_(seed),
        a_(a, s.m, s.k, l.a, fill, rng_),
        b_(b, s.n, s.k, l.b, fill, rng_),
        place_(place(l.c, s.m, s.n)),
        bytes_(static_cast<size_t>(place_.elements) * size_of(sum_dtype(tile.panel))),
        memory_(bytes_ + kFront) {}
  Problem(const GemmTile& tile, Shape s, Layouts l = {}, Fill fill = Fill::real, uint32_t seed = 1)
      : Problem(tile, s, l, sources(tile.panel)[0], sources(tile.panel)[0], fill, seed) {}

  Matrix& a() { return a_; }
  Matrix& b() { return b_; }
  void pack_for(const GemmTile& tile) { b_tile_ = &tile; }
  void set_block_bytes(int64_t bytes) { block_bytes_ = bytes; }
  void set_a_zero(int32_t zero) { a_zero_ = zero; }

  // Runs it over a c of known contents; the memory around c must not change. Returns all bytes.
  std::vector<unsigned char> run(int threads = 1, bool pack_a = false, bool pack_b = false, bool accumulate = false) {
    Threads guard(threads);
    unsigned char* c = memory_.take(bytes_);
    std::memset(c - kFront, kOld, bytes_ + kFront);
    const cpu::StridedSource a(a_.strided()), b(b_.strided());
    std::unique_ptr<cpu::PackedMatrix> packed_a, packed_b;
    if (pack_a) packed_a = std::make_unique<cpu::PackedMatrix>(tile_, Side::a, a, s_.m, s_.k);
    if (pack_b) packed_b = std::make_unique<cpu::PackedMatrix>(*b_tile_, Side::b, b, s_.n, s_.k);
    BlockedGemm p;
    p.tile = &tile_, p.m = s_.m, p.n = s_.n, p.k = s_.k;
    p.a = pack_a ? nullptr : &a, p.b = pack_b ? nullptr : &b;
    p.packed_a = packed_a.get(), p.packed_b = packed_b.get();
    p.c_dtype = sum_dtype(tile_.panel), p.c_row = place_.row, p.c_col = place_.col;
    p.c = c + static_cast<size_t>(place_.origin) * size_of(p.c_dtype);
    p.epilogue.accumulate = accumulate, p.epilogue.a_zero = a_zero_, p.block_bytes = block_bytes_;
    cpu::run_blocked_gemm(p);
    for (size_t i = 1; i <= kFront; ++i) EXPECT_EQ(c[-static_cast<int64_t>(i)], kOld) << "written before c";
    return {c, c + bytes_};
  }
  double found(const std::vector<unsigned char>& c, int64_t i, int64_t j) const {
    return read(sum_dtype(tile_.panel), c.data(), place_.origin + i * place_.row + j * place_.col);
  }

  // Bytes exactly, floats within k roundings of sums of f32 (of f64). NaN and infinity must be at their places.
  void check(const std::vector<unsigned char>& c, bool accumulate = false) const {
    const std::vector<double> a = a_.values(tile_.panel, Side::a), b = b_.values(tile_.panel, Side::b);
    const DType dtype = sum_dtype(tile_.panel);
    std::vector<unsigned char> untouched(bytes_, kOld), rest = c;
    const double old = accumulate ? read(dtype, untouched.data(), 0) : 0;
    const double roundings = static_cast<double>(s_.k + 4) * epsilon_of(dtype);
    const auto size = static_cast<int64_t>(size_of(dtype));
    for (int64_t i = 0; i < s_.m; ++i) {
      for (int64_t j = 0; j < s_.n; ++j) {
        double sum = old, norm = std::abs(old);
        for (int64_t p = 0; p < s_.k; ++p) {
          const double x = (a[static_cast<size_t>(i * s_.k + p)] - a_zero_) * b[static_cast<size_t>(j * s_.k + p)];
          sum += x, norm += std::abs(x);
        }
        const double got = found(c, i, j);
        const bool good = std::isfinite(norm) ? std::abs(got - sum) <= roundings * norm
                                              : got == sum || (std::isnan(got) && std::isnan(sum));
        ASSERT_TRUE(good) << i << ", " << j << ": found " << got << ", expected " << sum << " of size " << norm;
        const int64_t at = place_.origin + i * place_.row + j * place_.col;
        std::memset(rest.data() + at * size, kOld, static_cast<size_t>(size));
      }
    }
    ASSERT_TRUE(rest == untouched) << "written between the elements of c";
  }

 private:
  static constexpr size_t kFront = 64;
  static constexpr unsigned char kOld = 0x3A;

  const GemmTile& tile_;
  Shape s_;
  std::mt19937 rng_;
  Matrix a_, b_;
  Place place_;
  size_t bytes_;
  Fenced memory_;
  const GemmTile* b_tile_ = &tile_;
  int64_t block_bytes_ = cpu::kBlockBytes[0];
  int32_t a_zero_ = 0;
};

#define TRACE_SHAPE(s) SCOPED_TRACE(testing::Message() << (s).m << " x " << (s).n << " x " << (s).k)

// Every size around a tile, each with other layouts, types and packed operands.
void check_sizes(const GemmTile& tile) {
  const int64_t r = tile.mr, c = tile.nr, step = tile.k_step;
  const std::set<int64_t> rows{1, r - 1, r, r + 1, 2 * r}, columns{1, c - 1, c, c + 1, 2 * c};
  const std::set<int64_t> depths{1, step - 1, step, step + 1, 2 * step + 3};
  const std::vector<DType> types = sources(tile.panel);
  uint32_t turn = 0;
  for (int64_t m : rows) {
    for (int64_t n : columns) {
      for (int64_t k : depths) {
        if (m == 0 || n == 0 || k == 0) continue;
        const Shape s{m, n, k};
        TRACE_SHAPE(s);
        const uint32_t t = turn++;
        const Layouts l{static_cast<int>(t % kLayouts), static_cast<int>(t / 5 % kLayouts),
                        static_cast<int>(t % kPlaces)};
        Problem x(tile, s, l, types[t % types.size()], types[t / 2 % types.size()], Fill::real, t);
        const bool accumulate = t % 7 < 2;
        x.check(x.run(1, t % 3 == 0, t % 4 == 0, accumulate), accumulate);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(BlockedGemm, EverySizeAroundATile) {
  for_each_level([] { for_each_tile(check_sizes); });
}

// Longer than one block of k: partial sums live in c, or in a workspace where c cannot hold them.
TEST(BlockedGemm, SeveralBlocksOfK) {
  for_each_tile([](const GemmTile& tile) {
    const int64_t block = tile.block_k;
    for (const Shape s : {Shape{1, 1, block - 1},
                          {1, tile.nr + 1, block},
                          {tile.mr + 1, 1, block + 1},
                          {tile.mr + 1, tile.nr + 1, 2 * block + 3},
                          {2 * tile.mr, tile.nr, 3 * block}}) {
      TRACE_SHAPE(s);
      for (int c = 0; c < kPlaces; ++c) {
        Problem x(tile, s, {c % 2, (c + 1) % 2, c}, Fill::real, 3);
        x.check(x.run(1, c == 1, c == 2, c > 2), c > 2);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// Operands larger than the blocks of rows, of columns and of sums.
TEST(BlockedGemm, SeveralBlocksOfRowsAndColumns) {
  for (Panel panel : kPanels) {
    if (cpu::gemm_tiles(panel).empty()) continue;
    const GemmTile& tile = cpu::gemm_tiles(panel)[0];
    SCOPED_TRACE(tile.name);
    const int64_t deep = tile.block_k + 5;
    const int64_t wide = (4 << 20) / (tile.block_k * cpu::size_of(panel)) + tile.nr + 1;
    for (const Shape s : {Shape{300, 31, deep}, {1050, 3, deep}, {5, wide, deep}, {2100, 7, 9}, {3, 1100, deep}}) {
      TRACE_SHAPE(s);
      for (int c : {0, 4}) {
        Problem x(tile, s, {0, 1, c});
        const auto one = x.run();
        x.check(one);
        EXPECT_EQ(x.run(3), one);
        EXPECT_EQ(x.run(1, true, true), one);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Column sums of b are kept over all blocks of k, while blocks of b are packed one after the other.
TEST(BlockedGemm, ZeroPointsWithSeveralBlocksOfColumns) {
  for (Panel panel : {Panel::s8, Panel::u8s8}) {
    if (cpu::gemm_tiles(panel).empty()) continue;
    const GemmTile& tile = cpu::gemm_tiles(panel)[0];
    const Shape s{5, 300, tile.block_k + 16};
    SCOPED_TRACE(tile.name);
    Problem x(tile, s);
    x.set_a_zero(7);
    const auto one = x.run();
    x.check(one);
    EXPECT_EQ(x.run(3), one);
    EXPECT_EQ(x.run(1, false, true), one);
  }
}

TEST(BlockedGemm, DegenerateShapes) {
  for (Panel panel : {Panel::f32, Panel::bf16, Panel::f16, Panel::s8}) {
    if (cpu::gemm_tiles(panel).empty()) continue;
    const GemmTile& tile = cpu::best_tile(panel, 1, 1);
    SCOPED_TRACE(tile.name);
    for (const Shape s : {Shape{1, 100000, 3}, {100000, 1, 2}, {1, 1, 100000}, {0, 5, 3}, {5, 0, 3}, {0, 0, 0}}) {
      TRACE_SHAPE(s);
      if (s.m * s.n == 0) {
        BlockedGemm p;
        p.tile = &tile, p.m = s.m, p.n = s.n, p.k = s.k;
        cpu::run_blocked_gemm(p);  // nothing to read or write
        continue;
      }
      Problem x(tile, s);
      const auto one = x.run();
      x.check(one);
      EXPECT_EQ(x.run(7, true, true), one);
    }
  }
}

TEST(BlockedGemm, NothingToSumIsZero) {
  for_each_tile([](const GemmTile& tile) {
    for (int c = 0; c < kPlaces; ++c) {
      for (bool accumulate : {false, true}) {
        Problem x(tile, {tile.mr + 1, tile.nr + 1, 0}, {7, 7, c});
        x.check(x.run(2, false, false, accumulate), accumulate);
        x.check(x.run(1, true, true, accumulate), accumulate);
      }
    }
  });
}

// For any number of threads, packed in advance, by one thread or by all together.
TEST(BlockedGemm, TheSameBitsHoweverItIsRun) {
  for_each_tile([](const GemmTile& tile) {
    for (const Shape s : {Shape{61, 93, 150}, {200, 9, tile.block_k + 7}, {9, 200, 2 * tile.block_k + 3}}) {
      TRACE_SHAPE(s);
      for (int c : {0, 4}) {
        for (bool accumulate : {false, true}) {
          Problem x(tile, s, {0, 1, c}, Fill::real, 5);
          const auto one = x.run(1, false, false, accumulate);
          for (int threads : {2, 3, 7})
            EXPECT_EQ(x.run(threads, false, false, accumulate), one) << threads << " threads";
          for (int64_t bytes : cpu::kBlockBytes) {
            x.set_block_bytes(bytes);
            EXPECT_EQ(x.run(2, false, false, accumulate), one) << "blocks of " << bytes;
          }
          EXPECT_EQ(x.run(3, true, false, accumulate), one) << "a packed before";
          EXPECT_EQ(x.run(1, false, true, accumulate), one) << "b packed before";
          EXPECT_EQ(x.run(2, true, true, accumulate), one) << "both packed before";
        }
      }
      if (testing::Test::HasFailure()) return;
    }
  });
}

// An element has the same bits anywhere in a tile: as in a GEMM of its row and its column alone.
TEST(BlockedGemm, TheSameBitsAtEveryPlace) {
  for_each_tile([](const GemmTile& tile) {
    const Shape s{tile.mr + 1, tile.nr + 2, 2 * tile.block_k + 3};
    for (bool accumulate : {false, true}) {
      for (int c : {0, 4}) {
        Problem x(tile, s, {0, 0, c}), one(tile, {1, 1, s.k}, {0, 0, c});
        const auto all = x.run(1, false, false, accumulate);
        for (int64_t i = 0; i < s.m; i += i + 3 < s.m ? 3 : 1) {
          for (int64_t j = 0; j < s.n; j += j + 5 < s.n ? 5 : 1) {
            for (int64_t p = 0; p < s.k; ++p) one.a().set(0, p, x.a().at(i, p)), one.b().set(0, p, x.b().at(j, p));
            ASSERT_EQ(x.found(all, i, j), one.found(one.run(1, false, false, accumulate), 0, 0)) << i << ", " << j;
          }
        }
      }
    }
  });
}

// Note [One chain]: the choice of tile never changes a result of f32, f64 or bytes.
TEST(BlockedGemm, TheSameBitsWithEveryTile) {
  for (Panel panel : {Panel::f32, Panel::f64, Panel::s8, Panel::u8s8}) {
    const std::span<const GemmTile> tiles = cpu::gemm_tiles(panel);
    for (const GemmTile& tile : tiles) {
      SCOPED_TRACE(tile.name);
      if (kChainsRestart) {
        EXPECT_EQ(tile.block_k, tiles[0].block_k);
      }
      const int64_t longest = kChainsRestart || !tile.portable ? 2 * tiles[0].block_k + 3 : tile.block_k;
      for (const Shape s : {Shape{25, 37, 100}, {13, 33, longest}}) {
        TRACE_SHAPE(s);
        Problem x(tile, s), y(tiles[0], s);
        EXPECT_EQ(x.run(), y.run());
      }
    }
  }
}
#if defined(__aarch64__)
TEST(BlockedGemm, TheSameBitsWithBothTilesOfBf16) {
  const std::span<const GemmTile> tiles = cpu::gemm_tiles(Panel::bf16);
  for (const GemmTile& tile : tiles) {
    Problem x(tile, {25, 37, 2 * tile.block_k + 3}), y(tiles[0], {25, 37, 2 * tile.block_k + 3});
    EXPECT_EQ(x.run(), y.run()) << tile.name;
  }
}
#endif

// A long k that is cut into parts: sums live in a buffer, also those that c or an earlier block of k begins with.
TEST(BlockedGemm, TheSameBitsInPartsOfK) {
  for_each_tile([](const GemmTile& tile) {
    GemmTile whole = tile, parts = tile, in_place = tile;
    whole.run_rows = parts.run_rows = nullptr;
    whole.part_steps = 0, parts.part_steps = in_place.part_steps = 2;
    if (kChainsRestart || tile.portable || tile.panel == Panel::split) return;  // parts would round differently
    for (const Shape s : {Shape{2 * tile.mr + 3, tile.nr + 5, 9 * tile.k_step + 1},
                          {tile.mr, tile.nr, 3 * tile.k_step},
                          {tile.mr / 2, 3, 64 * tile.k_step},  // lower than a tile: packed where rows are in place
                          {tile.mr + 1, tile.nr, 2 * tile.block_k + 5 * tile.k_step}}) {
      TRACE_SHAPE(s);
      for (int c = 0; c < kPlaces; ++c) {
        for (bool accumulate : {false, true}) {
          Problem x(parts, s, {0, 1, c}, Fill::real, 7), y(whole, s, {0, 1, c}, Fill::real, 7);
          const auto expected = y.run(1, false, false, accumulate);
          EXPECT_EQ(x.run(1, false, false, accumulate), expected);
          EXPECT_EQ(x.run(3, false, c == 2, accumulate), expected);
          Problem z(in_place, s, {0, 1, c}, Fill::real, 7);
          EXPECT_EQ(z.run(1, false, false, accumulate), expected) << "in place";
        }
      }
      if (testing::Test::HasFailure()) return;
    }
  });
}

// Tiles that read rows in place: those of this machine; others pack them first.
const GemmTile* rows_tile = nullptr;
void run_rows_by_packing(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add, int64_t a_row,
                         int64_t, const void*) {
  const GemmTile& t = *rows_tile;
  const int64_t k = steps * t.k_step;
  const DType dtype = t.panel == Panel::f32    ? DType::f32
                      : t.panel == Panel::bf16 ? DType::bf16
                      : t.panel == Panel::f16  ? DType::f16
                      : t.panel == Panel::s8   ? DType::i8
                                               : DType::u8;
  std::vector<char> panel(static_cast<size_t>(cpu::packed_bytes(t, Side::a, t.mr, k)));
  cpu::pack(t, Side::a, {dtype, a, a_row / cpu::size_of(t.panel), 1}, 0, t.mr, 0, k, panel.data());
  t.run(steps, panel.data(), b, c, c_row, add);
}
TEST(BlockedGemm, TheSameBitsWithRowsInPlace) {
  for_each_tile([](const GemmTile& tile) {
    if (tile.panel == Panel::f64) return;
    rows_tile = &tile;
    GemmTile packing = tile, reading = tile;
    packing.run_rows = nullptr;
    if (!reading.run_rows) reading.run_rows = run_rows_by_packing;
    const std::vector<DType> types = sources(tile.panel);
    for (const Shape s : {Shape{2 * tile.mr + 1, tile.nr + 1, 4 * tile.k_step},
                          {tile.mr, 9, tile.k_step + 1},
                          {97, 85, 2 * tile.block_k + tile.k_step}}) {
      TRACE_SHAPE(s);
      for (int kind : {0, 1, 2, 5, 6, 10}) {
        const DType a = types[kind == 2 || types.size() == 1 ? 0 : 1], b = types[0];
        Problem x(reading, s, {kind, 0, kind % 2}, a, b, Fill::real, 3),
            y(packing, s, {kind, 0, kind % 2}, a, b, Fill::real, 3);
        const auto expected = y.run();
        for (int threads : {1, 3}) EXPECT_EQ(x.run(threads), expected) << "layout " << kind;
        EXPECT_EQ(x.run(1, true), expected) << "packed before";
      }
    }
  });
}

// Weights packed for many rows serve GEMMs of few rows, by another tile.
TEST(BlockedGemm, PackedForAnotherTile) {
  for_each_tile([](const GemmTile& tile) {
    for (int64_t m = 1; m <= 2 * tile.mr; ++m) {
      const GemmTile& other = cpu::tile_for_rows(tile, m);
      EXPECT_LE(other.mr, tile.mr);
      const Shape s{m, tile.nr + 1, tile.block_k + 9};
      TRACE_SHAPE(s);
      Problem x(other, s, {}, Fill::whole);
      x.pack_for(tile);
      x.check(x.run(1, false, true));
    }
  });
}

// The largest sums of bytes, and more of them than fit into 24 bits.
TEST(BlockedGemm, BytesAreExactAtTheirLimits) {
  for (Panel panel : {Panel::s8, Panel::u8s8}) {
    for (const GemmTile& tile : cpu::gemm_tiles(panel)) {
      SCOPED_TRACE(tile.name);
      const Shape s{tile.mr + 1, tile.nr + 1, 2 * tile.block_k + 3};
      const DType a = panel == Panel::s8 ? DType::i8 : DType::u8;
      for (int signs = 0; signs < 4; ++signs) {
        Problem x(tile, s, {}, a, DType::i8, Fill::real, 1);
        for (int64_t p = 0; p < s.k; ++p) {
          for (int64_t i = 0; i < s.m; ++i) x.a().set(i, p, a == DType::u8 ? 255 : signs & 1 ? -128 : 127);
          for (int64_t j = 0; j < s.n; ++j) x.b().set(j, p, signs & 2 ? -128 : 127);
        }
        x.check(x.run());
      }
    }
  }
}

// NaN stays in its row or column, also next to the zeros that fill up panels.
TEST(BlockedGemm, NanAndInfinityStayInTheirLines) {
  for_each_tile([](const GemmTile& tile) {
    if (is_bytes(tile.panel)) return;
    for (int64_t k : {int64_t{1}, int64_t{tile.k_step} + 1, tile.block_k + 1}) {
      const Shape s{tile.mr + 2, tile.nr + 2, k};
      TRACE_SHAPE(s);
      for (double odd : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
        Problem x(tile, s, {}, Fill::whole);
        x.a().set(s.m - 1, k - 1, odd);
        x.a().set(1, 0, odd);
        x.b().set(s.n - 1, k - 1, -odd);
        x.b().set(0, k / 2, odd);
        x.check(x.run());
      }
    }
  });
}

// Packs like a matrix, and throws after a number of calls.
class Failing : public cpu::StridedSource {
 public:
  Failing(const cpu::StridedMatrix& m, int calls) : StridedSource(m), left_(calls) {}
  void pack(const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0, int64_t k, void* out,
            int32_t* sums) const override {
    if (left_-- <= 0) throw std::runtime_error("cannot pack");
    StridedSource::pack(tile, side, l0, lines, k0, k, out, sums);
  }
  const cpu::StridedMatrix* strided() const override { return nullptr; }  // not to be read in place

 private:
  mutable std::atomic<int> left_;
};

// A failure anywhere is passed on and leaks no memory: freed memory is used again. (With a sanitizer nothing is reused,
// and it looks for leaks itself.)
void expect_no_leak(const std::function<void()>& fails) {
#if defined(DEFT_ASAN) || defined(DEFT_TSAN)
  for (int i = 0; i < 3; ++i) fails();
  return;
#endif
  constexpr int kTimes = 40;
  for (int i = 0; i < 3; ++i) fails();
  const int64_t before = system_allocations();
  for (int i = 0; i < kTimes; ++i) fails();
  EXPECT_LT(system_allocations(), before + kTimes);  // threads that had no work before take memory once
}

TEST(BlockedGemm, FailuresWhilePackingLeaveNothingBehind) {
  for (Panel panel : {Panel::f32, Panel::s8}) {
    const GemmTile& tile = cpu::gemm_tiles(panel)[0];
    const Shape s{300, 310, tile.block_k + 1};
    std::mt19937 rng(1);
    const DType dtype = sources(panel)[0];
    const Matrix a(dtype, s.m, s.k, 0, Fill::real, rng), b(dtype, s.n, s.k, 0, Fill::real, rng);
    const cpu::StridedSource good_a(a.strided()), good_b(b.strided());
    std::vector<int32_t> c(static_cast<size_t>(s.m * s.n));
    BlockedGemm p;
    p.tile = &tile, p.m = s.m, p.n = s.n, p.k = s.k;
    p.c = c.data(), p.c_dtype = sum_dtype(panel), p.c_row = 1, p.c_col = s.m;
    for (int threads : {1, 3}) {
      Threads guard(threads);
      for (int calls : {0, 1}) {
        expect_no_leak([&] {
          const Failing bad_a(a.strided(), calls), bad_b(b.strided(), calls);
          p.a = &bad_a, p.b = &good_b;
          EXPECT_THROW(cpu::run_blocked_gemm(p), std::runtime_error);
          p.a = &good_a, p.b = &bad_b;
          EXPECT_THROW(cpu::run_blocked_gemm(p), std::runtime_error);
        });
      }
      p.a = &good_a, p.b = &good_b;
      for (int64_t nth = 0; nth < 4; ++nth) {
        expect_no_leak([&] {
          fail_allocation_after(nth);
          try {
            const cpu::PackedMatrix packed(tile, Side::b, good_b, s.n, s.k);
            cpu::run_blocked_gemm(p);
          } catch (const OutOfMemoryError&) {
          }
          fail_allocation_after(-1);
        });
      }
    }
  }
}

}  // namespace
}  // namespace deft::test
