// Element-wise kernels over any strides and element types, and conversion between element types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/dtype.h"
#include "runtime/limits.h"

namespace deft::cpu {

struct Operand {
  void* data;
  DType dtype;
  int64_t strides[kMaxDims];  // in elements; may be 0 or negative
};

// Works on n contiguous elements of the compute type; `out` holds the result type. in[i] and out may alias exactly.
// Built from formulas in chunk-inl.h.
using ChunkFn = void (*)(const void* const* in, void* out, size_t n, const void* params);

inline constexpr int kMaxInputs = 4;

struct ElementwiseCall {
  int ndim;
  int64_t sizes[kMaxDims];
  int inputs;
  Operand in[kMaxInputs];
  Operand out;
  DType compute;  // inputs are converted to it
  DType result;   // what fn writes: compute, or boolean for comparisons; converted to out.dtype
  ChunkFn fn;
  const void* params;
};

// The output may overlap an input only if both are the same elements in the same order.
void elementwise(const ElementwiseCall& call);

// The same elements in the same order everywhere, of the types fn takes.
struct LinearCall {
  ChunkFn fn;
  int inputs;
  const void* in[kMaxInputs];
  void* out;
  size_t in_size, out_size;  // of an element
  const void* params;
};
void elementwise_linear(const LinearCall& call, int64_t total);

// Contiguous conversion, on the calling thread. float -> integer truncates toward zero and saturates, NaN gives 0; i8
// and u8 keep the low 8 bits of i64 (0 beyond it);
// integer -> narrower integer wraps; anything -> bool is != 0; bool -> number is 0 or 1.
void convert(const void* src, DType from, void* dst, DType to, size_t n);

}  // namespace deft::cpu
