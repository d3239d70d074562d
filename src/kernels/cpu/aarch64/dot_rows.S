// Dot products of rows with four lines (columns of b) in place: few rows times a large matrix, which is read once.
// Arguments: x0 steps, x1 rows in the form of Note [Packed rows] in dot_rows.h, x2 four pointers to lines, x3 out, four
// values for each row. A step is two vectors of each line, four for a single row. Note [Loads ahead] does not apply:
// memory is the limit. Software prefetching, into whichever level, gains nothing here either.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
.arch armv8.2-a+fp16+fp16fml+dotprod+bf16+i8mm

.macro fma_f32 acc, x, y
  fmla v\acc\().4s, v\x\().4s, v\y\().4s
.endm
.macro fma_f64 acc, x, y
  fmla v\acc\().2d, v\x\().2d, v\y\().2d
.endm
.macro fma_bf16 acc, x, y
  bfdot v\acc\().4s, v\x\().8h, v\y\().8h
.endm
.macro fma_f16 acc, x, y
  fmlal v\acc\().4s, v\x\().4h, v\y\().4h
  fmlal2 v\acc\().4s, v\x\().4h, v\y\().4h
.endm
.macro dot_s8 acc, x, y
  sdot v\acc\().4s, v\x\().16b, v\y\().16b
.endm
.macro dot_u8s8 acc, x, y
  usdot v\acc\().4s, v\x\().16b, v\y\().16b
.endm
.macro mma_bf16 acc, x, y
  bfmmla v\acc\().4s, v\x\().8h, v\y\().8h
.endm
.macro mma_s8 acc, x, y
  smmla v\acc\().4s, v\x\().16b, v\y\().16b
.endm
.macro mma_u8s8 acc, x, y
  usmmla v\acc\().4s, v\x\().16b, v\y\().16b
.endm

