// 4 x 4 dot products of lines that lie in memory as they are: few rows times a large matrix, read once.
// Arguments: x0 steps, x1 four pointers of the left side, x2 four of the right side, x3 out[16], row by row.
// A step is two vectors of each line. Note [Loads ahead] does not apply: memory is the limit.
#include "kernels/cpu/aarch64/tile.h"
#if defined(__aarch64__)
.arch armv8.2-a+bf16

.macro fma_f32 acc, x, y
  fmla v\acc\().4s, v\x\().4s, v\y\().4s
.endm
.macro fma_bf16 acc, x, y
  bfdot v\acc\().4s, v\x\().8h, v\y\().8h
.endm
.macro half product
  .irp i, 0,1,2,3
    \product %(16 + 4 * \i), \i, 4
    \product %(17 + 4 * \i), \i, 5
    \product %(18 + 4 * \i), \i, 6
    \product %(19 + 4 * \i), \i, 7
  .endr
.endm
.macro load_lines
  ldr q4, [x10], #16
  ldr q5, [x11], #16
  ldr q6, [x12], #16
  ldr q7, [x13], #16
  ldr q0, [x6], #16
  ldr q1, [x7], #16
  ldr q2, [x8], #16
  ldr q3, [x9], #16
.endm
// The sums of the lanes of four accumulators to one vector of out.
.macro gather_row r0, r1, r2, r3
  faddp v\r0\().4s, v\r0\().4s, v\r1\().4s
  faddp v\r2\().4s, v\r2\().4s, v\r3\().4s
  faddp v\r0\().4s, v\r0\().4s, v\r2\().4s
  str q\r0, [x3], #16
.endm

.macro dots name, product
function \name
  ldp x6, x7, [x1]
  ldp x8, x9, [x1, #16]
  ldp x10, x11, [x2]
  ldp x12, x13, [x2, #16]
  clear_accumulators
1:
  load_lines
  half \product
  load_lines
  half \product
  subs x0, x0, #1
  b.ne 1b
  .irp i, 0,1,2,3
    gather_row %(16 + 4 * \i), %(17 + 4 * \i), %(18 + 4 * \i), %(19 + 4 * \i)
  .endr
endfunction \name
.endm

dots deft_neon_dots_f32, fma_f32
dots deft_dots_bf16, fma_bf16

// ---- One line of the left side (x1) with four of the right side: whole cache lines of each in turn, which is how a core
// reads fastest from several places (36 instead of 26 GB/s). A step is four vectors. out has four values.
.macro line_of product, line, first
  ldp q4, q5, [\line]
  ldp q6, q7, [\line, #32]
  add \line, \line, #64
  \product %(\first), 0, 4
  \product %(\first + 1), 1, 5
  \product %(\first + 2), 2, 6
  \product %(\first + 3), 3, 7
.endm
.macro sum_of_line first, r1, r2, r3
  fadd v\first\().4s, v\first\().4s, v\r1\().4s
  fadd v\r2\().4s, v\r2\().4s, v\r3\().4s
  fadd v\first\().4s, v\first\().4s, v\r2\().4s
.endm
.macro dots_of_one name, product
function \name
  ldp x10, x11, [x2]
  ldp x12, x13, [x2, #16]
  clear_accumulators
1:
  ldp q0, q1, [x1]
  ldp q2, q3, [x1, #32]
  add x1, x1, #64
  line_of \product, x10, 16
  line_of \product, x11, 20
  line_of \product, x12, 24
  line_of \product, x13, 28
  subs x0, x0, #1
  b.ne 1b
  .irp r, 16,20,24,28
    sum_of_line \r, %(\r + 1), %(\r + 2), %(\r + 3)
  .endr
  gather_row 16, 20, 24, 28
endfunction \name
.endm

dots_of_one deft_neon_dots1_f32, fma_f32
dots_of_one deft_dots1_bf16, fma_bf16

.section .note.GNU-stack, "", %progbits
#endif
