// Changing spatial sizes: interpolate, pad, unfold and fold.
#pragma once

#include <array>
#include <optional>

#include "core/op.h"

namespace deft {

struct OpSamples;

enum class InterpolateMode : uint8_t { nearest, nearest_exact, linear, bicubic };  // linear: also bi- and trilinear

struct Interpolate {
  struct Params {
    InterpolateMode mode = InterpolateMode::nearest;
    bool align_corners = false;
    std::array<int64_t, 3> in{}, out{};
    std::array<double, 3> scale{};  // as given by the caller; 0: derived from the sizes
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "interpolate", .onnx = {"Resize", 13}};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
  // Whether results for x are channels last, as x is.
  static bool keeps_channels_last(const Meta& x);
};
struct InterpolateBackward {
  using Params = Interpolate::Params;
  static constexpr OpInfo info{.name = "interpolate_backward"};
  static Meta infer(const Meta& g, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

enum class PadMode : uint8_t { constant, reflect, replicate, circular };

struct Pad {
  struct Params {
    PadMode mode = PadMode::constant;
    Shape before, after;  // one entry per dimension; negative values crop (constant only)
    double value = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "pad", .dtypes = kAllTypes, .onnx = {"Pad", 13}};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
  // Dimension i in the order of memory.
  static int dim_in_memory(int i, int rank, bool channels_last) {
    return !channels_last || i == 0 ? i : i == rank - 1 ? 1 : i + 1;
  }
  // The value as an element of `dtype`, in the first bytes.
  static uint64_t value_bits(const Params& p, DType dtype);
};
// The adjoint of the three modes that repeat values.
struct PadBackward {
  using Params = Pad::Params;
  static constexpr OpInfo info{.name = "pad_backward"};
  static Meta infer(const Meta& g, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// Sliding blocks of N, C, H, W as columns: N, C kh kw, positions.
struct Unfold {
  struct Params {
    std::array<int64_t, 2> in{}, kernel{}, stride{}, pad{}, dilation{}, out{};
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "unfold", .dtypes = kNumbers};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// The adjoint: overlapping blocks are summed.
struct Fold {
  using Params = Unfold::Params;
  static constexpr OpInfo info{.name = "fold", .dtypes = kNumbers};
  static Meta infer(const Meta& columns, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x is N, C and 1 to 3 spatial dimensions. Give the output size, or a factor (one number stands for all).
Tensor interpolate(const Tensor& x, IntList size, InterpolateMode mode = InterpolateMode::nearest,
                   bool align_corners = false, Site site = Site::current());
Tensor interpolate_scale(const Tensor& x, const std::vector<double>& scale,
                         InterpolateMode mode = InterpolateMode::nearest, bool align_corners = false,
                         Site site = Site::current());
// Amounts in PyTorch's order: last dimension first, {left, right, top, bottom, ...}. Negative ones crop, after the
// other end has been padded.
Tensor pad(const Tensor& x, IntList amounts, PadMode mode = PadMode::constant, double value = 0,
           Site site = Site::current());
Tensor unfold(const Tensor& x, IntList kernel, IntList dilation = {1}, IntList padding = {0}, IntList stride = {1},
              Site site = Site::current());
Tensor fold(const Tensor& columns, IntList output, IntList kernel, IntList dilation = {1}, IntList padding = {0},
            IntList stride = {1}, Site site = Site::current());

}  // namespace deft
