// Elementwise kernels over any strides and element types. Their tables are built from formulas by elementwise.cuh.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

inline constexpr int kMaxInputs = 3;

// The kernels of one formula and one element type: nullptr where there is none.
struct ElementwiseKernel {
  const void* linear;      // LinearArgs, params: everything stored in that type, the result without gaps
  const void* strided;     // StridedArgs, params: anything; one for all floats but f64, one for all integers
  int elements_per_block;  // of `linear`
  bool takes_fours;        // `strided` knows StridedArgs::fours
};

// An input that is a number, in the type the formula runs in: i for all integers and bool.
union Number {
  float f;
  double d;
  int64_t i;
};

// How a linear kernel finds its inputs: all at the same place as the output, in packs at mapped places, or one by one.
enum class Access : int32_t { same, packs, single };
inline constexpr int kMappedDims = 4;
// Access::packs is for the common types only: every way to access memory has code of its own.
constexpr bool maps_packs(size_t element_size) { return element_size == 2 || element_size == 4; }

struct LinearArgs {
  const void* in[kMaxInputs];  // nullptr: a number
  void* out;
  int64_t n;
  Number number[kMaxInputs];
  Access access;
  int32_t ndim;  // of the map; 0: element i is at i
  FastDivide divide[kMappedDims];
  int32_t strides[kMaxInputs][kMappedDims];
};

inline constexpr int kFours = 4;

// For less than 2^31 elements.
struct StridedArgs {
  OffsetMap<kMaxInputs + 1> map;  // 0 is the output
  void* out;
  const void* in[kMaxInputs];  // nullptr: a number
  DType out_dtype, in_dtype[kMaxInputs];
  DType compute;
  bool fours;  // a thread works on kFours neighbours of floats of 2 or 4 bytes, which are neighbours in all operands
  int64_t n;
  Number number[kMaxInputs];
};

struct ElementwiseCall {
  int ndim;
  const int64_t* sizes;
  int inputs;
  Operand in[kMaxInputs];  // data == nullptr: number[i]
  Number number[kMaxInputs];
  Operand out;
  DType compute;       // the type the formula runs in
  DType stored;        // of the linear kernel: all inputs but a condition, and the output unless it is `boolean`
  bool boolean;        // the formula gives a bool
  bool condition;      // input 0 is a bool, whatever the others are
  const void* params;  // what the formula declares as Params
};

// `row`: the kernels of the formula, by element type. The output may overlap an input only if both are the same
// elements in the same order.
void elementwise(Encoder& e, const ElementwiseKernel* row, const ElementwiseCall& call);

// The same where everything is stored in one type without gaps and in one order; in[i] == nullptr: number[i].
void elementwise_linear(Encoder& e, const ElementwiseKernel& kernel, LinearArgs& args, int inputs, const void* params);

}  // namespace deft::cuda
