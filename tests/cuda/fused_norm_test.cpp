// Batch norm in training with a residual and a relu, and its gradient, as compiled training steps use them.
#include "cuda_util.h"
#include "graph/fused_norm_util.h"

namespace deft {
namespace {

class CudaFusedNorm : public GpuTest {};

TEST_F(CudaFusedNorm, SameBitsAsSingleOps) { check_fused_norms(kCUDA); }
TEST_F(CudaFusedNorm, NaN) { check_fused_norms_keep_nan(kCUDA); }

// More than one chunk of rows, and more channels than a strip has.
TEST_F(CudaFusedNorm, Large) {
  NoGradGuard guard;
  for (DType dtype : {f32, bf16})
    for (bool last : {false, true})
      FusedNormCheck({{16, 320, 56, 56}, last, true}, dtype, kCUDA).run(last ? "large, channels last" : "large");
}

}  // namespace
}  // namespace deft
