// Reorders weights between memory order, (channel, tap), and the order of GEMMs, (tap, channel).
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/copy/interleave.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {

namespace {

// to[t][i] = from[i * taps + t].
template <class T>
void split_taps(const T* from, int64_t taps, int64_t channels, T* const* to) {
  int64_t i = 0;
  for (; taps >= 4 && i + 4 <= channels; i += 4, from += 4 * taps) {
    for (int64_t t = 0; t < taps; t += 4) {
      t = std::min(t, taps - 4);  // the last block overlaps the previous one
      using F = Block4<T>;
      F f{F::load(from + t), F::load(from + taps + t), F::load(from + 2 * taps + t), F::load(from + 3 * taps + t)};
      f.transpose();
      F::store(f.a, to[t] + i);
      F::store(f.b, to[t + 1] + i);
      F::store(f.c, to[t + 2] + i);
      F::store(f.d, to[t + 3] + i);
    }
  }
  for (; i < channels; ++i, from += taps) {
    for (int64_t t = 0; t < taps; ++t) to[t][i] = from[t];
  }
}

}  // namespace

template <class T>
void join_taps(const T* from, int64_t taps, int64_t channels, T* to) {
  int64_t i = 0;
  for (; taps >= 4 && i + 4 <= channels; i += 4, to += 4 * taps) {
    for (int64_t t = 0; t < taps; t += 4) {
      t = std::min(t, taps - 4);
      using F = Block4<T>;
      const T* p = from + t * channels + i;
      F f{F::load(p), F::load(p + channels), F::load(p + 2 * channels), F::load(p + 3 * channels)};
      f.transpose();
      F::store(f.a, to + t);
      F::store(f.b, to + taps + t);
      F::store(f.c, to + 2 * taps + t);
      F::store(f.d, to + 3 * taps + t);
    }
  }
  for (; i < channels; ++i, to += taps) {
    for (int64_t t = 0; t < taps; ++t) to[t] = from[t * channels + i];
  }
}
template void join_taps(const uint32_t*, int64_t, int64_t, uint32_t*);
template void join_taps(const uint64_t*, int64_t, int64_t, uint64_t*);

void order_weight(const ConvCall& c, DType dtype, const void* w, void* out, WeightPlace place) {
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups, taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  if (cg * c.c_out == 0) return;
  dispatch_bits(dtype, [&]<class T>() {
    parallel_for(0, c.c_out, std::max<int64_t>(1, 16384 / (cg * taps)), [&](int64_t begin, int64_t end) {
      Workspace<T*> to(taps);
      for (int64_t channel = begin; channel < end; ++channel) {
        for (int64_t t = 0; t < taps; ++t) to[t] = static_cast<T*>(out) + place(channel / og, channel % og, t) * cg;
        split_taps(static_cast<const T*>(w) + channel * cg * taps, taps, cg, to.data());
      }
    });
  });
}

}  // namespace deft::cpu::detail
