#include "kernels/cpu/gemm/epilogue.h"

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/engine_util.h"
#include "runtime/parallel.h"

namespace deft::test {
namespace {

using cpu::Activation;
using cpu::BlockedGemm;
using cpu::Epilogue;

constexpr Activation kActivations[] = {Activation::none, Activation::relu,    Activation::gelu, Activation::gelu_tanh,
                                       Activation::silu, Activation::sigmoid, Activation::tanh};
bool is_byte(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }

struct Case {
  DType c, a;
  int64_t m, n, k;
  bool scale = false, bias = false, on_rows = false, accumulate = false, offsets = false, packed = false;
  int residual = 0;  // 1: another matrix, 2: c itself
  Activation activation = Activation::none;
  DType bias_dtype = DType::f32;
  float alpha = 1, out_scale = 1;
  int32_t a_zero = 0, out_zero = 0;
  int64_t col = 1;  // of c
};
std::ostream& operator<<(std::ostream& s, const Case& x) {
  return s << "c " << name_of(x.c) << " a " << name_of(x.a) << " " << x.m << " x " << x.n << " x " << x.k << " scale "
           << x.scale << " bias " << x.bias << name_of(x.bias_dtype) << " on rows " << x.on_rows << " accumulate "
           << x.accumulate << " offsets " << x.offsets << " packed " << x.packed << " residual " << x.residual
           << " activation " << static_cast<int>(x.activation) << " alpha " << x.alpha << " out " << x.out_scale << ", "
           << x.out_zero << " a_zero " << x.a_zero << " col " << x.col;
}

// What c holds for a value: bytes by scale and zero point.
double stored(const Case& x, double v) {
  if (is_byte(x.c)) {
    const double low = x.c == DType::i8 ? -128 : 0;
    return std::clamp(std::nearbyint(v / x.out_scale) + x.out_zero, low, low + 255);
  }
  double cell = 0;
  write(x.c, &cell, 0, v);
  return read(x.c, &cell, 0);
}
double meaning(const Case& x, double cell) { return is_byte(x.c) ? (cell - x.out_zero) * x.out_scale : cell; }

// Values next to a fence.
class Values {
 public:
  Values(DType dtype, int64_t count)
      : dtype_(dtype), bytes_(static_cast<size_t>(count) * size_of(dtype)), memory_(bytes_) {}
  void* data() const { return memory_.take(bytes_); }
  double operator[](int64_t i) const { return read(dtype_, data(), i); }
  void set(int64_t i, double v) { write(dtype_, data(), i, v); }

 private:
  DType dtype_;
  size_t bytes_;
  Fenced memory_;
};

// Small whole numbers and powers of two, so that every step is exact in f32 until an activation or the store rounds.
class Finished {
 public:
  Finished(const GemmTile& tile, const Case& x, uint32_t seed, Fill fill = Fill::whole)
      : tile_(tile),
        x_(x),
        rng_(seed),
        a_(x.a, x.m, x.k, 0, fill, rng_),
        b_(is_bytes(tile.panel) ? DType::i8 : x.a, x.n, x.k, 1, fill, rng_),
        row_(x.n * x.col + 2),
        elements_((x.m - 1) * row_ + (x.n - 1) * x.col + 1),
        lines_(x.on_rows ? x.m : x.n),
        c_(x.c, elements_),
        residual_(x.c, elements_),
        scale_(DType::f32, lines_),
        bias_(x.bias_dtype, lines_) {
    for (int64_t i = 0; i < elements_; ++i) c_.set(i, random_cell()), residual_.set(i, random_cell());
    for (int64_t i = 0; i < lines_; ++i) {
      scale_.set(i, std::ldexp(1, static_cast<int>(rng_() % 4) - 2));
      bias_.set(i, 0.25 * (static_cast<double>(rng_() % 33) - 16));
    }
    for (int64_t i = 0; i < elements_; ++i) old_.push_back(c_[i]);
  }
  Matrix& a() { return a_; }
  Values& scale() { return scale_; }
  Values& bias() { return bias_; }
  double found(int64_t i, int64_t j) const { return c_[at(i, j)]; }

