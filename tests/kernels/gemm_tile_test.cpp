#include "kernels/cpu/gemm/gemm_tile.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/gemm/pack.h"
#include "runtime/cpu_isa.h"
#include "runtime/half.h"

namespace deft::cpu {
namespace {

constexpr Panel kPanels[] = {Panel::f32, Panel::f64, Panel::f16, Panel::bf16, Panel::s8, Panel::u8s8, Panel::split};
bool is_bytes(Panel p) { return p == Panel::s8 || p == Panel::u8s8; }
// Each sum is a chain of fused multiply-adds. x86-64 before AVX2 rounds each multiplication.
bool is_chain(const GemmTile& t) {
#if defined(__x86_64__)
  if (!cpu_has("fma")) return false;
#endif
  return !is_bytes(t.panel) && t.panel != Panel::bf16 && !t.begin;
}

// Memory that ends where an inaccessible page begins: reading past a panel is noticed.
class Fenced {
 public:
  explicit Fenced(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(bytes) {
    room_ = (bytes + 64 + page_ - 1) / page_ * page_;
    void* p = mmap(nullptr, room_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(p);
    mprotect(base_ + room_, page_, PROT_NONE);
  }
  ~Fenced() { munmap(base_, room_ + page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  unsigned char* data() const { return base_ + room_ - bytes_; }
  // All of it, with what lies before data().
  std::vector<unsigned char> snapshot() const { return {base_, base_ + room_}; }
  size_t offset() const { return room_ - bytes_; }

 private:
  size_t page_, bytes_, room_;
  unsigned char* base_;
};

// The values of an operand: random, the largest and smallest only, one of these everywhere, small integers (whose sums
// are exact in any order).
enum class Fill { random, extremes, constant, whole };

class Lines {
 public:
  // misaligned: the panel begins between two vectors.
  Lines(const GemmTile& tile, Side side, int64_t k, Fill fill, bool misaligned, std::mt19937& rng)
      : k_(k),
        values_(static_cast<size_t>(tile.width(side) * k)),
        panel_(bytes_of(tile, side, k) + static_cast<size_t>(misaligned ? size_of(tile.panel) : 0)) {
    for (double& v : values_) v = draw(tile.panel, side, fill, rng);
    pack(tile, side);
  }
  const double* line(int64_t i) const { return &values_[static_cast<size_t>(i * k_)]; }
  const void* panel() const { return panel_.data(); }

 private:
  static size_t bytes_of(const GemmTile& tile, Side side, int64_t k) {
    return static_cast<size_t>(tile.padded_k(k) * tile.width(side) * size_of(tile.panel));
  }
  static double draw(Panel panel, Side side, Fill fill, std::mt19937& rng) {
    const auto whole = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
    if (is_bytes(panel)) {
      const bool positive = panel == Panel::u8s8 && side == Side::a;
      const int low = positive ? 0 : -128, high = positive ? 255 : 127;
      if (fill == Fill::extremes) return whole(0, 1) ? low : high;
      if (fill == Fill::constant) return positive ? high : low;
      return whole(low, high);
    }
    if (fill == Fill::whole) return whole(-8, 8);
    const double x = whole(-10000, 10000) * 0.37e-3 * (fill == Fill::extremes ? std::ldexp(1, whole(-8, 8)) : 1);
    switch (panel) {
      case Panel::f64:
        return x;
      case Panel::f16:
        return Half(static_cast<float>(x));
      case Panel::bf16:
        return BFloat16(static_cast<float>(x));
      default:
        return static_cast<float>(x);
    }
  }
  template <class T>
  static void write(unsigned char*& out, T value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
  }
  static void put(Panel panel, double v, unsigned char*& out) {
    switch (panel) {
      case Panel::f32:
        return write(out, static_cast<float>(v));
      case Panel::f64:
        return write(out, v);
      case Panel::f16:
        return write(out, Half(static_cast<float>(v)));
      case Panel::bf16:
        return write(out, BFloat16(static_cast<float>(v)));
      default:
        return write(out, static_cast<uint8_t>(static_cast<int>(v)));
    }
  }
  void pack(const GemmTile& tile, Side side) {
    unsigned char* out = panel_.data();
    if (tile.panel == Panel::split) {
      const std::vector<float> values(values_.begin(), values_.end());
      return cpu::pack(tile, side, {DType::f32, values.data(), k_, 1}, 0, tile.width(side), 0, k_, out);
    }
    const int group = tile.group(side);
    for (int64_t k0 = 0; k0 < tile.padded_k(k_); k0 += group) {
      for (int64_t l = 0; l < tile.width(side); ++l) {
        for (int64_t p = k0; p < k0 + group; ++p) put(tile.panel, p < k_ ? line(l)[p] : 0, out);
      }
    }
  }

  int64_t k_;
  std::vector<double> values_;
  Fenced panel_;
};

struct Case {
  int64_t k, c_row;
  bool add, misaligned;
  Fill fill;
};

// c (+)= a b of one element: bytes exactly, chains bit by bit, the others as far as their sums may be off.
template <class C>
void expect_element(const GemmTile& tile, const Case& x, const double* a, const double* b, C before, C got) {
  if constexpr (std::is_same_v<C, int32_t>) {
    int64_t sum = x.add ? before : 0;
    for (int64_t p = 0; p < x.k; ++p) sum += static_cast<int64_t>(a[p]) * static_cast<int64_t>(b[p]);
    EXPECT_EQ(got, sum);
  } else {
    C chain = 0, on_top = before;
    double sum = x.add ? before : 0, size = std::abs(sum);
    for (int64_t p = 0; p < x.k; ++p) {
      chain = std::fma(static_cast<C>(a[p]), static_cast<C>(b[p]), chain);
      on_top = std::fma(static_cast<C>(a[p]), static_cast<C>(b[p]), on_top);
      sum += a[p] * b[p];
      size += std::abs(a[p] * b[p]);
    }
    if (x.fill == Fill::whole) {
      EXPECT_EQ(got, sum);
    } else if (!is_chain(tile)) {
      constexpr double kStep = sizeof(C) == 8 ? 0x1p-52 : 0x1p-23;
      EXPECT_LE(std::abs(got - sum), static_cast<double>(x.k + 4) * kStep * size);
    } else if (x.add) {
      EXPECT_TRUE(got == on_top || got == before + chain)
          << got << " is neither " << on_top << " nor " << before + chain;
    } else {
      EXPECT_EQ(got, chain);
    }
  }
}

template <class C>
void check(const GemmTile& tile, const Case& x, std::mt19937& rng) {
  SCOPED_TRACE(testing::Message() << tile.name << " k " << x.k << " c_row " << x.c_row << " add " << x.add
                                  << " misaligned " << x.misaligned << " fill " << static_cast<int>(x.fill));
  const Lines a(tile, Side::a, x.k, x.fill, x.misaligned, rng), b(tile, Side::b, x.k, x.fill, x.misaligned, rng);
  Fenced memory(static_cast<size_t>((tile.mr - 1) * x.c_row + tile.nr) * sizeof(C));
  C* c = reinterpret_cast<C*>(memory.data());
  for (int64_t i = 0; i < (tile.mr - 1) * x.c_row + tile.nr; ++i) c[i] = static_cast<C>(rng() % 2001) - 1000;
  const std::vector<unsigned char> original = memory.snapshot();
  std::vector<unsigned char> expected = original;
  const C* before = reinterpret_cast<const C*>(expected.data() + memory.offset());

  if (tile.begin) tile.begin();
  tile.run(tile.padded_k(x.k) / tile.k_step, a.panel(), b.panel(), c, x.c_row, x.add);
  if (tile.end) tile.end();

  for (int64_t i = 0; i < tile.mr; ++i) {
    for (int64_t j = 0; j < tile.nr; ++j) {
      const int64_t at = i * x.c_row + j;
      expect_element<C>(tile, x, a.line(i), b.line(j), before[at], c[at]);
      if (testing::Test::HasFailure()) return;
      std::memcpy(expected.data() + memory.offset() + static_cast<size_t>(at) * sizeof(C), &c[at], sizeof(C));
    }
  }
  EXPECT_TRUE(memory.snapshot() == expected) << "written outside of the tile";
  if (!tile.run_ahead) return;
  std::memcpy(memory.data(), original.data() + memory.offset(), original.size() - memory.offset());
  const unsigned char* forbidden = memory.data() + original.size() - memory.offset();  // prefetched, never read
  if (tile.begin) tile.begin();
  tile.run_ahead(tile.padded_k(x.k) / tile.k_step, a.panel(), b.panel(), c, x.c_row, x.add, forbidden);
  if (tile.end) tile.end();
  EXPECT_TRUE(memory.snapshot() == expected) << "other bits while it looks ahead";
}

template <class C>
void check_all(const GemmTile& tile) {
  std::mt19937 rng(7);
  const int64_t step = tile.k_step;
  std::vector<int64_t> ks{1, step + 1, 3 * step - 1, tile.block_k, tile.block_k - step / 2};
  for (int64_t steps = 1; steps <= 9; ++steps) ks.push_back(steps * step);
  for (int64_t k : ks) {
    for (int64_t c_row : {tile.nr, tile.nr + 5}) {
      for (bool add : {false, true}) {
        for (Fill fill : {Fill::random, Fill::extremes, Fill::constant, Fill::whole}) {
          check<C>(tile, {k, c_row, add, fill == Fill::extremes, fill}, rng);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(GemmTile, ComputesWhatItsPanelsHold) {
  for (Panel panel : kPanels) {
    for (const GemmTile& tile : gemm_tiles(panel)) {
      if (panel == Panel::f64) {
        check_all<double>(tile);
      } else if (is_bytes(panel)) {
        check_all<int32_t>(tile);
      } else {
        check_all<float>(tile);
      }
    }
  }
}

TEST(GemmTile, IsDescribedConsistently) {
  for (Panel panel : {Panel::f32, Panel::f64, Panel::s8}) EXPECT_FALSE(gemm_tiles(panel).empty());
  for (Panel panel : kPanels) {
    for (const GemmTile& tile : gemm_tiles(panel)) {
      SCOPED_TRACE(tile.name);
      EXPECT_EQ(tile.panel, panel);
      EXPECT_EQ(tile.k_step % tile.a_group, 0);
      EXPECT_EQ(tile.k_step % tile.b_group, 0);
      EXPECT_EQ(tile.block_k % tile.k_step, 0);
      EXPECT_EQ(tile.begin == nullptr, tile.end == nullptr);
      if (tile.begin) {
        EXPECT_EQ(tile.block_k, gemm_tiles(panel)[0].block_k) << "weights packed for one are not read by the other";
      }
    }
  }
}

}  // namespace
}  // namespace deft::cpu
