// Process-wide switches of matrix products and convolutions on devices: speed against precision and start-up time.
// Thread safe; a change holds for ops called after it. The CPU's kernels do not look at them.
#pragma once

#include <cstddef>

namespace deft {

// f32 products and convolutions may round their inputs to TF32 (10 bits of mantissa, exponent of f32), which tensor
// cores multiply several times as fast. Default: off, or DEFT_ALLOW_TF32=1.
void set_allow_tf32(bool allow);
bool allow_tf32();

// The first convolution of each shape times the kernels there are and keeps the fastest for later calls. That first
// call makes the host wait for the device (counted as a synchronisation, "conv benchmark"). Worth it where shapes
// repeat. Default: off, or DEFT_CONV_BENCHMARK=1.
void set_conv_benchmark(bool on);
bool conv_benchmark();

// Most temporary memory one convolution may use; kernels that want more are not considered. Default: 256 MiB.
void set_conv_workspace_limit(size_t bytes);
size_t conv_workspace_limit();

// The first matrix product of each shape times several kernels instead of taking the library's first choice. That
// first call makes the host wait (counted as "gemm autotune"). Default: off, or DEFT_GEMM_AUTOTUNE=1.
void set_gemm_autotune(bool on);
bool gemm_autotune();

}  // namespace deft
