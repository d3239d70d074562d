// Shared by the tests of GEMM: fenced memory, matrices of any type and layout, every tile of every level.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "kernels/cpu/gemm/blocked_gemm.h"
#include "runtime/cpu_isa.h"
#include "runtime/half.h"

namespace deft::test {

using cpu::GemmTile;
using cpu::Panel;
using cpu::Side;

inline constexpr Panel kPanels[] = {Panel::f32, Panel::f64,  Panel::f16,  Panel::bf16,
                                    Panel::s8,  Panel::u8s8, Panel::split};
inline bool is_bytes(Panel p) { return p == Panel::s8 || p == Panel::u8s8; }

// Memory between two inaccessible pages, so that any access outside is noticed.
class Fenced {
 public:
  explicit Fenced(size_t bytes) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    room_ = (bytes + page_ - 1) / page_ * page_;
    void* p = mmap(nullptr, room_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    first_ = static_cast<unsigned char*>(p) + page_;
    mprotect(first_, room_, PROT_READ | PROT_WRITE);
  }
  ~Fenced() { munmap(first_ - page_, room_ + 2 * page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  // `bytes` at the very beginning or, for reads and writes beyond, at the very end.
  unsigned char* take(size_t bytes, bool at_end = true) const {
    if (bytes > room_) throw std::bad_alloc();
    return at_end ? first_ + room_ - bytes : first_;
  }

 private:
  size_t page_, room_;
  unsigned char* first_;
};

inline double read(DType dtype, const void* p, int64_t i) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(p)[i];
    case DType::f64:
      return static_cast<const double*>(p)[i];
    case DType::bf16:
      return static_cast<const BFloat16*>(p)[i];
    case DType::f16:
      return static_cast<const Half*>(p)[i];
    case DType::i8:
      return static_cast<const int8_t*>(p)[i];
    case DType::u8:
      return static_cast<const uint8_t*>(p)[i];
    default:
      return static_cast<const int32_t*>(p)[i];
  }
}
// Rounds to nearest even; v must be in the range of an integer type.
inline void write(DType dtype, void* p, int64_t i, double v) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(p)[i] = static_cast<float>(v);
      return;
    case DType::f64:
      static_cast<double*>(p)[i] = v;
      return;
    case DType::bf16:
      static_cast<BFloat16*>(p)[i] = BFloat16(static_cast<float>(v));
      return;
    case DType::f16:
      static_cast<Half*>(p)[i] = Half(static_cast<float>(v));
      return;
    case DType::i8:
      static_cast<int8_t*>(p)[i] = static_cast<int8_t>(std::nearbyint(v));
      return;
    case DType::u8:
      static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(std::nearbyint(v));
      return;
    default:
      static_cast<int32_t*>(p)[i] = static_cast<int32_t>(std::nearbyint(v));
  }
}

// real: in [-1, 1]; whole: -4 to 4, whose sums are exact in f32; special: with NaN, infinities, halfway cases and
// values out of the range of 16 bits. Bytes always take their whole range (0 to 8 for unsigned `whole`).
enum class Fill { real, whole, special };
inline double draw(DType dtype, Fill fill, std::mt19937& rng) {
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(rng() % static_cast<uint32_t>(high - low + 1));
  };
  if (fill == Fill::whole) return dtype == DType::u8 ? between(0, 8) : between(-4, 4);
  if (dtype == DType::i8) return between(-128, 127);
  if (dtype == DType::u8) return between(0, 255);
  constexpr double odd[] = {NAN, INFINITY, -INFINITY, 1 + 0x1p-8, 1 + 0x3p-8, -1 - 0x1p-11, 1e30, -7e4, 0x1p-25, -0.0};
  if (fill == Fill::special && rng() % 4 == 0) return odd[rng() % std::size(odd)];
  return static_cast<double>(static_cast<int32_t>(rng())) * 0x1p-31;
}

