// f16 in, f32 sums (FMLAL, FMLAL2), 8 x 12, two values of k per step: c row i is in v(8 + 3 i) to v(10 + 3 i).
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
.arch armv8.2-a+fp16+fp16fml

// The twelve columns of a step: low and high half of v4, low half of v5 (even k), the same of v6 and v7 (odd k).
.macro fma_low acc, b, a, lane
  fmlal v\acc\().4s, v\b\().4h, v\a\().h[\lane]
.endm
.macro fma_high acc, b, a, lane
  fmlal2 v\acc\().4s, v\b\().4h, v\a\().h[\lane]
.endm
.macro row i, a, b0, b1
  fma_low %(8 + 3 * \i), \b0, \a, \i
  fma_high %(9 + 3 * \i), \b0, \a, \i
  fma_low %(10 + 3 * \i), \b1, \a, \i
.endm

function deft_fhm_f16_8x12
  lsl x4, x4, #2
  clear_accumulators
1:
  ldp q0, q1, [x1], #32
  ldr q4, [x2]
  ldr d5, [x2, #16]
  ldur q6, [x2, #24]
  ldr d7, [x2, #40]
  add x2, x2, #48
  .irp i, 0,1,2,3,4,5,6,7
    row \i, 0, 4, 5
  .endr
  .irp i, 0,1,2,3,4,5,6,7
    row \i, 1, 6, 7
  .endr
  subs x0, x0, #1
  b.ne 1b
  store_8x12 fadd, 4s
endfunction deft_fhm_f16_8x12

.section .note.GNU-stack, "", %progbits
#endif
