// Groups of few channels on AMX tiles: several groups run as one, whose weight has zeros between them. Tiles waste most
// of their multiplications and are still several times as fast as vectors. A non-finite value times such a zero would
// reach other groups: where a result is NaN, all are run again, each group without the others that share its tiles.
#include <atomic>
#include <cstring>

#include "kernels/cpu/conv/conv_internal.h"
#include "runtime/parallel.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deft::cpu::detail {
namespace {

constexpr int64_t kMostChannels = 32;  // of merged groups: a tile
constexpr int64_t kFewChannels = 16;   // of them, at least
constexpr int64_t kGrain = 64 * 1024;
constexpr int64_t kPartBytes = 1 << 20;  // of x and y at a time

using Word = uint16_t;  // the bits of a bf16 or f16

int64_t size_in(const ConvCall& c) { return c.n * c.c_in * volume(c.in); }
int64_t depth_of(const ConvCall& c) { return c.c_in / c.groups * volume(c.kernel); }

#if defined(__x86_64__)
[[gnu::target("avx512bw")]] bool some_above(const Word* values, int64_t count, Word limit) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), most = _mm512_set1_epi16(static_cast<short>(limit));
  __mmask32 found = 0;
  for (int64_t i = 0; i < count; i += 32) {
    const auto live = static_cast<__mmask32>((uint64_t{1} << std::min<int64_t>(32, count - i)) - 1);
    const __m512i bits = _mm512_and_si512(_mm512_maskz_loadu_epi16(live, values + i), magnitude);
    found |= _mm512_cmpgt_epi16_mask(bits, most);
  }
  return found != 0;
}
#else
bool some_above(const Word*, int64_t, Word) { return false; }
#endif

bool has_nan(DType dtype, const void* values, int64_t count) {
  const Word infinity = dtype == DType::bf16 ? 0x7f80 : 0x7c00;
  std::atomic<bool> found = false;
  parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    if (some_above(static_cast<const Word*>(values) + begin, end - begin, infinity)) found = true;
  });
  return found;
}

// Calls f(pixel, first channel) for the channels of the place-th group of each merged one.
template <class F>
void for_each_group_at(int64_t pixels, int64_t channels, int64_t groups, int64_t together, int64_t place, F f) {
  parallel_for(0, pixels, std::max<int64_t>(1, kGrain / channels), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t g = place; g < groups; g += together) f(i, g * (channels / groups));
    }
  });
}

// from and to: pixels of the given channels. run() computes `to` of all groups.
struct Pixels {
  int64_t count, channels;
  int64_t size() const { return count * channels; }
};
void run_apart(const ConvCall& c, Pixels source, Pixels result, const Word* from, Word* to,
               FunctionRef<void(const void* from, void* to)> run) {
  const int64_t together = merged_groups(c);
  const auto copy = [&](Pixels pixels, int64_t place, const Word* in, Word* out) {
    const auto bytes = static_cast<size_t>(pixels.channels / c.groups) * sizeof(Word);
    for_each_group_at(pixels.count, pixels.channels, c.groups, together, place, [&](int64_t i, int64_t channel) {
      const int64_t at = i * pixels.channels + channel;
      std::memcpy(out + at, in + at, bytes);
    });
  };
  const Workspace<Word> some(source.size()), sums(result.size());
  for (int64_t place = 0; place < together; ++place) {
    std::memset(some.data(), 0, static_cast<size_t>(source.size()) * sizeof(Word));
    copy(source, place, from, some.data());
    run(some.data(), sums.data());
    copy(result, place, sums.data(), to);
  }
}

}  // namespace

int64_t merged_groups(const ConvCall& c) {
  if (c.groups == 1 || !c.channels_last || c.kernel[0] != 1 || volume(c.kernel) == 1 || is_depthwise(c)) return 1;
  const int64_t cg = c.c_in / c.groups, og = c.c_out / c.groups;
  if (size_of(c.dtype) > 2 || std::min(cg, og) == 0 || !has_amx(panel_for(c.dtype))) return 1;
  int64_t together = std::max<int64_t>(1, kMostChannels / std::max(cg, og));
  while (c.groups % together != 0) --together;
  return together * std::min(cg, og) >= kFewChannels ? together : 1;
}

