// Reading and writing through int64 indices. A bad index is reported through the device's fault record: unlike on the
// CPU, where nothing is written then, only the bad elements are left out (reads give 0).
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// How scatter combines. bool: add is or, mul is and. Integers wrap. min and max propagate NaN.
enum class ScatterOp : uint8_t { assign, add, mul, min, max };

// What is walked: the sizes of the index, and the dim it points into.
struct IndexSpace {
  int ndim;  // at least 1
  int64_t sizes[kMaxDims];
  int dim;
  int64_t dim_size;      // of the indexed tensor
  bool list = false;     // the index is 1-d; its operand has stride 0 in all dims but `dim`
  bool checked = false;  // bad ones were reported already and are -1 now
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }
};

// out[.., i, ..] = src[.., index[.., i, ..], ..]
void gather(Encoder& e, const IndexSpace& s, const Operand& src, const Operand& index, const Operand& out);
// The same for a list; copies whole blocks where the dims after `dim` are contiguous.
void index_select(Encoder& e, const IndexSpace& s, const Operand& src, const Operand& index, const Operand& out);

// out[.., index[.., i, ..], ..] (op)= src[.., i, ..]. Repeated indices: the last assignment wins. Sums of f32 and f64
// are atomic and so differ in the last bits from run to run, unless `deterministic`; everything else repeats exactly.
// Sums of 16-bit floats are in f32 and round once.
void scatter(Encoder& e, ScatterOp op, const IndexSpace& s, const Operand& out, const Operand& index,
             const Operand& src, bool deterministic);
// out[index[i]] = the sum of grad[i], floats; both contiguous, index too. Entries equal to `skip` (-1: none) add
// nothing. Always in order.
void embedding_backward(Encoder& e, DType dtype, const void* grad, int64_t count, int64_t width, const int64_t* index,
                        int64_t skip, void* out, int64_t rows);

// Reports indices outside [0, size) and does nothing else.
void check_indices(Encoder& e, const int64_t* index, int64_t step, int64_t count, int64_t size);

// linear = linear * size + index over `sizes`, linear contiguous; `first`: as if it held 0. Negative indices count from
// the end. Bad ones are reported at `site` with (value, size, position, last) and give -1, which stays -1.
struct FoldIndex {
  int ndim;
  int64_t sizes[kMaxDims];
  const int64_t* index;
  int64_t strides[kMaxDims];           // of the index
  int64_t position_strides[kMaxDims];  // of the user's index as if it were contiguous
  int64_t size;
  bool first;
  FaultSite site;
  int64_t last;
};
void fold_index(Encoder& e, const FoldIndex& f, int64_t* linear);
// Positions in `ndim` dims seen as a single row-major one, as offsets in memory; -1 stays -1.
void index_offsets(Encoder& e, const int64_t* linear, int64_t count, int ndim, const int64_t* sizes,
                   const int64_t* strides, int64_t* out);
// The offset in memory of every element of a strided region, in row-major order.
void region_offsets(Encoder& e, int ndim, const int64_t* sizes, const int64_t* strides, int64_t* out);

// Class numbers: bad ones are reported at `site` with (target, element, classes, ignore) and give class 0.
void class_targets(Encoder& e, const int64_t* target, int64_t count, int64_t classes, int64_t ignore, int64_t* safe,
                   bool* ignored, const FaultSite& site);
// edge = x (1 - x) <= limit; x outside [0, 1] is reported at `site`. f32 and f64.
void probability_edges(Encoder& e, DType dtype, const void* x, int64_t count, double limit, bool* edge,
                       const FaultSite& site);

}  // namespace deft::cuda
