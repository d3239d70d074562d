// linear() for inference with a weight packed for the CPU's GEMM kernels, and fused with the ops that usually follow
// in one pass: bias, a residual, an activation.
#pragma once

#include <memory>
#include <mutex>

#include "core/op.h"
#include "ops/fused_activation.h"
#include "ops/prepared_kernel.h"

namespace deft {

struct OpSamples;
namespace cpu {
class PackedMatrix;
}

// activation(x times the transpose of weight [out, in], plus bias, plus residual). Called through PackedLinear, or by
// compiled plans without `packed`: the weight is then kept as linear() keeps it. Shapes of plans repeat: on CUDA
// devices the first call of a shape times several kernels, unless deterministic().
struct FusedLinear {
  struct Params {
    FusedActivation activation = FusedActivation::none;
    const cpu::PackedMatrix* packed = nullptr;
    bool one_row = false;      // of a small f32 weight that stays as it is: kept in panels for that
    bool wide_result = false;  // of 16-bit inputs: f32, not rounded
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "fused_linear",
                               .inputs = 4,
                               .dtypes = kFloats,
                               .fusion = Fusion::contraction,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound};
  static constexpr const char* not_differentiable = "it is for inference; use linear() where gradients are wanted";
  static Meta infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& residual, Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static PreparedKernel prepare(const KernelCall& c);  // with one_row
  // Whether one_row is worth it.
  static bool fits_one_row(const Meta& x, const Meta& weight);
  static OpSamples samples();
};

// Packs the weight at the first call and again whenever it was written since (by its version; a weight made in
// inference mode has none and counts as constant). Calls from several threads are safe. On other devices than the CPU
// the same result comes from linear() and the single ops.
class PackedLinear {
 public:
  // `compute` = bf16 rounds an f32 weight and f32 inputs to bf16 for the GEMM (sums stay f32, and so do bias,
  // residual and result): several times as fast where the CPU has bf16 instructions, at some 2e-3 relative error.
  // Without bf16 instructions the GEMM stays f32. Undefined bias: none.
  explicit PackedLinear(Tensor weight, Tensor bias = {}, Site site = Site::current());
  PackedLinear(Tensor weight, Tensor bias, DType compute, Site site = Site::current());
  ~PackedLinear();

  Tensor operator()(const Tensor& x, FusedActivation activation = FusedActivation::none, const Tensor& residual = {},
                    Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }
  int64_t packed_bytes() const;  // 0 before the first call

 private:
  std::shared_ptr<const cpu::PackedMatrix> current(int64_t rows) const;

  Tensor weight_, bias_;
  DType compute_;
  mutable std::mutex mutex_;
  struct Kept {
    std::shared_ptr<const cpu::PackedMatrix> packed;
    uint64_t stamp = 0;  // of the weight's storage when it was packed
  };
  mutable Kept kept_[2];  // for many rows of f32 there may be another form
};

}  // namespace deft
