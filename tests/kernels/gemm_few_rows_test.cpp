#include "kernels/cpu/gemm/gemm_few_rows.h"

#include <set>

#include "kernels/cpu/gemm/dot_rows.h"
#include "kernels/engine_util.h"
#include "runtime/parallel.h"
#include "runtime/threads_util.h"

namespace deft::test {
namespace {

using cpu::BlockedGemm;

struct Shape {
  int64_t m, n, k;
};
#define TRACE_SHAPE(s) SCOPED_TRACE(testing::Message() << (s).m << " x " << (s).n << " x " << (s).k)

// Two matrices and the terms of an epilogue.
class Problem {
 public:
  Problem(const GemmTile& tile, const Shape& s, DType a, DType b, DType c, int a_layout = 0, int b_layout = 0)
      : tile_(tile),
        s_(s),
        rng_(7),
        a_(a, s.m, s.k, a_layout, Fill::real, rng_),
        b_(b, s.n, s.k, b_layout, Fill::real, rng_),
        c_dtype_(c),
        scale_(values(s.n, 0.01)),
        bias_(values(s.n, 3)),
        residual_(static_cast<size_t>(s.m * s.n) * size_of(c)) {
    for (int64_t i = 0; i < s.m * s.n; ++i) write(c, residual_.data(), i, is_floating(c) ? 0.25 * (i % 9) : i % 9);
  }

  BlockedGemm problem(bool plain) {
    BlockedGemm p;
    p.tile = &tile_, p.m = s_.m, p.n = s_.n, p.k = s_.k;
    p.c_dtype = c_dtype_, p.c_row = s_.n;
    if (plain) return p;
    p.epilogue.bias = bias_.data();
    p.epilogue.residual = residual_.data();
    p.epilogue.activation = cpu::Activation::relu;
    if (!is_floating(a_.dtype())) {
      p.epilogue.scale = scale_.data();
      p.epilogue.a_zero = cpu::packed_zero(tile_, a_.dtype(), 3);
      p.epilogue.out_scale = 7, p.epilogue.out_zero = -5;
    }
    return p;
  }
  // f(p) with c set, next to a fence.
  template <class F>
  std::vector<unsigned char> run(BlockedGemm p, int threads, F f) {
    Threads guard(threads);
    const size_t bytes = static_cast<size_t>(s_.m * s_.n) * size_of(c_dtype_);
    const Fenced memory(bytes);
    p.c = memory.take(bytes);
    std::memset(p.c, 0x3A, bytes);
    f(p);
    return {memory.take(bytes), memory.take(bytes) + bytes};
  }
  // By tiles: a packed left operand never takes the path for few rows.
  std::vector<unsigned char> by_tiles(BlockedGemm problem, const GemmTile& tile) {
    problem.tile = &tile;
    const cpu::StridedSource a(a_.strided()), b(b_.strided());
    const cpu::PackedMatrix packed_a(tile, Side::a, a, s_.m, s_.k), packed_b(tile, Side::b, b, s_.n, s_.k);
    return run(problem, 1, [&](BlockedGemm& p) {
      p.packed_a = &packed_a, p.packed_b = &packed_b;
      cpu::run_blocked_gemm(p);
    });
  }
  const Matrix& a() const { return a_; }
  const Matrix& b() const { return b_; }
  double bias(int64_t j) const { return bias_[static_cast<size_t>(j)]; }
  double residual(int64_t at) const { return read(c_dtype_, residual_.data(), at); }

 private:
  std::vector<float> values(int64_t count, double size) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& x : v) x = static_cast<float>(draw(DType::f32, Fill::real, rng_) * size);
    return v;
  }
  const GemmTile& tile_;
  Shape s_;
  std::mt19937 rng_;
  Matrix a_, b_;
  DType c_dtype_;
  std::vector<float> scale_, bias_;
  std::vector<unsigned char> residual_;
};