.macro begin_lines
  ldp x10, x11, [x2]
  ldp x12, x13, [x2, #16]
  clear_accumulators
.endm
.macro load_pairs
  ldp q8, q9, [x10], #32
  ldp q10, q11, [x11], #32
  ldp q12, q13, [x12], #32
  ldp q14, q15, [x13], #32
.endm
.macro add_f32 to, from
  fadd v\to\().4s, v\to\().4s, v\from\().4s
.endm
.macro add_f64 to, from
  fadd v\to\().2d, v\to\().2d, v\from\().2d
.endm
.macro add_i32 to, from
  add v\to\().4s, v\to\().4s, v\from\().4s
.endm
// Adds the SIMD lanes of four accumulators into one row of out.
.macro gather_words plus_pairs, r0, r1, r2, r3
  \plus_pairs v\r0\().4s, v\r0\().4s, v\r1\().4s
  \plus_pairs v\r2\().4s, v\r2\().4s, v\r3\().4s
  \plus_pairs v\r0\().4s, v\r0\().4s, v\r2\().4s
  str q\r0, [x3], #16
.endm
.macro row_f32 r0, r1, r2, r3
  gather_words faddp, \r0, \r1, \r2, \r3
.endm
.macro row_i32 r0, r1, r2, r3
  gather_words addp, \r0, \r1, \r2, \r3
.endm
.macro row_f64 r0, r1, r2, r3
  faddp v\r0\().2d, v\r0\().2d, v\r1\().2d
  faddp v\r2\().2d, v\r2\().2d, v\r3\().2d
  stp q\r0, q\r2, [x3], #32
.endm

// ---- One row: whole cache lines of each line alternately; line j is summed in v(16 + 4 j) to v(19 + 4 j).
.macro line_of product, line, first
  ldp q4, q5, [\line]
  ldp q6, q7, [\line, #32]
  add \line, \line, #64
  \product %(\first), 0, 4
  \product %(\first + 1), 1, 5
  \product %(\first + 2), 2, 6
  \product %(\first + 3), 3, 7
.endm
.macro dots1 name, product, row, plus
function \name
  begin_lines
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
    \plus \r, %(\r + 1)
    \plus %(\r + 2), %(\r + 3)
    \plus \r, %(\r + 2)
  .endr
  \row 16, 20, 24, 28
endfunction \name
.endm

// ---- Two rows: sum (i, j) is in v(16 + 8 i + j) for the first vector of a step and v(20 + 8 i + j) for the second.
.macro vector_of_two product, at
  .irp i, 0,1
    \product %(16 + 8 * \i + 4 * \at), %(2 * \at + \i), %(8 + \at)
    \product %(17 + 8 * \i + 4 * \at), %(2 * \at + \i), %(10 + \at)
    \product %(18 + 8 * \i + 4 * \at), %(2 * \at + \i), %(12 + \at)
    \product %(19 + 8 * \i + 4 * \at), %(2 * \at + \i), %(14 + \at)
  .endr
.endm
.macro dots2 name, product, row, plus
function \name
  begin_lines
1:
  load_pairs
  ldp q0, q1, [x1]
  ldp q2, q3, [x1, #32]
  add x1, x1, #64
  vector_of_two \product, 0
  vector_of_two \product, 1
  subs x0, x0, #1
  b.ne 1b
  .irp r, 16,17,18,19,24,25,26,27
    \plus \r, %(\r + 4)
  .endr
  \row 16, 17, 18, 19
  \row 24, 25, 26, 27
endfunction \name
.endm

// ---- Three rows: sum (i, j) is in v(8 + 4 i + j) for the first vector of a step and v(20 + 4 i + j) for the second.
.macro vector_of_three product, first
  ldr q4, [x10], #16
  ldr q5, [x11], #16
  ldr q6, [x12], #16
  ldr q7, [x13], #16
  ldp q0, q1, [x1]
  ldr q2, [x1, #32]
  add x1, x1, #48
  .irp i, 0,1,2
    .irp j, 0,1,2,3
      \product %(\first + 4 * \i + \j), \i, %(4 + \j)
    .endr
  .endr
.endm
.macro dots3 name, product, row, plus
function \name
  begin_lines
1:
  vector_of_three \product, 8
  vector_of_three \product, 20
  subs x0, x0, #1
  b.ne 1b
  .irp r, 8,9,10,11,12,13,14,15,16,17,18,19
    \plus \r, %(\r + 12)
  .endr
  .irp r, 8,12,16
    \row \r, %(\r + 1), %(\r + 2), %(\r + 3)
  .endr
endfunction \name
.endm

// ---- Four rows: sum (i, j) is in v(16 + 4 i + j).
.macro vector_of_four product, at
  .irp i, 0,1,2,3
    \product %(16 + 4 * \i), %(4 * \at + \i), %(8 + \at)
    \product %(17 + 4 * \i), %(4 * \at + \i), %(10 + \at)
    \product %(18 + 4 * \i), %(4 * \at + \i), %(12 + \at)
    \product %(19 + 4 * \i), %(4 * \at + \i), %(14 + \at)
  .endr
.endm
.macro dots4 name, product, row
function \name
  begin_lines
1:
  load_pairs
  ldp q0, q1, [x1]
  ldp q2, q3, [x1, #32]
  ldp q4, q5, [x1, #64]
  ldp q6, q7, [x1, #96]
  add x1, x1, #128
  vector_of_four \product, 0
  vector_of_four \product, 1
  subs x0, x0, #1
  b.ne 1b
  .irp i, 0,1,2,3
    \row %(16 + 4 * \i), %(17 + 4 * \i), %(18 + 4 * \i), %(19 + 4 * \i)
  .endr
endfunction \name
.endm

// ---- Matrix instructions multiply two rows with two lines, after halves of neighbouring lines are swapped. Block (i,
// j) of 2 x 2 sums, for lower and upper halves, is in v(first + 4 i + 2 j) and the next.
.macro put_block_rows b0, b1
  zip1 v0.2d, v\b0\().2d, v\b1\().2d
  zip2 v1.2d, v\b0\().2d, v\b1\().2d
  stp q0, q1, [x3], #32
.endm
.macro zip_lines to0, to1, to2, to3, l0, l1, l2, l3
  zip1 v\to0\().2d, v\l0\().2d, v\l1\().2d
  zip2 v\to1\().2d, v\l0\().2d, v\l1\().2d
  zip1 v\to2\().2d, v\l2\().2d, v\l3\().2d
  zip2 v\to3\().2d, v\l2\().2d, v\l3\().2d
.endm
// Rows 2 i, 2 i + 1, in registers a and a + 1, with the four lines in z to z + 3.
.macro blocks product, first, a, z
  \product %(\first), \a, \z
  \product %(\first + 1), %(\a + 1), %(\z + 1)
  \product %(\first + 2), \a, %(\z + 2)
  \product %(\first + 3), %(\a + 1), %(\z + 3)
.endm

// Four rows; each vector of a step has its own sums.
.macro mma4 name, product, plus
function \name
  begin_lines
1:
  load_pairs
  .irp at, 0,1
    ldp q0, q1, [x1], #32
    ldp q2, q3, [x1], #32
    zip_lines 4, 5, 6, 7, %(8 + \at), %(10 + \at), %(12 + \at), %(14 + \at)
    blocks \product, %(16 + 8 * \at), 0, 4
    blocks \product, %(20 + 8 * \at), 2, 4
  .endr
  subs x0, x0, #1
  b.ne 1b
  .irp r, 16,17,18,19,20,21,22,23
    \plus \r, %(\r + 8)
  .endr
  .irp r, 16,18,20,22
    \plus \r, %(\r + 1)
  .endr
  put_block_rows 16, 18
  put_block_rows 20, 22
endfunction \name
.endm

.macro mma8 name, product, plus
function \name
  begin_lines
1:
  .rept 2
    ldr q8, [x10], #16
    ldr q9, [x11], #16
    ldr q10, [x12], #16
    ldr q11, [x13], #16
    zip_lines 12, 13, 14, 15, 8, 9, 10, 11
    ldp q0, q1, [x1]
    ldp q2, q3, [x1, #32]
    ldp q4, q5, [x1, #64]
    ldp q6, q7, [x1, #96]
    add x1, x1, #128
    .irp i, 0,1,2,3
      blocks \product, %(16 + 4 * \i), %(2 * \i), 12
    .endr
  .endr
  subs x0, x0, #1
  b.ne 1b
  .irp r, 16,18,20,22,24,26,28,30
    \plus \r, %(\r + 1)
  .endr
  .irp i, 0,1,2,3
    put_block_rows %(16 + 4 * \i), %(18 + 4 * \i)
  .endr
endfunction \name
.endm

dots1 deft_dots1_f32, fma_f32, row_f32, add_f32
dots2 deft_dots2_f32, fma_f32, row_f32, add_f32
dots3 deft_dots3_f32, fma_f32, row_f32, add_f32
dots4 deft_dots4_f32, fma_f32, row_f32
dots1 deft_dots1_f64, fma_f64, row_f64, add_f64
dots2 deft_dots2_f64, fma_f64, row_f64, add_f64
dots3 deft_dots3_f64, fma_f64, row_f64, add_f64
dots4 deft_dots4_f64, fma_f64, row_f64
dots1 deft_dots1_f16, fma_f16, row_f32, add_f32
dots2 deft_dots2_f16, fma_f16, row_f32, add_f32
dots3 deft_dots3_f16, fma_f16, row_f32, add_f32
dots4 deft_dots4_f16, fma_f16, row_f32
dots1 deft_dots1_bf16, fma_bf16, row_f32, add_f32
dots2 deft_dots2_bf16, fma_bf16, row_f32, add_f32
mma4 deft_mma_dots4_bf16, mma_bf16, add_f32
mma8 deft_mma_dots8_bf16, mma_bf16, add_f32
dots1 deft_dots1_s8, dot_s8, row_i32, add_i32
dots2 deft_dots2_s8, dot_s8, row_i32, add_i32
dots4 deft_dots4_s8, dot_s8, row_i32
mma4 deft_mma_dots4_s8, mma_s8, add_i32
mma8 deft_mma_dots8_s8, mma_s8, add_i32
dots1 deft_dots1_u8s8, dot_u8s8, row_i32, add_i32
dots2 deft_dots2_u8s8, dot_u8s8, row_i32, add_i32
mma4 deft_mma_dots4_u8s8, mma_u8s8, add_i32
mma8 deft_mma_dots8_u8s8, mma_u8s8, add_i32

.section .note.GNU-stack, "", %progbits
#endif