// The types a panel is packed from, and the value it then holds.
inline std::vector<DType> sources(Panel panel) {
  if (is_bytes(panel)) return {DType::i8, DType::u8};
  if (panel == Panel::f64) return {DType::f64};
  return {DType::f32, DType::bf16, DType::f16};
}
inline double packed(Panel panel, Side side, DType from, double v) {
  switch (panel) {
    case Panel::f16:
      return Half(static_cast<float>(v));
    case Panel::bf16:
      return BFloat16(static_cast<float>(v));
    case Panel::s8:
      return from == DType::u8 ? v - 128 : v;
    case Panel::u8s8:
      if (side == Side::a) return from == DType::i8 ? v + 128 : v;
      return from == DType::u8 ? v - 128 : v;
    default:
      return v;
  }
}

inline double activate(cpu::Activation a, double x) {
  switch (a) {
    case cpu::Activation::none:
      return x;
    case cpu::Activation::relu:
      return x < 0 ? 0 : x;
    case cpu::Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case cpu::Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case cpu::Activation::silu:
      return x / (1 + std::exp(-x));
    case cpu::Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case cpu::Activation::tanh:
      return std::tanh(x);
  }
  return NAN;
}

// The layout of a matrix: rows or columns adjacent, with gaps, reversed, repeated.
inline constexpr int kLayouts = 12;
struct Steps {
  int64_t line, step;
};
inline Steps layout(int kind, int64_t lines, int64_t k) {
  const Steps all[kLayouts] = {{k, 1}, {1, lines},  {k + 3, 1},  {1, lines + 5}, {2 * k + 1, 2}, {-k, 1},
                               {0, 1}, {1, -lines}, {-1, lines}, {k, -1},        {1, 0},         {0, 0}};
  return all[kind];
}

// An operand of a GEMM whose last (or first) element lies next to a fence.
class Matrix {
 public:
  Matrix(DType dtype, int64_t lines, int64_t k, int kind, Fill fill, std::mt19937& rng)
      : dtype_(dtype), steps_(layout(kind, lines, k)), lines_(lines), k_(k), memory_(elements() * size_of(dtype)) {
    at_end_ = rng() % 2 == 0;
    for (int64_t i = 0; i < static_cast<int64_t>(elements()); ++i) write(dtype, base(), i, draw(dtype, fill, rng));
  }
  cpu::StridedMatrix strided() const {
    return {dtype_, base() + origin() * static_cast<int64_t>(size_of(dtype_)), steps_.line, steps_.step};
  }
  DType dtype() const { return dtype_; }
  double at(int64_t l, int64_t p) const { return read(dtype_, base(), origin() + l * steps_.line + p * steps_.step); }
  void set(int64_t l, int64_t p, double v) { write(dtype_, base(), origin() + l * steps_.line + p * steps_.step, v); }
  // All values as a panel of this type holds them, line by line.
  std::vector<double> values(Panel panel, Side side) const {
    std::vector<double> v;
    v.reserve(static_cast<size_t>(lines_ * k_));
    for (int64_t l = 0; l < lines_; ++l) {
      for (int64_t p = 0; p < k_; ++p) v.push_back(packed(panel, side, dtype_, at(l, p)));
    }
    return v;
  }

 private:
  int64_t origin() const {
    return -std::min<int64_t>(0, steps_.line * (lines_ - 1)) - std::min<int64_t>(0, steps_.step * (k_ - 1));
  }
  size_t elements() const {
    return static_cast<size_t>(1 + std::abs(steps_.line) * (lines_ - 1) + std::abs(steps_.step) * (k_ - 1));
  }
  unsigned char* base() const { return memory_.take(elements() * size_of(dtype_), at_end_); }

  DType dtype_;
  Steps steps_;
  int64_t lines_, k_;
  bool at_end_ = true;
  Fenced memory_;
};

// f() at every instruction-set level of this machine.
template <class F>
void for_each_level(F f) {
  for (int level = isa_choice().level; level >= 0; --level) {
    const char* name = isa_choice().levels[static_cast<size_t>(level)].name;
    SCOPED_TRACE(testing::Message() << "level " << name);
    IsaGuard guard(name);
    f();
    if (testing::Test::HasFailure()) return;
  }
}
// f(tile) for every tile of the level in use.
template <class F>
void for_each_tile(F f) {
  for (Panel panel : kPanels) {
    for (const GemmTile& tile : cpu::gemm_tiles(panel)) {
      SCOPED_TRACE(tile.name);
      f(tile);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace deft::test
