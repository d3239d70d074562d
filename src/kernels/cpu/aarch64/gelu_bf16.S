// gelu_bf16() (kernels/cpu/simd_math_f32-inl.h) of eight rows of a tile on the way to c. Arguments: x0 sums, x1 bytes
// of a row of them, x2 vectors of a row, x3 scale, x4 bias, x5 c, x6 offsets of its rows in elements, x7 constants. A
// column of eight vectors goes through each step before the next, so that they hide each other's latency. Coefficients
// are loaded where fmla overwrites them: a move would take the place of an operation.
#include "kernels/cpu/aarch64/tile.h"
#if defined(__aarch64__)
.arch armv8.2-a+bf16

// `step` with n, 8 + n and 16 + n for each row n.
.macro eight step
  .irp n, 0, 1, 2, 3, 4, 5, 6, 7
    \step \n, %(8 + \n), %(16 + \n)
  .endr
.endm
.macro row_pointer n, one, two
  ldr x16, [x6, #(8 * \n)]
  add x\one, x5, x16, lsl #1
.endm
.macro value n, one, two
  ldr q\two, [x4]
  ld1 {v\n\().4s}, [x16], x1
  fmla v\two\().4s, v\n\().4s, v27.4s
.endm
// v0-7: |x|; the polynomial goes to and fro between v8-15 and v16-23.
.macro size n, one, two
  fabs v\n\().4s, v\two\().4s
  fmax v\two\().4s, v\two\().4s, v26.4s
.endm
.macro limit n, one, two
  fmin v\n\().4s, v\n\().4s, v24.4s
  str q\two, [sp, #(16 * \n)]
.endm
.macro term_4 n, one, two
  ldr q\one, [x7, #32]
  fmla v\one\().4s, v\n\().4s, v25.4s
.endm
.macro term_3 n, one, two
  ldr q\two, [x7, #48]
  fmla v\two\().4s, v\n\().4s, v\one\().4s
.endm
.macro term_2 n, one, two
  ldr q\one, [x7, #64]
  fmla v\one\().4s, v\n\().4s, v\two\().4s
.endm
.macro term_1 n, one, two
  ldr q\two, [x7, #80]
  fmla v\two\().4s, v\n\().4s, v\one\().4s
.endm
.macro term_0 n, one, two
  ldr q\one, [x7, #96]
  fmla v\one\().4s, v\n\().4s, v\two\().4s
.endm
.macro square n, one, two
  fmul v\one\().4s, v\one\().4s, v\one\().4s
.endm
.macro less n, one, two
  ldr q\two, [sp, #(16 * \n)]
  fmls v\two\().4s, v\n\().4s, v\one\().4s
.endm
.macro store n, one, two
  bfcvtn v\two\().4h, v\two\().4s
  str d\two, [x\one], #8
.endm

function deft_neon_gelu_bf16
  sub sp, sp, #128
  .cfi_adjust_cfa_offset 128
  eight row_pointer
  ldp q24, q25, [x7]
  movi v26.4s, #0x80, lsl #24
1:
  ldr q27, [x3], #16
  mov x16, x0
  eight value
  eight size
  eight limit
  eight term_4
  eight term_3
  eight term_2
  eight term_1
  eight term_0
  eight square
  eight square
  eight square
  eight square
  eight less
  eight store
  add x0, x0, #16
  add x4, x4, #16
  subs x2, x2, #1
  b.ne 1b
  add sp, sp, #128
  .cfi_adjust_cfa_offset -128
endfunction deft_neon_gelu_bf16
#endif
