#include "kernels/cpu/philox.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/philox.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint32_t>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// Both halves of 32 x 32 bit products.
HWY_INLINE void multiply(V a, V m, V& high, V& low) {
#if HWY_TARGET == HWY_NEON
  const uint64x2_t first = vmull_u32(vget_low_u32(a.raw), vget_low_u32(m.raw)), second = vmull_high_u32(a.raw, m.raw);
  high = V(vuzp2q_u32(vreinterpretq_u32_u64(first), vreinterpretq_u32_u64(second)));
  low = V(vuzp1q_u32(vreinterpretq_u32_u64(first), vreinterpretq_u32_u64(second)));
#elif HWY_TARGET == HWY_SCALAR
  const uint64_t p = uint64_t{a.raw} * m.raw;
  high = V(static_cast<uint32_t>(p >> 32));
  low = V(static_cast<uint32_t>(p));
#else
  const D d;
  const hn::Repartition<uint64_t, D> d64;
  const auto even = hn::MulEven(a, m), odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), m);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::Mul(a, m);
#endif
}

// The keys of all rounds, in every lane.
struct Keys {
  HWY_ALIGN uint32_t k0[10][kLanes], k1[10][kLanes];
  explicit Keys(uint64_t seed) {
    const D d;
    uint32_t a = static_cast<uint32_t>(seed), b = static_cast<uint32_t>(seed >> 32);
    for (int i = 0; i < 10; ++i, a += 0x9E3779B9u, b += 0xBB67AE85u) {
      hn::Store(hn::Set(d, a), d, k0[i]);
      hn::Store(hn::Set(d, b), d, k1[i]);
    }
  }
};

// Lanes are blocks. Several vectors at a time: the rounds of one wait for each other.
template <int count>
HWY_INLINE void vectors(const Keys& keys, uint64_t offset, uint64_t block, uint32_t* out) {
  const D d;
  const V m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  V c0[count], c1[count], c2[count], c3[count];
  for (int i = 0; i < count; ++i) {
    c0[i] = hn::Iota(d, static_cast<uint32_t>(block) + static_cast<uint32_t>(i * kLanes));
    c1[i] = hn::Set(d, static_cast<uint32_t>(block >> 32));
    c2[i] = hn::Set(d, static_cast<uint32_t>(offset));
    c3[i] = hn::Set(d, static_cast<uint32_t>(offset >> 32));
  }
  for (int round = 0; round < 10; ++round) {
    const V k0 = hn::Load(d, keys.k0[round]), k1 = hn::Load(d, keys.k1[round]);
    for (int i = 0; i < count; ++i) {
      V high0, low0, high1, low1;
      multiply(c0[i], m0, high0, low0);
      multiply(c2[i], m1, high1, low1);
      c0[i] = hn::Xor(high1, hn::Xor(c1[i], k0));
      c2[i] = hn::Xor(high0, hn::Xor(c3[i], k1));
      c1[i] = low1;
      c3[i] = low0;
    }
  }
  for (int i = 0; i < count; ++i) hn::StoreInterleaved4(c0[i], c1[i], c2[i], c3[i], d, out + i * 4 * kLanes);
}

void words(PhiloxState draw, uint64_t block, int64_t blocks, uint32_t* out) {
  const Keys keys(draw.seed);
  constexpr int64_t kMany = 4 * kLanes;
  while (blocks > 0) {
    if (static_cast<uint32_t>(block) > 0xffffffffu - static_cast<uint32_t>(kMany)) {  // the upper half changes
      const auto w = philox(draw, block);
      std::copy_n(w.data(), 4, out);
      ++block, --blocks, out += 4;
    } else if (blocks >= kMany) {
      vectors<4>(keys, draw.offset, block, out);
      block += kMany, blocks -= kMany, out += 4 * kMany;
    } else if (blocks >= kLanes) {
      vectors<1>(keys, draw.offset, block, out);
      block += kLanes, blocks -= kLanes, out += 4 * kLanes;
    } else {
      uint32_t last[4 * kLanes];
      vectors<1>(keys, draw.offset, block, last);
      std::copy_n(last, 4 * blocks, out);
      return;
    }
  }
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(words);

void philox_words(PhiloxState draw, uint64_t first_block, int64_t blocks, uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(words)(draw, first_block, blocks, out);
}

uint32_t Dropping::threshold() const {
  // uniform_from_bits has 24 bits: dropped are words whose upper 24 are below p * 2^24.
  const auto upper = static_cast<uint64_t>(std::ceil(p * 0x1p24));
  return static_cast<uint32_t>(std::min<uint64_t>(upper << 8, 0xffffffffu));
}

template <class T>
void drop_factors(const Dropping& d, uint64_t first, int64_t n, T* out) {
  constexpr int64_t kBlocks = 64;
  uint32_t words[4 * kBlocks];
  const uint32_t threshold = d.threshold();
  const T scale = static_cast<T>(d.scale());
  for (int64_t i = 0; i < n;) {
    const uint64_t at = first + static_cast<uint64_t>(i);
    const auto skip = static_cast<int64_t>(at % 4);
    const int64_t count = std::min(n - i, 4 * kBlocks - skip);
    philox_words(d.draw, at / 4, (skip + count + 3) / 4, words);
    for (int64_t j = 0; j < count; ++j) out[i + j] = words[skip + j] < threshold ? T(0) : scale;
    i += count;
  }
}
template void drop_factors(const Dropping&, uint64_t, int64_t, float*);
template void drop_factors(const Dropping&, uint64_t, int64_t, double*);

}  // namespace deft::cpu
#endif  // HWY_ONCE
