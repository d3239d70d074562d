// Signed bytes, int32 sums (SDOT), 8 x 12, four values of k per step: c row i is in v(8 + 3 i) to v(10 + 3 i).
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
.arch armv8.2-a+dotprod

.macro dot acc, b, a, lane
  sdot v\acc\().4s, v\b\().16b, v\a\().4b[\lane]
.endm
.macro row i, a, lane
  dot %(8 + 3 * \i), 4, \a, \lane
  dot %(9 + 3 * \i), 5, \a, \lane
  dot %(10 + 3 * \i), 6, \a, \lane
.endm

function deft_dot_s8_8x12
  lsl x4, x4, #2
  clear_accumulators
1:
  ldp q0, q1, [x1], #32
  ldp q4, q5, [x2]
  ldr q6, [x2, #32]
  add x2, x2, #48
  .irp i, 0,1,2,3
    row \i, 0, \i
  .endr
  .irp i, 0,1,2,3
    row %(4 + \i), 1, \i
  .endr
  subs x0, x0, #1
  b.ne 1b
  store_8x12 add, 4s
endfunction deft_dot_s8_8x12

.section .note.GNU-stack, "", %progbits
#endif
