#include "kernels/cpu/gemm/dot_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/cpu_isa.h"

#if defined(__aarch64__)
extern "C" {
#define DEFT_DOTS(name) void name(int64_t steps, const void* rows, const void* const* lines, void* out)
DEFT_DOTS(deft_dots1_f32);
DEFT_DOTS(deft_dots2_f32);
DEFT_DOTS(deft_dots3_f32);
DEFT_DOTS(deft_dots4_f32);
DEFT_DOTS(deft_dots1_f64);
DEFT_DOTS(deft_dots2_f64);
DEFT_DOTS(deft_dots3_f64);
DEFT_DOTS(deft_dots4_f64);
DEFT_DOTS(deft_dots1_f16);
DEFT_DOTS(deft_dots2_f16);
DEFT_DOTS(deft_dots3_f16);
DEFT_DOTS(deft_dots4_f16);
DEFT_DOTS(deft_dots1_bf16);
DEFT_DOTS(deft_dots2_bf16);
DEFT_DOTS(deft_mma_dots4_bf16);
DEFT_DOTS(deft_mma_dots8_bf16);
DEFT_DOTS(deft_dots1_s8);
DEFT_DOTS(deft_dots2_s8);
DEFT_DOTS(deft_dots4_s8);
DEFT_DOTS(deft_mma_dots4_s8);
DEFT_DOTS(deft_mma_dots8_s8);
DEFT_DOTS(deft_dots1_u8s8);
DEFT_DOTS(deft_dots2_u8s8);
DEFT_DOTS(deft_mma_dots4_u8s8);
DEFT_DOTS(deft_mma_dots8_u8s8);
#undef DEFT_DOTS
}
#elif defined(__x86_64__)
extern "C" {
#define DEFT_DOTS(name) void name(int64_t steps, const void* rows, const void* const* lines, void* out)
DEFT_DOTS(deft_dots1_s8);
DEFT_DOTS(deft_dots2_s8);
DEFT_DOTS(deft_dots4_s8);
DEFT_DOTS(deft_dots1_u8s8);
DEFT_DOTS(deft_dots2_u8s8);
DEFT_DOTS(deft_dots4_u8s8);
#undef DEFT_DOTS
}
#endif