  void run() {
    // Bytes before panels shift them: zero points correct for the shift.
    a_values_ = a_.values(is_bytes(tile_.panel) ? Panel::f64 : tile_.panel, Side::a);
    b_values_ = b_.values(tile_.panel, Side::b);
    const cpu::StridedSource a(a_.strided()), b(b_.strided());
    std::unique_ptr<cpu::PackedMatrix> packed_b;
    if (x_.packed) packed_b = std::make_unique<cpu::PackedMatrix>(tile_, Side::b, b, x_.n, x_.k);
    const auto place = [this](int64_t i0, int64_t count, int64_t* offsets) {
      for (int64_t i = 0; i < count; ++i) offsets[i] = at(i0 + i, 0);
    };
    const FunctionRef<void(int64_t, int64_t, int64_t*)> offsets(place);
    BlockedGemm p;
    p.tile = &tile_, p.m = x_.m, p.n = x_.n, p.k = x_.k;
    p.a = &a, p.b = packed_b ? nullptr : &b, p.packed_b = packed_b.get();
    p.c = c_.data(), p.c_dtype = x_.c, p.c_row = row_, p.c_col = x_.col;
    if (x_.offsets) p.row_offsets = &offsets;
    Epilogue& e = p.epilogue;
    e.alpha = x_.alpha, e.on_rows = x_.on_rows, e.accumulate = x_.accumulate, e.activation = x_.activation;
    if (x_.scale) e.scale = static_cast<const float*>(scale_.data());
    if (x_.bias) e.bias = bias_.data(), e.bias_dtype = x_.bias_dtype;
    if (x_.residual) e.residual = x_.residual == 1 ? residual_.data() : c_.data();
    if (is_bytes(tile_.panel)) e.a_zero = cpu::packed_zero(tile_, x_.a, x_.a_zero);
    e.out_scale = x_.out_scale, e.out_zero = x_.out_zero;
    cpu::run_blocked_gemm(p);
  }

  // The value before the activation; `norm`: how large its parts are.
  double value(int64_t i, int64_t j, double& norm) const {
    double sum = 0, size = 0;
    for (int64_t p = 0; p < x_.k; ++p) {
      const double x =
          (a_values_[static_cast<size_t>(i * x_.k + p)] - x_.a_zero) * b_values_[static_cast<size_t>(j * x_.k + p)];
      sum += x, size += std::abs(x);
    }
    const int64_t line = x_.on_rows ? i : j;
    const double factor = x_.alpha * (x_.scale ? scale_[line] : 1), bias = x_.bias ? bias_[line] : 0;
    const double old = meaning(x_, old_[static_cast<size_t>(at(i, j))]);
    const double residual = x_.residual == 0 ? 0 : x_.residual == 2 ? old : meaning(x_, residual_[at(i, j)]);
    norm = std::abs(factor) * size + std::abs(bias) + std::abs(residual) + std::abs(old);
    return sum * factor + bias + residual + (x_.accumulate ? old : 0);
  }

  // `roundings`: of f32, relative to the size of the parts.
  void check(double roundings = 0) const {
    std::vector<bool> touched(static_cast<size_t>(elements_));
    for (int64_t i = 0; i < x_.m; ++i) {
      for (int64_t j = 0; j < x_.n; ++j) {
        double norm = 0;
        const double x = value(i, j, norm), y = activate(x_.activation, x);
        const bool exact = x_.activation == Activation::none || x_.activation == Activation::relu;
        const bool short_gelu = x_.activation == Activation::gelu && x_.c == DType::bf16;
        const double tolerance = (roundings > 0 ? roundings * 0x1p-23 * norm : 0) +
                                 (exact ? 0 : 8 * 0x1p-23 * (1 + std::abs(x))) +
                                 (short_gelu ? 1e-4 * std::abs(y) + 5e-9 : 0);
        const double low = stored(x_, y - tolerance), high = stored(x_, y + tolerance);
        const double got = found(i, j);
        ASSERT_TRUE(low <= got && got <= high)
            << i << ", " << j << ": found " << got << ", expected " << low << " to " << high;
        touched[static_cast<size_t>(at(i, j))] = true;
      }
    }
    for (size_t i = 0; i < touched.size(); ++i) {
      ASSERT_TRUE(touched[i] || c_[static_cast<int64_t>(i)] == old_[i]) << "written outside of c, at " << i;
    }
  }
  // Rows of c are two elements apart from each other.
  bool kept_the_rest() const {
    for (int64_t i = 0; i + 1 < x_.m; ++i) {
      for (int64_t at = i * row_ + x_.n; at < (i + 1) * row_; ++at) {
        if (c_[at] != old_[static_cast<size_t>(at)]) return false;
      }
    }
    return true;
  }

