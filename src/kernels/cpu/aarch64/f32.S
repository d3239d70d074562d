// f32, 8 x 12 and 12 x 8, four values of k per step (Note [Loads ahead]).
#include "kernels/cpu/aarch64/tile.h"
#if defined(__aarch64__)

.macro fma acc, b, a, lane
  fmla v\acc\().4s, v\b\().4s, v\a\().s[\lane]
.endm

// ---- 8 x 12: row i, vector j of c is in v(8 + 3 i + j). a takes turns in v0, v1 and v2, v3; b's three vectors rotate
// through v4 to v7.
.macro column_8 j, b, a0, a1
  .irp i, 0,1,2,3
    fma %(8 + 3 * \i + \j), \b, \a0, \i
  .endr
  .irp i, 0,1,2,3
    fma %(20 + 3 * \i + \j), \b, \a1, \i
  .endr
.endm
.macro step_8x12 at, from, a0, a1, n0, n1, b0, b1, b2, spare, next
  .if \next
    ldp q\n0, q\n1, [x1, #(\at + 32)]
    ldr q\spare, [x2, #(\from + 48)]
  .endif
  column_8 0, \b0, \a0, \a1
  .if \next
    ldr q\b0, [x2, #(\from + 64)]
  .endif
  column_8 1, \b1, \a0, \a1
  .if \next
    ldr q\b1, [x2, #(\from + 80)]
  .endif
  column_8 2, \b2, \a0, \a1
.endm
.macro four_8x12 next
  step_8x12 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 1
  step_8x12 32, 48, 2, 3, 0, 1, 7, 4, 5, 6, 1
  step_8x12 64, 96, 0, 1, 2, 3, 6, 7, 4, 5, 1
  step_8x12 96, 144, 2, 3, 0, 1, 5, 6, 7, 4, \next
.endm

function deft_neon_f32_8x12
  lsl x4, x4, #2
  clear_accumulators
  ldp q0, q1, [x1]
  ldp q4, q5, [x2]
  ldr q6, [x2, #32]
  subs x0, x0, #1
  b.eq 2f
1:
  four_8x12 1
  add x1, x1, #128
  add x2, x2, #192
  subs x0, x0, #1
  b.ne 1b
2:
  four_8x12 0
  store_8x12 fadd, 4s
endfunction deft_neon_f32_8x12

// ---- 12 x 8: row i, vector j of c is in v(8 + 2 i + j). a's three vectors take turns in v0 to v2 and v3 to v5; b is in
// v6, v7.
.macro column_12 j, b, a0, a1, a2
  .irp i, 0,1,2,3
    fma %(8 + 2 * \i + \j), \b, \a0, \i
  .endr
  .irp i, 0,1,2,3
    fma %(16 + 2 * \i + \j), \b, \a1, \i
  .endr
  .irp i, 0,1,2,3
    fma %(24 + 2 * \i + \j), \b, \a2, \i
  .endr
.endm
.macro step_12x8 at, from, a0, a1, a2, n0, n1, n2, next
  .if \next
    ldp q\n0, q\n1, [x1, #(\at + 48)]
    ldr q\n2, [x1, #(\at + 80)]
  .endif
  column_12 0, 6, \a0, \a1, \a2
  .if \next
    ldr q6, [x2, #(\from + 32)]
  .endif
  column_12 1, 7, \a0, \a1, \a2
  .if \next
    ldr q7, [x2, #(\from + 48)]
  .endif
.endm
.macro four_12x8 next
  step_12x8 0, 0, 0, 1, 2, 3, 4, 5, 1
  step_12x8 48, 32, 3, 4, 5, 0, 1, 2, 1
  step_12x8 96, 64, 0, 1, 2, 3, 4, 5, 1
  step_12x8 144, 96, 3, 4, 5, 0, 1, 2, \next
.endm

function deft_neon_f32_12x8
  lsl x4, x4, #2
  clear_accumulators
  ldp q0, q1, [x1]
  ldr q2, [x1, #32]
  ldp q6, q7, [x2]
  subs x0, x0, #1
  b.eq 2f
1:
  four_12x8 1
  add x1, x1, #192
  add x2, x2, #128
  subs x0, x0, #1
  b.ne 1b
2:
  four_12x8 0
  store_12x8 fadd, 4s
endfunction deft_neon_f32_12x8

.section .note.GNU-stack, "", %progbits
#endif