namespace deft::cpu {

namespace {

#if defined(__x86_64__)
constexpr int64_t kPiece = 64;
#else
constexpr int64_t kPiece = 16;
#endif
constexpr int64_t kLongestStep = 64;

// Fewest rows first.
#if defined(__aarch64__)
constexpr DotsKernel kF32[] = {{deft_dots1_f32, 1, 64, false},
                               {deft_dots2_f32, 2, 32, false},
                               {deft_dots3_f32, 3, 32, false},
                               {deft_dots4_f32, 4, 32, false}};
constexpr DotsKernel kF64[] = {{deft_dots1_f64, 1, 64, false},
                               {deft_dots2_f64, 2, 32, false},
                               {deft_dots3_f64, 3, 32, false},
                               {deft_dots4_f64, 4, 32, false}};
constexpr DotsKernel kF16[] = {{deft_dots1_f16, 1, 64, false},
                               {deft_dots2_f16, 2, 32, false},
                               {deft_dots3_f16, 3, 32, false},
                               {deft_dots4_f16, 4, 32, false}};
constexpr DotsKernel kBf16[] = {{deft_dots1_bf16, 1, 64, false},
                                {deft_dots2_bf16, 2, 32, false},
                                {deft_mma_dots4_bf16, 4, 32, true},
                                {deft_mma_dots8_bf16, 8, 32, true}};
constexpr DotsKernel kS8[] = {{deft_dots1_s8, 1, 64, false},
                              {deft_dots2_s8, 2, 32, false},
                              {deft_mma_dots4_s8, 4, 32, true},
                              {deft_mma_dots8_s8, 8, 32, true}};
constexpr DotsKernel kS8Dot[] = {
    {deft_dots1_s8, 1, 64, false}, {deft_dots2_s8, 2, 32, false}, {deft_dots4_s8, 4, 32, false}};
constexpr DotsKernel kU8S8[] = {{deft_dots1_u8s8, 1, 64, false},
                                {deft_dots2_u8s8, 2, 32, false},
                                {deft_mma_dots4_u8s8, 4, 32, true},
                                {deft_mma_dots8_u8s8, 8, 32, true}};
std::span<const DotsKernel> kernels_for(DType a, DType b) {
  if (a == DType::u8 && b == DType::i8 && cpu_has("i8mm")) return kU8S8;
  if (a != b) return {};
  if (a == DType::f32) return kF32;
  if (a == DType::f64) return kF64;
  if (a == DType::f16 && cpu_has("asimdhp") && cpu_has("asimdfhm")) return kF16;
  if (a == DType::bf16 && cpu_has("bf16")) return kBf16;
  if (a == DType::i8 && cpu_has("asimddp")) {
    if (cpu_has("i8mm")) return kS8;
    return kS8Dot;
  }
  return {};
}
#elif defined(__x86_64__)
// Bytes only: floats reach the speed of memory in gemm_direct.cpp.
constexpr DotsKernel kS8[] = {
    {deft_dots1_s8, 1, 64, false}, {deft_dots2_s8, 2, 64, false}, {deft_dots4_s8, 4, 64, false}};
constexpr DotsKernel kU8S8[] = {
    {deft_dots1_u8s8, 1, 64, false}, {deft_dots2_u8s8, 2, 64, false}, {deft_dots4_u8s8, 4, 64, false}};
std::span<const DotsKernel> kernels_for(DType a, DType b) {
  if (b != DType::i8 || !cpu_has("avx512_vnni")) return {};
  if (a == DType::i8) return kS8;
  if (a == DType::u8) return kU8S8;
  return {};
}
#else
std::span<const DotsKernel> kernels_for(DType, DType) { return {}; }
#endif

// The smallest kernel that takes all rows, else the largest.
const DotsKernel& kernel_for_rows(std::span<const DotsKernel> kernels, int64_t rows) {
  for (const DotsKernel& kernel : kernels) {
    if (kernel.rows >= rows) return kernel;
  }
  return kernels.back();
}

DType sums_of(DType b) { return b == DType::f64 ? b : is_floating(b) ? DType::f32 : DType::i32; }

int64_t packed_bytes(const DotsKernel& kernel, int64_t bytes) {
  return kernel.rows * ((bytes + kernel.step - 1) / kernel.step * kernel.step);
}

// Note [Packed rows].
void pack(const DotsKernel& kernel, std::span<const void* const> rows, int64_t bytes, char* out) {
  constexpr int64_t kHalf = kPiece / 2;
  const int64_t group = kPiece * kernel.rows, all = packed_bytes(kernel, bytes);
  if (static_cast<int64_t>(rows.size()) < kernel.rows) {
    std::memset(out, 0, static_cast<size_t>(all));
  } else if (bytes % kernel.step != 0) {
    const int64_t step = kernel.rows * kernel.step;
    std::memset(out + all - step, 0, static_cast<size_t>(step));
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    const char* from = static_cast<const char*>(rows[r]);
    char* to = out + (kernel.pairs ? row / 2 * 2 * kPiece + row % 2 * kHalf : row * kPiece);
    const int64_t upper = kernel.pairs ? kPiece : kHalf;  // where the second half of a piece lies
    int64_t at = 0;
    for (; at + kPiece <= bytes; at += kPiece, to += group) {
      std::memcpy(to, from + at, kHalf);
      std::memcpy(to + upper, from + at + kHalf, kHalf);
    }
    const int64_t rest = bytes - at;
    if (rest > 0) std::memcpy(to, from + at, static_cast<size_t>(std::min(rest, kHalf)));
    if (rest > kHalf) std::memcpy(to + upper, from + at + kHalf, static_cast<size_t>(rest - kHalf));
  }
}

}  // namespace

bool Dots::apply(DType a, DType b, int64_t k) {
  return k * static_cast<int64_t>(size_of(b)) >= kLongestStep && !kernels_for(a, b).empty();
}

Dots::Dots(DType a, DType b, std::span<const void* const> rows, int64_t k)
    : bytes_(k * static_cast<int64_t>(size_of(b))), sums_(sums_of(b)), large_([&] {
        const int64_t most = (static_cast<int64_t>(rows.size()) + 7) / 8 * 8 * (bytes_ + kLongestStep);
        return rows.size() > 1 && most > kSmallBytes ? most : 0;
      }()) {
  const std::span<const DotsKernel> kernels = kernels_for(a, b);
  char* to = large_.data() ? large_.data() : small_;
  while (!rows.empty()) {
    const DotsKernel& kernel = kernel_for_rows(kernels, static_cast<int64_t>(rows.size()));
    const auto taken = rows.first(std::min(rows.size(), static_cast<size_t>(kernel.rows)));
    const int64_t whole = bytes_ / kernel.step * kernel.step;
    Block& block = blocks_[count_++];
    if (kernel.rows == 1) {
      block = {&kernel, static_cast<const char*>(rows[0]), single_tail_};
      std::memset(single_tail_, 0, sizeof single_tail_);
      std::memcpy(single_tail_, block.rows + whole, static_cast<size_t>(bytes_ - whole));
    } else {
      pack(kernel, taken, bytes_, to);
      block = {&kernel, to, to + whole * kernel.rows};
      to += packed_bytes(kernel, bytes_);
    }
    rows = rows.subspan(taken.size());
  }
}

void Dots::run(const void* const* lines, void* out) const {
  char* to = static_cast<char*>(out);
  for (const Block& block : std::span(blocks_, static_cast<size_t>(count_))) {
    const DotsKernel& kernel = *block.kernel;
    kernel.run(bytes_ / kernel.step, block.rows, lines, to);
    if (bytes_ % kernel.step != 0) add_tail(block, lines, to);
    to += kernel.rows * kLines * static_cast<int64_t>(size_of(sums_));
  }
}

// One more step, on copies padded with zeros.
void Dots::add_tail(const Block& block, const void* const* lines, void* out) const {
  const int64_t step = block.kernel->step, rest = bytes_ % step, count = block.kernel->rows * kLines;
  alignas(kPiece) char ends[kLines][kLongestStep] = {};
  const void* from[kLines];
  for (int i = 0; i < kLines; ++i) {
    std::memcpy(ends[i], static_cast<const char*>(lines[i]) + bytes_ - rest, static_cast<size_t>(rest));
    from[i] = ends[i];
  }
  const auto add = [&]<class T>(T* sums) {
    T more[kLines * 8];
    block.kernel->run(1, block.tail, from, more);
    for (int64_t i = 0; i < count; ++i) sums[i] += more[i];
  };
  if (sums_ == DType::f64) return add(static_cast<double*>(out));
  if (sums_ == DType::i32) return add(static_cast<uint32_t*>(out));
  add(static_cast<float*>(out));
}

}  // namespace deft::cpu