// AMX sums bf16 in another order than the instruction for few rows, which another tile has too.
const GemmTile& tile_of_few_rows(const GemmTile& tile) {
  if (tile.panel != Panel::bf16 || !tile.begin) return tile;
  for (const GemmTile& t : cpu::gemm_tiles(tile.panel)) {
    if (!t.begin && !t.portable) return t;
  }
  return tile;
}

void expect_panels_as_tiles(const GemmTile& tile, const Shape& s, bool plain) {
  TRACE_SHAPE(s);
  const DType type = sources(tile.panel)[0];
  const DType c = tile.panel == Panel::f64 ? DType::f64 : is_bytes(tile.panel) ? DType::i8 : DType::f32;
  Problem x(tile, s, type, type, c);
  const BlockedGemm problem = x.problem(plain);
  const auto expected = x.by_tiles(problem, tile), or_else = x.by_tiles(problem, tile_of_few_rows(tile));
  const cpu::StridedSource a(x.a().strided()), b(x.b().strided());
  const cpu::PackedMatrix packed(tile, Side::b, b, s.n, s.k);
  for (int threads : {1, 2, 5}) {
    const auto found = x.run(problem, threads, [&](BlockedGemm& p) {
      p.a = &a, p.packed_b = &packed;
      cpu::run_blocked_gemm(p);
    });
    ASSERT_TRUE(found == expected || found == or_else) << threads << " threads";
  }
}

// Several panels at once give the bits of one after the other, also where streams have different lengths.
TEST(ProductFewRows, PanelsGiveTheBitsOfTiles) {
  for_each_level([] {
    for_each_tile([](const GemmTile& tile) {
      const int64_t w = tile.nr, block = tile.block_k;
      for (int64_t m : {1, 2, 3, 4}) {
        for (int64_t n : {int64_t{1}, w, w + 1, 2 * w, 3 * w - 1, 4 * w, 5 * w + 3})
          expect_panels_as_tiles(tile, {m, n, 2 * tile.k_step + 1}, n % 2 == 0);
      }
      expect_panels_as_tiles(tile, {3, 7 * w + 1, 2 * block + 5}, false);
      expect_panels_as_tiles(tile, {4, 100 * w + 5, 40}, false);
      expect_panels_as_tiles(tile, {2, 49 * w, block + 1}, true);
      if (!tile.portable) expect_panels_as_tiles(tile, {3, 1280, 4400 / cpu::size_of(tile.panel)}, false);  // over 2 MB
    });
  });
}

TEST(ProductFewRows, PanelsWithoutSpecialEnding) {
  for_each_tile([](const GemmTile& tile) {
    const Shape s{4, 3 * tile.nr + 1, 9};
    const DType type = sources(tile.panel)[0];
    const DType sums = tile.panel == Panel::f64 ? DType::f64 : is_bytes(tile.panel) ? DType::i32 : DType::f32;
    Problem x(tile, s, type, type, sums);
    const cpu::StridedSource a(x.a().strided()), b(x.b().strided());
    const cpu::PackedMatrix packed(tile, Side::b, b, s.n, s.k);
    EXPECT_EQ(x.run(x.problem(true), 3,
                    [&](BlockedGemm& p) {
                      p.a = &a, p.packed_b = &packed;
                      cpu::run_blocked_gemm(p);
                    }),
              x.by_tiles(x.problem(true), tile_of_few_rows(tile)));
  });
}

// Lengths of k around the steps of kernels, of 32 and 64 bytes.
std::set<int64_t> lengths(DType dtype) {
  const auto step = static_cast<int64_t>(64 / size_of(dtype));
  return {step, step + 1, step + step / 2 - 1, step + step / 2, 2 * step - 1, 3 * step + 3, 20 * step + 1};
}

