// Vectors of positions beside vectors of values, for pooling. Compiled per target.
#if defined(DEFT_KERNELS_CPU_POOL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_POOL_INL_H_
#undef DEFT_KERNELS_CPU_POOL_INL_H_
#else
#define DEFT_KERNELS_CPU_POOL_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/norm/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// Positions in a plane, as wide as the values they belong to.
template <class T>
using PoolIndex = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

template <class T>
struct PoolIndices {
  using D = hn::RebindToSigned<hn::ScalableTag<T>>;
  static constexpr int64_t kLanes = Vec<T>::kLanes;
  hn::Vec<D> raw;

  PoolIndices() = default;
  explicit PoolIndices(hn::Vec<D> r) : raw(r) {}
  explicit PoolIndices(PoolIndex<T> i) : raw(hn::Set(D(), i)) {}
  static PoolIndices load(const PoolIndex<T>* p) { return PoolIndices(hn::LoadU(D(), p)); }
  void store(PoolIndex<T>* p) const { hn::StoreU(raw, D(), p); }

  // Loads `count` int64 from memory; more may be read before `end`.
  static PoolIndices load_some(const int64_t* p, int64_t count, const int64_t* end) {
    if (count >= kLanes || end - p >= kLanes) return load_long(p);
    int64_t lanes[kLanes] = {};
    std::copy_n(p, count, lanes);
    return load_long(lanes);
  }
  void store_some(int64_t* p, int64_t count) const {
    if (count >= kLanes) return store_long(p);
    int64_t lanes[kLanes];
    store_long(lanes);
    std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(int64_t));
  }

 private:
  static PoolIndices load_long(const int64_t* p) {
#if HWY_TARGET == HWY_SCALAR
    return PoolIndices(static_cast<PoolIndex<T>>(*p));
#else
    if constexpr (sizeof(T) == 8) {
      return PoolIndices(hn::LoadU(D(), p));
    } else {  // the low halves
      const int32_t* halves = reinterpret_cast<const int32_t*>(p);
      return PoolIndices(hn::ConcatEven(D(), hn::LoadU(D(), halves + kLanes), hn::LoadU(D(), halves)));
    }
#endif
  }
  void store_long(int64_t* p) const {
#if HWY_TARGET == HWY_SCALAR
    *p = hn::GetLane(raw);
#else
    if constexpr (sizeof(T) == 8) {
      hn::StoreU(raw, D(), p);
    } else {
      const hn::ScalableTag<int64_t> wide;
      const hn::Half<D> half;
      hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, raw)), wide, p);
      hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, raw)), wide, p + kLanes / 2);
    }
#endif
  }
};
template <class T>
inline Mask<T> operator==(PoolIndices<T> a, PoolIndices<T> b) {
  return {hn::RebindMask(hn::ScalableTag<T>(), hn::Eq(a.raw, b.raw))};
}

// The first of equal values wins, but a NaN always does, the last one first. Positions only where they are wanted.
template <bool kPositions, class T>
inline void take_larger(Vec<T> v, PoolIndices<T> at, Vec<T>& best, PoolIndices<T>& where) {
  const Mask<T> loses{hn::AndNot((v > best).raw, (v == v).raw)};
  best = select(loses, best, v);
  if constexpr (kPositions)
    where.raw = hn::IfThenElse(hn::RebindMask(typename PoolIndices<T>::D(), loses.raw), where.raw, at.raw);
}
template <class T>
inline Vec<T> keep_where(Mask<T> m, Vec<T> v) {
  return Vec<T>(hn::IfThenElseZero(m.raw, v.raw));
}

// Elements 0, 2, 4, .. and 1, 3, 5, .. of two vectors' worth from p.
template <class T>
inline void load_pairs(const T* p, Vec<T>& even, Vec<T>& odd) {
#if HWY_TARGET == HWY_SCALAR
  even = Vec<T>(p[0]);
  odd = Vec<T>(p[1]);
#else
  const typename Vec<T>::D d;
  const auto low = hn::LoadU(d, p), high = hn::LoadU(d, p + Vec<T>::kLanes);
  even.raw = hn::ConcatEven(d, high, low);
  odd.raw = hn::ConcatOdd(d, high, low);
#endif
}
inline void load_pairs(const BFloat16* p, Vec<float>& even, Vec<float>& odd) {
  const hn::ScalableTag<uint32_t> d;
  const hn::ScalableTag<float> df;
  uint32_t pairs[Vec<float>::kLanes];
  std::memcpy(pairs, p, sizeof(pairs));
  const auto both = hn::LoadU(d, pairs);
  even.raw = hn::BitCast(df, hn::ShiftLeft<16>(both));
  odd.raw = hn::BitCast(df, hn::And(both, hn::Set(d, 0xffff0000u)));
}
inline void load_pairs(const Half* p, Vec<float>& even, Vec<float>& odd) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  uint32_t pairs[Vec<float>::kLanes];
  Half halves[2][Vec<float>::kLanes];
  std::memcpy(pairs, p, sizeof(pairs));
  const auto both = hn::LoadU(d, pairs);
  hn::StoreU(hn::TruncateTo(dh, hn::And(both, hn::Set(d, 0xffffu))), dh, reinterpret_cast<uint16_t*>(halves[0]));
  hn::StoreU(hn::TruncateTo(dh, hn::ShiftRight<16>(both)), dh, reinterpret_cast<uint16_t*>(halves[1]));
  even = load_vec(halves[0]);
  odd = load_vec(halves[1]);
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_POOL_INL_H_
