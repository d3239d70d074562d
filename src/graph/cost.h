// The cost of instructions, from shapes and types alone, for passes that choose between forms of a graph. It does not
// depend on the number of threads, so that the same program always becomes the same plan.
#pragma once

#include "graph/ir.h"

namespace deft::graph {

struct Work {
  double bytes = 0;  // read and written
  double flops = 0;  // multiplications and additions of matmuls and convolutions; 0 for what memory bounds
};
Work work_of(const Graph& graph, const Instruction& x);

// One core, as measured by `bench gemm`-like loops on a Neoverse-V1 with operands in its caches: f32 matmuls of 128 x
// 768 x 768 run at 75 GFLOP/s and those of bf16 at 275; adding two arrays of 400 KB moves 40 GB/s; three matmuls of 1
// x 64 x 64 take 0.36 us longer than one of 1 x 64 x 192; three of 128 x 256 x 256 take 18 us longer than one (f32) or
// 11 us (bf16), which is what packing the left side twice more takes. Ratios of these decide, which other machines
// share.
inline constexpr double kBytesPerNs = 40;
inline constexpr double kCallNs = 180;
double flops_per_ns(DType dtype);
double pack_ns(int64_t elements, DType dtype);  // of a left side that is not read in place

// The larger of memory time and arithmetic time, plus the overhead of a call.
double nanoseconds(const Work& work, DType dtype);
double nanoseconds(const Graph& graph, const Instruction& x);

}  // namespace deft::graph
