// gelu_bf16() (kernels/cpu/simd/simd_math_f32-inl.h) of tiles of twelve columns on the way to c. Arguments: x0 sums, x1
// bytes of a row of them, x2 scale, x3 bias, x4 c, x5 offsets of its rows in elements, x6 constants, x7 groups of four
// rows. The twelve vectors of four rows go through each step before the next, so that they hide each other's latency: 6
// cycles a vector on a Neoverse-V1, 6.9 with eight. Coefficients are loaded where fmla overwrites them: a move would
// take an issue slot.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
.arch armv8.2-a+bf16

// `load`, then `step` for vectors four by four.
.macro four load, step, turn, i0, i1, i2, i3
  .irp i, \i0, \i1, \i2, \i3
    \load \i, %(12 + ((\i + 12 * \turn) & 15)), %(12 + ((\i + 12 * \turn + 12) & 15))
  .endr
  .irp i, \i0, \i1, \i2, \i3
    \step \i, %(12 + ((\i + 12 * \turn) & 15)), %(12 + ((\i + 12 * \turn + 12) & 15))
  .endr
.endm
.macro fours load, step, turn
  four \load, \step, \turn, 0, 1, 2, 3
  four \load, \step, \turn, 4, 5, 6, 7
  four \load, \step, \turn, 8, 9, 10, 11
.endm
// `step` with i for each of the twelve: row i / 3, whose place in c is in x8 to x11, columns 4 (i % 3) and on.
.macro twelve step, turn
  .irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    \step \i, %(12 + ((\i + 12 * \turn) & 15)), %(12 + ((\i + 12 * \turn + 12) & 15)), %(8 + \i / 3), %(\i % 3), %(24 + \i % 3)
  .endr
.endm
// v0-11: |x|. The polynomials are in twelve of v12-27 (`now`), and each step writes to those that the previous step
// left free (`then`), in rotation.
.macro row_pointer i, now, then, to, column, scale
  .if \column == 0
    ldr x12, [x5], #8
    add x\to, x4, x12, lsl #1
  .endif
.endm
.macro value i, now, then, to, column, scale
  ldr q\now, [x3, #(16 * \column)]
  ldr q\i, [x13, #(16 * \column)]
  .if \column == 2
    add x13, x13, x1
  .endif
.endm
.macro scaled i, now, then, to, column, scale
  fmla v\now\().4s, v\i\().4s, v\scale\().4s
.endm
.macro size i, now, then, to, column, scale
  fabs v\i\().4s, v\now\().4s
.endm
.macro positive i, now, then, to, column, scale
  fmax v\now\().4s, v\now\().4s, v30.4s
  str q\now, [sp, #(16 * \i)]
.endm
.macro limit i, now, then, to, column, scale
  fmin v\i\().4s, v\i\().4s, v28.4s
.endm
.macro load_4 i, now, then
  ldr q\now, [x6, #32]
.endm
.macro term_4 i, now, then
  fmla v\now\().4s, v\i\().4s, v29.4s
.endm
.macro load_3 i, now, then
  ldr q\then, [x6, #48]
.endm
.macro load_2 i, now, then
  ldr q\then, [x6, #64]
.endm
.macro load_1 i, now, then
  ldr q\then, [x6, #80]
.endm
.macro load_0 i, now, then
  ldr q\then, [x6, #96]
.endm
.macro term i, now, then
  fmla v\then\().4s, v\i\().4s, v\now\().4s
.endm
.macro load_x i, now, then
  ldr q\then, [sp, #(16 * \i)]
.endm
.macro less i, now, then
  fmls v\then\().4s, v\i\().4s, v\now\().4s
.endm
.macro square i, now, then, to, column, scale
  fmul v\now\().4s, v\now\().4s, v\now\().4s
.endm
.macro rounded i, now, then, to, column, scale
  bfcvtn v\now\().4h, v\now\().4s
.endm
.macro store i, now, then, to, column, scale
  str d\now, [x\to, #(8 * \column)]
.endm

function deft_neon_gelu_bf16
  sub sp, sp, #192
  .cfi_adjust_cfa_offset 192
  ldp q28, q29, [x6]
  movi v30.4s, #0x80, lsl #24
  mov x13, x0
1:
  twelve row_pointer, 0
  ldp q24, q25, [x2]
  ldr q26, [x2, #32]
  twelve value, 0
  twelve scaled, 0
  twelve size, 0
  twelve positive, 0
  twelve limit, 0
  fours load_4, term_4, 0
  fours load_3, term, 0
  fours load_2, term, 1
  fours load_1, term, 2
  fours load_0, term, 3
  twelve square, 0
  twelve square, 0
  twelve square, 0
  twelve square, 0
  fours load_x, less, 0
  twelve rounded, 1
  twelve store, 1
  subs x7, x7, #1
  b.ne 1b
  add sp, sp, #192
  .cfi_adjust_cfa_offset -192
endfunction deft_neon_gelu_bf16

.section .note.GNU-stack, "", %progbits
#endif
