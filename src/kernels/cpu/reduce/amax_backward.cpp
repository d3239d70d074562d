#include "kernels/cpu/reduce/amax_backward.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "runtime/parallel.h"

namespace deft::cpu {

namespace {

constexpr int64_t kColumns = 256;  // of a block, whose counts stay in L1
constexpr int64_t kGrain = 1 << 14;
constexpr int64_t kPart = 1 << 20;  // elements counted in 32 bits
constexpr int64_t kRows = 1 << 15;  // and in 16

template <class S>
using Bits = std::conditional_t<sizeof(S) == 2, uint16_t, std::conditional_t<sizeof(S) == 4, uint32_t, uint64_t>>;

// x is the extreme where (bits(x) & mask) - target <= range: compared as integers, all types fit vectors alike. Zeros
// have two forms, and all NaNs count as one.
template <class S>
struct Match {
  Bits<S> mask, target, range = 0;
  explicit Match(S y) {
    constexpr auto kMagnitude = static_cast<Bits<S>>(Bits<S>(-1) >> 1);
    const auto value = static_cast<accumulate_t<S>>(y);
    mask = value != 0 && value == value ? static_cast<Bits<S>>(-1) : kMagnitude;
    target = std::bit_cast<Bits<S>>(y) & mask;
    if (value == value) return;
    target = static_cast<Bits<S>>(std::bit_cast<Bits<S>>(static_cast<S>(std::numeric_limits<float>::infinity())) + 1);
    range = static_cast<Bits<S>>(kMagnitude - target);
  }
};
template <class B>
bool matches(B x, B mask, B target, B range) {
  return static_cast<B>((x & mask) - target) <= range;
}

// The gradient of each extreme; other elements get 0. Counts are exact, so any split over threads gives the same.
template <class S>
Bits<S> share_of(S g, int64_t count) {
  return std::bit_cast<Bits<S>>(static_cast<S>(static_cast<accumulate_t<S>>(g) / static_cast<accumulate_t<S>>(count)));
}

template <class S>
void one_row(S g, const Bits<S>* x, S y, int64_t n, Bits<S>* out) {
  const Match<S> m(y);
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += kPart) {
    int32_t part = 0;
    for (int64_t i = begin; i < std::min(n, begin + kPart); ++i) part += matches(x[i], m.mask, m.target, m.range);
    count += part;
  }
  const Bits<S> share = share_of(g, count);
  for (int64_t i = 0; i < n; ++i) out[i] = matches(x[i], m.mask, m.target, m.range) ? share : Bits<S>(0);
}

// Columns [0, width) of rows `row` apart.
template <class S>
void columns(const S* g, const Bits<S>* x, const S* y, int64_t n, int64_t row, int64_t width, Bits<S>* out) {
  int64_t count[kColumns] = {};
  Bits<S> mask[kColumns], target[kColumns], range[kColumns], share[kColumns];
  for (int64_t j = 0; j < width; ++j) {
    const Match<S> m(y[j]);
    mask[j] = m.mask, target[j] = m.target, range[j] = m.range;
  }
  for (int64_t begin = 0; begin < n; begin += kRows) {
    Bits<S> part[kColumns] = {};
    for (int64_t i = begin; i < std::min(n, begin + kRows); ++i)
      for (int64_t j = 0; j < width; ++j) part[j] += matches(x[i * row + j], mask[j], target[j], range[j]);
    for (int64_t j = 0; j < width; ++j) count[j] += static_cast<int64_t>(part[j]);
  }
  for (int64_t j = 0; j < width; ++j) share[j] = share_of(g[j], count[j]);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j)
      out[i * row + j] = matches(x[i * row + j], mask[j], target[j], range[j]) ? share[j] : Bits<S>(0);
}

template <class S>
void run(const ExtremeBackwardCall& c) {
  const S *g = static_cast<const S*>(c.g), *y = static_cast<const S*>(c.y);
  const Bits<S>* x = static_cast<const Bits<S>*>(c.x);
  Bits<S>* out = static_cast<Bits<S>*>(c.out);
  const int64_t n = c.n, inner = c.inner;
  if (inner == 1) {
    parallel_for(0, c.outer, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) one_row<S>(g[i], x + i * n, y[i], n, out + i * n);
    });
    return;
  }
  const int64_t blocks = (inner + kColumns - 1) / kColumns;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n * std::min(inner, kColumns)));
  parallel_for(0, c.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / blocks, j = i % blocks * kColumns;
      columns<S>(g + o * inner + j, x + o * n * inner + j, y + o * inner + j, n, inner, std::min(kColumns, inner - j),
                 out + o * n * inner + j);
    }
  });
}

}  // namespace

void extreme_backward(const ExtremeBackwardCall& call) {
  dispatch_floating(call.dtype, [&]<class S>() { run<S>(call); });
}

}  // namespace deft::cpu
