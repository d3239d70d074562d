#include "kernels/cpu/index/index.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/index/index_check.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint64_t>;

// The top bit is set where v is not in low .. low + last: of its distance from low, or of that from there to the end.
inline hn::Vec<D> outside(hn::Vec<D> v, hn::Vec<D> low, hn::Vec<D> last) {
  const auto up = hn::Sub(v, low);
  return hn::Or(up, hn::Sub(last, up));
}

bool any_outside_range(const int64_t* index, int64_t n, int64_t low, int64_t size) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  const D d;
  const auto* p = reinterpret_cast<const uint64_t*>(index);
  const uint64_t first = static_cast<uint64_t>(low), count = static_cast<uint64_t>(size) - first;
  const auto lows = hn::Set(d, first), last = hn::Set(d, count - 1);
  auto a = hn::Zero(d), b = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = hn::Or(a, outside(hn::LoadU(d, p + i), lows, last));
    b = hn::Or(b, outside(hn::LoadU(d, p + i + kLanes), lows, last));
  }
  uint64_t lanes[kLanes];
  hn::StoreU(hn::Or(a, b), d, lanes);
  bool found = false;
  for (uint64_t lane : lanes) found |= lane >> 63 != 0;
  for (; i < n; ++i) found |= p[i] - first >= count;
  return found;
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(any_outside_range);

bool any_outside(const int64_t* index, int64_t n, int64_t low, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(any_outside_range)(index, n, low, size);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