MergedWeight::MergedWeight(const ConvCall& c, DType dtype)
    : together_(merged_groups(c)),
      own_(together_ > 1 && c.w ? together_ * c.c_out * depth_of(c) * static_cast<int64_t>(size_of(dtype)) : 0),
      data_(c.w) {
  if (!own_.data()) return;
  const int64_t og = c.c_out / c.groups, line = depth_of(c) * static_cast<int64_t>(size_of(dtype));
  std::memset(own_.data(), 0, static_cast<size_t>(together_ * c.c_out * line));
  for (int64_t o = 0; o < c.c_out; ++o) {
    std::memcpy(own_.data() + (o * together_ + o / og % together_) * line, static_cast<const char*>(c.w) + o * line,
                static_cast<size_t>(line));
  }
  data_ = own_.data();
}

ConvCall MergedWeight::call(const ConvCall& c) const {
  ConvCall merged = c;
  merged.groups = c.groups / together_, merged.w = data_;
  return merged;
}

// Some samples at a time, which stay in L2 while all groups read their channels.
void forward_merged(const ConvCall& c) {
  const MergedWeight weight(c, c.dtype);
  ConvCall merged = weight.call(c);
  const int64_t in = c.c_in * volume(c.in), out = c.c_out * volume(c.out);
  const int64_t part = std::clamp<int64_t>(kPartBytes / ((in + out) * static_cast<int64_t>(sizeof(Word))), 1, c.n);
  std::unique_ptr<ConvWeight> own;
  if (!c.packed && part < c.n) own = pack_conv_weight(merged), merged.packed = own.get();
  for_each_part(c.n, part, [&](int64_t first, int64_t n) {
    ConvCall some = merged;
    some.n = n;
    if (c.residual) some.residual = static_cast<const Word*>(c.residual) + first * out;
    const Word* x = static_cast<const Word*>(c.x) + first * in;
    Word* y = static_cast<Word*>(c.y) + first * out;
    const auto run = [&](const void* from, void* to) {
      some.x = from, some.y = to;
      conv_forward(some);
    };
    const Workspace<Word> beside(c.residual == c.y ? n * out : 0);  // the residual is needed again
    Word* found = beside.data() ? beside.data() : y;
    run(x, found);
    if (has_nan(c.dtype, found, n * out)) {
      run_apart(c, {n * volume(c.in), c.c_in}, {n * volume(c.out), c.c_out}, x, y, run);
    } else if (found != y) {
      std::memcpy(y, found, static_cast<size_t>(n * out) * sizeof(Word));
    }
  });
}

void input_merged(const ConvCall& c, const void* dy, void* dx) {
  const MergedWeight weight(c, c.dtype);
  const ConvCall merged = weight.call(c);
  const auto run = [&](const void* from, void* to) { conv_backward_input(merged, from, to); };
  run(dy, dx);
  if (!has_nan(c.dtype, dx, size_in(c))) return;
  run_apart(c, {c.n * volume(c.out), c.c_out}, {c.n * volume(c.in), c.c_in}, static_cast<const Word*>(dy),
            static_cast<Word*>(dx), run);
}

// Sums across different groups are computed and dropped.
void weight_merged(const ConvCall& c, const void* dy, void* dw) {
  const int64_t together = merged_groups(c), og = c.c_out / c.groups, depth = depth_of(c);
  const Workspace<Word> all(together * c.c_out * depth);
  ConvCall merged = c;
  merged.groups = c.groups / together;
  conv_backward_weight(merged, dy, all.data());
  for (int64_t o = 0; o < c.c_out; ++o) {
    std::memcpy(static_cast<Word*>(dw) + o * depth, all.data() + (o * together + o / og % together) * depth,
                static_cast<size_t>(depth) * sizeof(Word));
  }
}

}  // namespace deft::cpu::detail
