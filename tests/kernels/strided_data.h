// Test helper: a strided block of elements of any dtype between guard words, read and written as double.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/elementwise/elementwise.h"

namespace deft::cpu::testing {

inline double get(const void* base, DType t, int64_t i) {
  return dispatch_all(t, [&]<class T>() -> double {
    if constexpr (std::is_same_v<T, bool>)
      return static_cast<const uint8_t*>(base)[i];
    else
      return static_cast<double>(static_cast<const T*>(base)[i]);
  });
}
inline void put(void* base, DType t, int64_t i, double v) {
  dispatch_all(t, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>)
      static_cast<uint8_t*>(base)[i] = v != 0;
    else if constexpr (std::is_arithmetic_v<T>)
      static_cast<T*>(base)[i] = static_cast<T>(v);
    else
      static_cast<T*>(base)[i] = T(static_cast<float>(v));
  });
}

// Strides are given; the storage covers every reachable element, and everything else must stay untouched.
class Block {
 public:
  Block(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t misalign = 0)
      : dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {
    int64_t low = 0, high = 0;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      int64_t reach = (sizes_[d] - 1) * strides_[d];
      if (sizes_[d] == 0) reach = 0;
      (reach < 0 ? low : high) += reach;
    }
    origin_ = kGuard + misalign - low;
    bytes_.assign(static_cast<size_t>(origin_ + high + 1 + kGuard) * size_of(dtype), kGuardByte);
  }
  static std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> s(sizes.size());
    int64_t n = 1;
    for (size_t d = sizes.size(); d-- > 0; n *= sizes[d]) s[d] = n;
    return s;
  }

  DType dtype() const { return dtype_; }
  void* data() { return bytes_.data() + origin_ * static_cast<int64_t>(size_of(dtype_)); }
  Operand operand() {
    Operand o{data(), dtype_, {}};
    for (size_t d = 0; d < strides_.size(); ++d) o.strides[d] = strides_[d];
    return o;
  }
  int64_t total() const {
    int64_t n = 1;
    for (int64_t s : sizes_) n *= s;
    return n;
  }
  // Element offset of the linear (row-major) index.
  int64_t offset(int64_t linear) const {
    int64_t o = 0;
    for (size_t d = sizes_.size(); d-- > 0;) {
      o += linear % sizes_[d] * strides_[d];
      linear /= sizes_[d];
    }
    return o;
  }
  double at(int64_t linear) { return get(data(), dtype_, offset(linear)); }
  void set(int64_t linear, double v) { put(data(), dtype_, offset(linear), v); }
  void fill_random(uint64_t seed, double low, double high) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> u(low, high);
    for (int64_t i = 0; i < total(); ++i) set(i, u(rng));
  }
  // True if no byte outside the view has changed.
  bool guards_intact() {
    const size_t size = size_of(dtype_);
    std::vector<char> mine(bytes_.size(), 0);
    for (int64_t i = 0; i < total(); ++i) {
      std::memset(mine.data() + static_cast<size_t>(origin_ + offset(i)) * size, 1, size);
    }
    for (size_t b = 0; b < bytes_.size(); ++b) {
      if (!mine[b] && bytes_[b] != kGuardByte) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 16;
  static constexpr unsigned char kGuardByte = 0xA5;
  DType dtype_;
  std::vector<int64_t> sizes_, strides_;
  int64_t origin_ = 0;
  std::vector<unsigned char> bytes_;
};

// A view of `sizes` in a random order of dims, with gaps, negative and (for inputs) zero strides now and then.
inline std::vector<int64_t> random_strides(const std::vector<int64_t>& sizes, std::mt19937& rng, bool output) {
  std::vector<size_t> order(sizes.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  if (rng() % 2) std::shuffle(order.begin(), order.end(), rng);
  std::vector<int64_t> s(sizes.size());
  int64_t n = rng() % 4 == 0 ? 2 : 1;
  for (size_t k = order.size(); k-- > 0;) {
    size_t d = order[k];
    if (!output && rng() % 5 == 0) {
      s[d] = 0;
      continue;
    }
    s[d] = rng() % 6 == 0 ? -n : n;
    n *= sizes[d] + (rng() % 5 == 0 ? 1 : 0);
  }
  return s;
}

inline constexpr DType kEveryDType[] = {f32, f64, bf16, f16, i8, u8, i32, i64, boolean};

}  // namespace deft::cpu::testing
