// Errors found by kernels: an index out of range, a probability above 1. The kernel does nothing harmful with the bad
// value, writes what it found into host memory, and the next op or synchronisation on the device throws it.
#pragma once

#include <cstdint>

namespace deft::cuda {

enum class FaultKind : int32_t { index, value };  // thrown as IndexError, ValueError

// One per device. `taken` lies in device memory: the first kernel thread that finds something takes the record.
struct FaultRecord {
  volatile int32_t ready;
  FaultKind kind;
  const char* op;    // a string of the host; the device only hands it through
  const char* text;  // fmt pattern with {0} = op, {1}.. = values
  const char* file;
  int32_t line;
  long long values[4];
};

// The argument of a checking kernel, by value.
struct FaultSite {
  FaultRecord* record;
  unsigned* taken;
  FaultKind kind;
  const char* op;
  const char* text;
  const char* file;
  int32_t line;
};

#ifdef __CUDACC__
__device__ inline void raise_fault(const FaultSite& s, long long a, long long b = 0, long long c = 0, long long d = 0) {
  if (atomicExch(s.taken, 1u) != 0) return;
  FaultRecord& r = *s.record;
  r.kind = s.kind;
  r.op = s.op;
  r.text = s.text;
  r.file = s.file;
  r.line = s.line;
  r.values[0] = a;
  r.values[1] = b;
  r.values[2] = c;
  r.values[3] = d;
  __threadfence_system();
  r.ready = 1;
}
#endif

}  // namespace deft::cuda
