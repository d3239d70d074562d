// Process-wide switches of matmuls and convolutions on devices: speed against precision and start-up time.
// Thread safe; a change holds for ops called after it. Those about the CPU come last.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deft {

// f32 matmuls and convolutions may round their inputs to TF32 (10 bits of mantissa, exponent of f32), which tensor
// cores multiply several times as fast. On CPUs with AMX large ones keep 16 bits. Default: off, or DEFT_ALLOW_TF32=1.
void set_allow_tf32(bool allow);
bool allow_tf32();

// The first convolution of each shape times the kernels there are and keeps the fastest for later calls. That first
// call makes the host wait for the device (counted as a synchronisation, "conv benchmark"). Worth it where shapes
// repeat. Default: off, or DEFT_CONV_BENCHMARK=1.
void set_conv_benchmark(bool on);
bool conv_benchmark();

// Most temporary memory one convolution may use; kernels that want more are not considered. Where there is not as much,
// others run, which may be slower. Default: 4 GiB.
void set_conv_workspace_limit(size_t bytes);
size_t conv_workspace_limit();

// The first matmul of each shape times several kernels instead of taking the library's first choice. That
// first call makes the host wait (counted as "gemm autotune"). Default: off, or DEFT_GEMM_AUTOTUNE=1.
void set_gemm_autotune(bool on);
bool gemm_autotune();

// Only kernels whose results repeat bit for bit. On the CPU all do; there it also keeps every choice that is measured
// at run time at its first candidate. Holds for the calling thread, for threads that begin after it, and for work they
// hand on. Default: off, or DEFT_DETERMINISTIC=1.
void set_deterministic(bool on);
bool deterministic();

// CPU: the first calls of a new shape of matmul or convolution try a few ways to divide it, one per call, and later
// calls take the fastest. Results are the same whichever runs. Choices are kept in a file from run to run.
// off: the first candidate always; exhaustive: more candidates. Default: on, or DEFT_AUTOTUNE=off|on|exhaustive.
enum class Autotune : uint8_t { off, on, exhaustive };
void set_autotune(Autotune mode);
Autotune autotune();

// CPU: f32 convolutions of 3 x 3 with stride 1 over channels_last images may use Winograd's F(4 x 4, 3 x 3), which
// takes a quarter of the multiplications. Its error against the largest sum of products is about ten times that of the
// direct form (kernels/cpu/conv/conv_winograd.cpp). Default: off, or DEFT_WINOGRAD=1.
void set_conv_winograd(bool on);
bool conv_winograd();

// CPU: large f32 matmuls and convolutions may multiply every value as three of bf16, where AMX does that faster.
// Errors are not larger than those of f32; results below about 1e-30 may lose bits (kernels/cpu/x86/split_tiles.cpp).
// Default: on, or DEFT_SPLIT_F32=0.
void set_split_f32(bool on);
bool split_f32();

}  // namespace deft
