#include "kernels/cpu/elementwise/philox.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise/philox.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
// On NEON words are in lanes of their size. On x86 they are in the lower halves of wider lanes, with anything in the
// upper halves: the widening multiply reads them like that and nearly returns them like that.
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SCALAR
using Lane = uint32_t;
#else
using Lane = uint64_t;
#endif
using D = hn::ScalableTag<Lane>;
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
  const hn::Repartition<uint32_t, D> d32;
  low = hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, m));
  high = hn::ShiftRight<32>(low);
#endif
}

// The four words of each block, block by block.
HWY_INLINE void store(V c0, V c1, V c2, V c3, uint32_t* out) {
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SCALAR
  hn::StoreInterleaved4(c0, c1, c2, c3, D(), out);
#else
  const hn::Repartition<uint32_t, D> d32;
  const auto pair = [&](V a, V b) {
    return hn::BitCast(D(), hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(b)), hn::BitCast(d32, a)));
  };
  hn::StoreInterleaved2(pair(c0, c1), pair(c2, c3), D(), reinterpret_cast<uint64_t*>(out));
#endif
}

// The keys of all rounds, in every lane.
struct Keys {
  HWY_ALIGN Lane k0[10][kLanes], k1[10][kLanes];
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
  const V m0 = hn::Set(d, Lane{0xD2511F53}), m1 = hn::Set(d, Lane{0xCD9E8D57});
  const V lane = hn::Iota(d, 0);  // constant, where one that starts at the block would go through memory
  V c0[count], c1[count], c2[count], c3[count];
  for (int i = 0; i < count; ++i) {
    c0[i] = hn::Add(lane, hn::Set(d, static_cast<uint32_t>(block) + static_cast<uint32_t>(i * kLanes)));
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
  for (int i = 0; i < count; ++i) store(c0[i], c1[i], c2[i], c3[i], out + i * 4 * kLanes);
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
  if (blocks > 2) return HWY_DYNAMIC_DISPATCH(words)(draw, first_block, blocks, out);
  for (int64_t i = 0; i < blocks; ++i) {  // sooner done than the keys of all rounds
    const auto w = philox(draw, first_block + static_cast<uint64_t>(i));
    std::copy_n(w.data(), 4, out + 4 * i);
  }
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