// Bytes are read in place; a zero point needs the column sums.
TEST(ProductFewRows, BytesInPlaceAreExact) {
  for_each_level([] {
    for (Panel panel : {Panel::s8, Panel::u8s8}) {
      const DType type = panel == Panel::s8 ? DType::i8 : DType::u8;
      if (cpu::gemm_tiles(panel).empty()) continue;
      const GemmTile& tile = cpu::gemm_tiles(panel)[0];
      SCOPED_TRACE(tile.name);
      for (int64_t m = 1; m <= 17; ++m) {
        for (int64_t k : lengths(type)) {
          const Shape s{m, 3 + 13 * (m + k) % 190, k};
          TRACE_SHAPE(s);
          const bool plain = (m + k) % 3 == 0;
          Problem x(tile, s, type, DType::i8, plain ? DType::i32 : DType::i8, m % 2 ? 0 : 2, k % 2 ? 0 : 5);
          const BlockedGemm problem = x.problem(plain);
          const cpu::StridedSource a(x.a().strided()), b(x.b().strided());
          const auto expected = x.by_tiles(problem, tile);
          for (int threads : {1, 3}) {
            ASSERT_EQ(x.run(problem, threads,
                            [&](BlockedGemm& p) {
                              p.a = &a, p.b = &b;
                              cpu::run_blocked_gemm(p);
                            }),
                      expected);
          }
        }
      }
    }
  });
}

// Floats as PackedLinear calls it.
TEST(ProductFewRows, DotsEndAsAsked) {
  for_each_level([] {
    for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      SCOPED_TRACE(name_of(type));
      const DType sums = type == DType::f64 ? DType::f64 : DType::f32;
      const GemmTile& tile = cpu::gemm_tiles(sums == DType::f64 ? Panel::f64 : Panel::f32)[0];
      for (int64_t k : lengths(type)) {
        if (!cpu::Dots::apply(type, type, k)) continue;
        for (int64_t m : {1, 2, 3, 4, 5, 9, 16}) {
          const Shape s{m, 5 + 17 * (m + k) % 150, k};
          TRACE_SHAPE(s);
          Problem x(tile, s, type, type, sums, 2, 2);
          const cpu::StridedSource a(x.a().strided());
          const auto by_dots = [&](BlockedGemm& p) {
            p.a = &a;
            ASSERT_TRUE(cpu::run_dots(p, x.b().strided()));
          };
          const auto c = x.run(x.problem(false), 1, by_dots);
          ASSERT_EQ(x.run(x.problem(false), 4, by_dots), c);
          for (int64_t i = 0; i < m * s.n; ++i) {
            double sum = x.bias(i % s.n) + x.residual(i), norm = std::abs(sum);
            for (int64_t p = 0; p < k; ++p) {
              const double product = x.a().at(i / s.n, p) * x.b().at(i % s.n, p);
              sum += product, norm += std::abs(product);
            }
            const double found = read(sums, c.data(), i), unit = sums == DType::f64 ? 0x1p-52 : 0x1p-23;
            ASSERT_TRUE(std::abs(found - std::max(0.0, sum)) <= static_cast<double>(k + 4) * unit * norm)
                << i << ": found " << found << ", expected " << sum;
          }
        }
      }
    }
  });
}

// What they cannot do they leave untouched.
TEST(ProductFewRows, DotsRefuse) {
  Problem x(cpu::gemm_tiles(Panel::f32)[0], {2, 8, 64}, DType::f32, DType::f32, DType::f32);
  const cpu::StridedSource a(x.a().strided());
  const auto refuses = [&](auto change) {
    cpu::StridedMatrix b = x.b().strided();
    const auto c = x.run(x.problem(true), 1, [&](BlockedGemm& p) {
      p.a = &a;
      change(p, b);
      EXPECT_FALSE(cpu::run_dots(p, b));
    });
    EXPECT_EQ(c, std::vector<unsigned char>(c.size(), 0x3A));
  };
  refuses([](BlockedGemm&, cpu::StridedMatrix& b) { b.step = 2; });
  refuses([](BlockedGemm&, cpu::StridedMatrix& b) { b.dtype = DType::bf16; });
  refuses([](BlockedGemm& p, cpu::StridedMatrix&) { p.m = cpu::Dots::kMostRows + 1; });
  refuses([](BlockedGemm& p, cpu::StridedMatrix&) { p.k = 3; });
  refuses([](BlockedGemm& p, cpu::StridedMatrix&) { p.epilogue.accumulate = true; });
}

}  // namespace
}  // namespace deft::test
