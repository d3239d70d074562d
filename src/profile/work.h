// What a kernel has to do, from shapes alone: the same call always counts the same, however the kernel goes about it.
#pragma once

#include "core/op.h"

namespace deft::profile {

// Of GEMMs, convolutions and attention: multiplications and additions. Other ops count one for each element that an
// elementwise op makes (a chain: at each of its steps) or a reduction reads, moves of elements none.
// Bytes: what must be read and written once. Views count by their elements, a broadcast dimension and a tensor given
// twice count once, and of lookup tables only the rows that are read.
// Optimizer steps count every operation of their formula (ops/optimizer_work.h).
struct Work {
  double flops = 0, bytes = 0;
};
Work work_of(const KernelCall& call);  // after the kernel: some make their outputs themselves

}  // namespace deft::profile
