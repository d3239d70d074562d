// SIMD kernels of all binary formulas, one table per instruction set.
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/binary.cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/chunk-inl.h"
#include "ops/binary.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// Where the exponent is the same everywhere, as a number is, it is tested once.
struct ShortPower {
  using Params = int;
  static constexpr const auto& kCases = kShortPowers;
  template <class V>
  DEFT_HD static V call(V x, const int& twice) {
    return short_power(x, twice);
  }
};
template <class T>
void pow_chunk(const void* const* in, void* out, size_t n, const void* params) {
  const T* y = static_cast<const T*>(in[1]);
  for (const int& twice : kShortPowers) {
    if (n > 0 && y[0] == twice * T(0.5) && std::memcmp(y, y + 1, (n - 1) * sizeof(T)) == 0)
      return unary_chunk<ShortPower, T>(in, out, n, &twice);
  }
  binary_chunk<Formula<Pow>, T>(in, out, n, params);
}

template <class Op, class T>
constexpr ChunkFn binary_entry() {
  // Integers run through the formula only if the result stays an integer.
  constexpr bool runs = std::is_floating_point_v<T> || Op::result != ResultType::floating;
  if constexpr (std::is_same_v<Op, Pow> && std::is_floating_point_v<T>) {
    return &pow_chunk<T>;
  } else if constexpr (runs && Op::info.dtypes.contains(dtype_of<T>)) {
    return &binary_chunk<Formula<Op>, T>;
  } else {
    return nullptr;
  }
}

const ChunkFn* binary_rows() {
  static constexpr ChunkFn table[][kDTypeCount] = {
#define DEFT_BINARY(Type, function) \
  {binary_entry<Type, float>(),     \
   binary_entry<Type, double>(),    \
   nullptr,                         \
   nullptr,                         \
   binary_entry<Type, int8_t>(),    \
   binary_entry<Type, uint8_t>(),   \
   binary_entry<Type, int32_t>(),   \
   binary_entry<Type, int64_t>(),   \
   binary_entry<Type, bool>()},
#include "ops/binary.def"
#undef DEFT_BINARY
  };
  return table[0];
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft {

namespace cpu {
HWY_EXPORT(binary_rows);
}

const cpu::ChunkFn* binary_table() {
  using namespace cpu;
  static const cpu::ChunkFn* rows = HWY_DYNAMIC_DISPATCH(binary_rows)();
  return rows;
}

}  // namespace deft
#endif
