// From the tensors of a reduction to the call structs of the backends' kernels. Internal.
#pragma once

#include "ops/reduce.h"

namespace deft::reduction {

// Fills sizes, dims and operands of a cpu::ReduceCall or cuda::ReduceCall. The strides of the result are those it would
// have if the reduced dims had been kept.
template <class Call>
Call reduce_call(const Tensor& x, const Tensor& out, uint32_t dims) {
  Call call;
  call.ndim = x.dim();
  call.in.data = x.data_ptr();
  call.in.dtype = x.dtype();
  call.out.data = out.data_ptr();
  call.out.dtype = out.dtype();
  const bool kept = out.dim() == x.dim();
  for (int i = 0, at = 0; i < x.dim(); ++i) {
    const bool reduced = dims >> i & 1;
    call.sizes[i] = x.sizes()[i];
    call.reduced[i] = reduced;
    call.in.strides[i] = x.strides()[i];
    call.out.strides[i] = reduced ? 0 : out.strides()[kept ? i : at];
    at += !reduced;
  }
  return call;
}

inline ReduceParams one_dim(const MaxDim::Params& p, int rank) { return {rank ? 1u << p.dim : 0, p.keepdim}; }

}  // namespace deft::reduction