 private:
  double random_cell() {
    if (is_byte(x_.c)) return static_cast<double>(rng_() % 50) + (x_.c == DType::i8 ? -20 : 60);
    return static_cast<double>(rng_() % 17) - 8;
  }
  int64_t at(int64_t i, int64_t j) const { return (x_.offsets ? x_.m - 1 - i : i) * row_ + j * x_.col; }

  const GemmTile& tile_;
  Case x_;
  std::mt19937 rng_;
  Matrix a_, b_;
  int64_t row_, elements_, lines_;
  Values c_, residual_, scale_, bias_;
  std::vector<double> old_, a_values_, b_values_;
};

std::vector<DType> results(Panel panel) {
  if (panel == Panel::f64) return {DType::f64};
  std::vector<DType> all{DType::f32, DType::bf16, DType::f16, DType::i8, DType::u8};
  if (is_bytes(panel)) all.push_back(DType::i32);
  return all;
}

// Any mixture; an int32 c has sums only.
Case random_case(const GemmTile& tile, DType c, std::mt19937& rng) {
  const auto maybe = [&] { return rng() % 2 == 0; };
  const auto one_of = [&](auto... options) {
    const std::common_type_t<decltype(options)...> all[] = {options...};
    return all[rng() % sizeof...(options)];
  };
  const std::vector<DType> types = sources(tile.panel);
  Case x{c, types[rng() % types.size()], 1 + static_cast<int64_t>(rng() % static_cast<uint32_t>(2 * tile.mr)),
         1 + static_cast<int64_t>(rng() % static_cast<uint32_t>(2 * tile.nr)), static_cast<int64_t>(rng() % 21)};
  if (rng() % 16 == 0) x.k = tile.block_k + 1 + static_cast<int64_t>(rng() % 5);
  x.col = one_of(1, 1, 1, 2, 3), x.offsets = rng() % 4 == 0, x.packed = maybe(), x.accumulate = maybe();
  x.a_zero = is_bytes(tile.panel) && maybe() ? 3 : 0;
  if (c == DType::i32) return x;
  x.scale = maybe(), x.bias = maybe(), x.on_rows = maybe(), x.residual = one_of(0, 0, 1, 2);
  x.alpha = one_of(1.0f, 1.0f, 0.5f, -2.0f);
  x.bias_dtype = one_of(DType::f32, DType::bf16, DType::f16, DType::f64);
  x.activation = maybe() ? Activation::none : kActivations[rng() % std::size(kActivations)];
  if (is_byte(c))
    x.out_scale = one_of(0.5f, 2.0f, 8.0f), x.out_zero = c == DType::i8 ? one_of(0, -3, 100) : one_of(0, 3, 128);
  return x;
}

TEST(Epilogue, AnyMixture) {
  for_each_tile([](const GemmTile& tile) {
    std::mt19937 rng(11);
    for (DType c : results(tile.panel)) {
      for (uint32_t i = 0; i < 250; ++i) {
        const Case x = random_case(tile, c, rng);
        SCOPED_TRACE(testing::Message() << x);
        Finished r(tile, x, i);
        r.run();
        r.check();
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// Each alone on every type of c, at every level, so that nothing else can hide it.
TEST(Epilogue, OneThingAtATime) {
  for_each_level([] {
    for_each_tile([](const GemmTile& tile) {
      for (DType c : results(tile.panel)) {
        const DType a = sources(tile.panel)[0];
        const Case plain{c, a, tile.mr + 1, tile.nr + 3, 11};
        std::vector<Case> cases(11, plain);
        cases[1].accumulate = cases[2].offsets = true;
        cases[3].col = 2;
        if (is_bytes(tile.panel)) cases[4].a_zero = -7;
        if (c != DType::i32) {
          cases[5].scale = cases[6].bias = cases[7].bias = cases[7].on_rows = true;
          cases[8].residual = 1, cases[9].residual = 2, cases[10].alpha = 4;
          for (Activation f : kActivations) cases.push_back(plain), cases.back().activation = f;
        }
        for (const Case& x : cases) {
          SCOPED_TRACE(testing::Message() << x);
          Finished r(tile, x, 3);
          r.run();
          r.check();
          if (testing::Test::HasFailure()) return;
        }
      }
    });
  });
}

// Tiles below each other may be stored together, also from where their sums live between blocks of k.
TEST(Epilogue, ManyTilesBelowEachOther) {
  for_each_tile([](const GemmTile& tile) {
    const int64_t rows = (tile.mr * tile.nr <= 128 ? 11 : 2) * tile.mr + 1;  // more small ones than are stored together
    for (DType c : results(tile.panel)) {
      if (c == DType::i32) continue;  // has no epilogue
      for (Activation f : {Activation::none, Activation::relu, Activation::gelu}) {
        for (int64_t k : {int64_t{9}, tile.block_k + 9}) {
          for (int residual : {0, 1}) {
            Case x{c, sources(tile.panel)[0], rows, 2 * tile.nr + 1, k};
            x.bias = x.packed = true, x.activation = f, x.residual = residual, x.alpha = 0.015625f, x.out_scale = 0.25f;
            SCOPED_TRACE(testing::Message() << x);
            Finished r(tile, x, 6);
            r.run();
            r.check(8);
          }
        }
      }
    }
  });
}

// The last rows of c are an incomplete tile and take another path: the same values get the same bits.
TEST(Epilogue, ActivationsOfPartsOfTiles) {
  for_each_tile([](const GemmTile& tile) {
    if (is_bytes(tile.panel)) return;
    for (DType c : results(tile.panel)) {
      if (is_byte(c)) continue;
      for (Activation f : kActivations) {
        Case x{c, sources(tile.panel)[0], tile.mr + 3, 2 * tile.nr, 9};
        x.bias = true, x.activation = f;
        SCOPED_TRACE(testing::Message() << x);
        Finished r(tile, x, 5);
        for (int64_t i = 0; i < 3; ++i) {
          for (int64_t p = 0; p < x.k; ++p) {
            const double v = 0.0625 * static_cast<double>((i * 31 + p * 17) % 23 - 11);
            r.a().set(i, p, v), r.a().set(tile.mr + i, p, v);
          }
        }
        r.run();
        for (int64_t i = 0; i < 3; ++i) {
          for (int64_t j = 0; j < x.n; ++j) ASSERT_EQ(r.found(i, j), r.found(tile.mr + i, j)) << i << ", " << j;
        }
      }
    }
  });
}

// Scales that are no powers of two: q may be off where value / out_scale is within a few roundings of a tie only.
TEST(Epilogue, AnyScale) {
  for_each_tile([](const GemmTile& tile) {
    for (DType c : results(tile.panel)) {
      if (c == DType::i32 || c == DType::f64) continue;
      for (int residual : {0, 1}) {
        Case x{c, sources(tile.panel)[0], tile.mr + 1, tile.nr + 1, 70};
        x.scale = x.bias = true, x.residual = residual, x.alpha = 0.37f;
        x.out_scale = is_bytes(tile.panel) ? 900.1f : 0.013f, x.out_zero = c == DType::i8 ? -5 : 120;
        SCOPED_TRACE(testing::Message() << x);
        Finished r(tile, x, 9, Fill::real);
        r.run();
        r.check(static_cast<double>(x.k + 8));
      }
    }
  });
}

// Ties go to even, and values out of range saturate, on the fast path of bytes and on the general one.
TEST(Epilogue, RoundsAndSaturatesBytes) {
  for_each_tile([](const GemmTile& tile) {
    if (tile.panel == Panel::f64) return;
    for (DType c : {DType::i8, DType::u8}) {
      for (int way = 0; way < 3; ++way) {
        Case x{c, sources(tile.panel)[0], 1, 48, 1};
        x.bias = true, x.alpha = 0, x.out_zero = c == DType::i8 ? 1 : 100;
        x.residual = 0, x.col = way == 1 ? 2 : 1;
        if (way == 2) x.activation = Activation::relu;
        Finished r(tile, x, 1);
        constexpr double kSpecial[] = {1e30, -1e30, INFINITY, -INFINITY, 40000, -40000, 3e9, -3e9};
        for (int64_t j = 0; j < x.n; ++j) {
          r.bias().set(j, j < 8    ? kSpecial[j]
                          : j < 28 ? static_cast<double>(j) - 18.5
                                   : 20 * (static_cast<double>(j) - 38));
        }
        r.run();
        r.check();
      }
    }
  });
}

TEST(Epilogue, NanIsKeptAndBecomesTheZeroPointOfBytes) {
  for_each_tile([](const GemmTile& tile) {
    if (is_bytes(tile.panel)) return;
    for (DType c : results(tile.panel)) {
      for (Activation f : kActivations) {
        Case x{c, sources(tile.panel)[0], 3, tile.nr + 1, 9};
        x.bias = true, x.activation = f, x.out_zero = 7;
        Finished r(tile, x, 1);
        r.a().set(1, 4, NAN);
        r.run();
        for (int64_t j = 0; j < x.n; ++j) {
          EXPECT_TRUE(is_byte(c) ? r.found(1, j) == 7 : std::isnan(r.found(1, j))) << static_cast<int>(f);
          EXPECT_FALSE(std::isnan(r.found(0, j)));
        }
      }
    }
  });
}

// Far from zero activations are their limits, not NaN.
TEST(Epilogue, ActivationsOfLargeValues) {
  for (Panel panel : {Panel::f32, Panel::f64}) {
    const GemmTile& tile = cpu::gemm_tiles(panel)[0];
    for (Activation f : kActivations) {
      for (double v : {-3e38, -1e19, -1e4, -90.0, 90.0, 1e4, 1e19, 3e38}) {
        Case x{sources(panel)[0], sources(panel)[0], 1, 1, 0};
        x.bias = true, x.bias_dtype = x.c, x.activation = f;
        Finished r(tile, x, 1);
        r.bias().set(0, v);
        r.run();
        const double expected = activate(f, r.bias()[0]);
        EXPECT_LE(std::abs(r.found(0, 0) - expected), 1e-6 * (1e-30 + std::abs(expected)))
            << static_cast<int>(f) << " of " << v << ": found " << r.found(0, 0) << ", expected " << expected;
      }
    }
  }
}

// Tiles that requantise in registers against the same tiles through sums in memory.
TEST(Epilogue, TilesThatRequantiseGiveTheSameBytes) {
  for_each_tile([](const GemmTile& tile) {
    if (!tile.requantize) return;
    GemmTile plain = tile;
    plain.requantize = nullptr;
    std::mt19937 rng(5);
    for (uint32_t round = 0; round < 150; ++round) {
      const auto below = [&](uint32_t limit) { return static_cast<int64_t>(rng() % limit); };
      Case x{rng() % 2 ? DType::i8 : DType::u8, rng() % 2 ? DType::i8 : DType::u8, 1 + below(40), 1 + below(90),
             1 + below(200)};
      x.scale = x.bias = true, x.packed = rng() % 2, x.a_zero = rng() % 2 ? 3 : 0;
      x.activation = rng() % 2 ? Activation::none : Activation::relu;
      x.out_zero = static_cast<int32_t>(rng() % 256) - (x.c == DType::i8 ? 128 : 0);
      constexpr float kScales[] = {0.5f, 64.0f, 256.0f, 1024.0f, 333.3f, 1e-20f};
      x.out_scale = kScales[rng() % std::size(kScales)];
      SCOPED_TRACE(testing::Message() << x);
      Finished found(tile, x, round, Fill::real), expected(plain, x, round, Fill::real);
      for (int64_t j = 0; j < x.n && round % 3 == 0; ++j) {
        const double odd = static_cast<double>(rng() % 2000) * 1e-3 - 1;
        found.scale().set(j, odd), expected.scale().set(j, odd);
      }
      if (round % 10 == 0) {
        constexpr float kOdd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
        const float odd = kOdd[rng() % std::size(kOdd)];
        Values &a = rng() % 2 ? found.scale() : found.bias(),
               &b = &a == &found.scale() ? expected.scale() : expected.bias();
        a.set(x.n / 2, odd), b.set(x.n / 2, odd);
      }
      found.run(), expected.run();
      for (int64_t i = 0; i < x.m; ++i) {
        for (int64_t j = 0; j < x.n; ++j) ASSERT_EQ(found.found(i, j), expected.found(i, j)) << i << ", " << j;
      }
      ASSERT_TRUE(found.kept_the_rest());
    }
  });
}

TEST(Epilogue, ZeroPointsOfShiftedBytes) {
  GemmTile tile = cpu::gemm_tiles(Panel::s8)[0];
  EXPECT_EQ(cpu::packed_zero(tile, DType::i8, 5), 5);
  EXPECT_EQ(cpu::packed_zero(tile, DType::u8, 5), -123);
  tile.panel = Panel::u8s8;
  EXPECT_EQ(cpu::packed_zero(tile, DType::i8, 5), 133);
  EXPECT_EQ(cpu::packed_zero(tile, DType::u8, 5), 5);
}

// Whole cache lines of bf16 are rounded by other instructions than parts of them, and large ones written with streaming
// stores.
TEST(Epilogue, Bf16IsRoundedAsTheScalarDoes) {
  constexpr int kRows = 5, kWidth = 32, kStride = 2 * kWidth;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {0.0f,       -0.0f, 1e-40f,  -1e-40f,   0x1.fep-127f,    0x1.01p0f,
                           0x1.03p0f,  inf,   -inf,    nan,       3.4028e38f,      -3.4028e38f,
                           0x1.ffp-1f, 1.5f,  -2.125f, 0x1p-133f, 0x1.fffffep-127f};
  for_each_level([&] {
    alignas(64) float sums[kRows * kWidth + 32] = {};
    std::mt19937 rng(4);
    for (int i = 0; i < kRows * kWidth; ++i) {  // rows with and without subnormal numbers
      sums[i] = i < 2 * kWidth ? special[static_cast<size_t>(i) % std::size(special)]
                               : std::ldexp(static_cast<float>(rng() % 4096) - 2048, static_cast<int>(rng() % 9) - 12);
    }
    for (int columns : {kWidth, kWidth - 1}) {
      for (int form = 0; form < 16; ++form) {
        const bool relu = form & 1, residual = form & 2, streams = form & 4, shifted = form & 8;
        SCOPED_TRACE(testing::Message() << columns << " columns, form " << form);
        alignas(64) BFloat16 c[kRows * kStride + 32], more[kRows * kStride + 32];
        std::fill(std::begin(c), std::end(c), BFloat16(7.0f));
        for (BFloat16& x : more) x = BFloat16(static_cast<float>(rng() % 64) - 32);
        BFloat16 *to = c + shifted, *from = more + shifted;
        BlockedGemm p;
        p.tile = &cpu::gemm_tiles(cpu::panel_for(DType::bf16))[0];
        p.m = kRows, p.n = columns, p.k = 1, p.c = to, p.c_dtype = DType::bf16, p.c_row = kStride;
        if (relu) p.epilogue.activation = Activation::relu;
        if (residual) p.epilogue.residual = from;
        cpu::detail::ColumnTerms terms;
        std::fill(std::begin(terms.scale), std::end(terms.scale), 1.0f);
        std::fill(std::begin(terms.bias), std::end(terms.bias), -0.0f);
        int64_t offsets[kRows];
        for (int i = 0; i < kRows; ++i) offsets[i] = i * kStride;
        cpu::detail::store_tile(p, {0, 0, kRows, columns, kWidth, sums, offsets, streams}, terms);
        cpu::end_stream();
        for (int i = 0; i < kRows; ++i) {
          for (int j = 0; j < kStride - 1; ++j) {
            float x = j < columns ? sums[i * kWidth + j] : 7.0f;
            if (residual && j < columns) x += static_cast<float>(from[offsets[i] + j]);
            if (relu && j < columns && x < 0) x = 0;
            const BFloat16 found = to[offsets[i] + j], expected(x);
            if (std::isnan(x)) {
              ASSERT_TRUE(std::isnan(static_cast<float>(found))) << i << ", " << j;
            } else {
              ASSERT_EQ(found.bits, expected.bits) << i << ", " << j << ": " << x;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace deft::test
