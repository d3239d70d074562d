// GEMV streams: tiles of four rows times 24 columns, from two panels of twelve or three of eight that lie apart, as a
// core reads several streams faster than one (28 GB/s from one, 38 from two, 39 from three). x2 points to the panels,
// x3 to the sums of each, in rows x4 apart. Sums are those of the tiles in few_rows.S.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
.arch armv8.2-a+fp16+fp16fml+bf16+i8mm

// ---- The panels are in x2, x6 and x8, their sums in x3, x7 and x9.
.macro begin_panels
  ldp x7, x9, [x3, #8]
  ldr x3, [x3]
  ldp x6, x8, [x2, #8]
  ldr x2, [x2]
  lsl x4, x4, #2
  clear_accumulators
.endm
// Four rows for each panel: row i of the first is in ri and further vectors `by` registers apart, followed likewise by
// those of the others.
.macro put_rows_12 by, r0, r1, r2, r3
  .irp r, \r0,\r1,\r2,\r3
    put_3 %(\r), %(\r + \by), %(\r + 2 * \by)
  .endr
.endm
.macro add_rows_12 plus, by, r0, r1, r2, r3
  .irp r, \r0,\r1,\r2,\r3
    add_3 \plus, 4s, %(\r), %(\r + \by), %(\r + 2 * \by)
  .endr
.endm
.macro store_12 plus, by, r0, r1, r2, r3
  tbnz w5, #0, 8f
  put_rows_12 \by, \r0, \r1, \r2, \r3
  mov x3, x7
  put_rows_12 \by, %(\r0 + 3 * \by), %(\r1 + 3 * \by), %(\r2 + 3 * \by), %(\r3 + 3 * \by)
  b 9f
8:
  add_rows_12 \plus, \by, \r0, \r1, \r2, \r3
  mov x3, x7
  add_rows_12 \plus, \by, %(\r0 + 3 * \by), %(\r1 + 3 * \by), %(\r2 + 3 * \by), %(\r3 + 3 * \by)
9:
.endm
.macro put_rows_8 by, r0, r1, r2, r3
  .irp r, \r0,\r1,\r2,\r3
    put_2 %(\r), %(\r + \by)
  .endr
.endm
.macro add_rows_8 plus, by, r0, r1, r2, r3
  .irp r, \r0,\r1,\r2,\r3
    add_2 \plus, 4s, %(\r), %(\r + \by)
  .endr
.endm
.macro store_8 plus, by, r0, r1, r2, r3
  tbnz w5, #0, 8f
  put_rows_8 \by, \r0, \r1, \r2, \r3
  mov x3, x7
  put_rows_8 \by, %(\r0 + 2 * \by), %(\r1 + 2 * \by), %(\r2 + 2 * \by), %(\r3 + 2 * \by)
  mov x3, x9
  put_rows_8 \by, %(\r0 + 4 * \by), %(\r1 + 4 * \by), %(\r2 + 4 * \by), %(\r3 + 4 * \by)
  b 9f
8:
  add_rows_8 \plus, \by, \r0, \r1, \r2, \r3
  mov x3, x7
  add_rows_8 \plus, \by, %(\r0 + 2 * \by), %(\r1 + 2 * \by), %(\r2 + 2 * \by), %(\r3 + 2 * \by)
  mov x3, x9
  add_rows_8 \plus, \by, %(\r0 + 4 * \by), %(\r1 + 4 * \by), %(\r2 + 4 * \by), %(\r3 + 4 * \by)
9:
.endm

// ---- Multiply-adds by SIMD lane: row i, vector j of all panels is in v(8 + 6 * i + j).
.macro fma acc, b, a, lane
  fmla v\acc\().4s, v\b\().4s, v\a\().s[\lane]
.endm
.macro fma_low acc, b, a, lane
  fmlal v\acc\().4s, v\b\().4h, v\a\().h[\lane]
.endm
.macro fma_high acc, b, a, lane
  fmlal2 v\acc\().4s, v\b\().4h, v\a\().h[\lane]
.endm

.macro f32_products a
  .irp i, 0,1,2,3
    .irp j, 0,1,2,3,4,5
      fma %(8 + 6 * \i + \j), %(2 + \j), \a, \i
    .endr
  .endr
.endm
.macro f32_value_8 a
  ldp q2, q3, [x2], #32
  ldp q4, q5, [x6], #32
  ldp q6, q7, [x8], #32
  f32_products \a
.endm
.macro f32_step value
  .rept 2
    ldp q0, q1, [x1], #32
    \value 0
    \value 1
  .endr
.endm
.macro f32_step_8
  f32_step f32_value_8
.endm

// The twelve columns of one value of k of a panel: v(first), both halves, and v(first + 1); a's four rows from SIMD
// lane `at`.
.macro f16_columns first, vector, at
  .irp i, 0,1,2,3
    fma_low %(8 + 6 * \i + \vector), \first, 0, %(\at + \i)
    fma_high %(9 + 6 * \i + \vector), \first, 0, %(\at + \i)
    fma_low %(10 + 6 * \i + \vector), %(\first + 1), 0, %(\at + \i)
  .endr
.endm
.macro f16_value at
  ldr q2, [x2]
  ldr d3, [x2, #16]
  add x2, x2, #24
  ldr q4, [x6]
  ldr d5, [x6, #16]
  add x6, x6, #24
  f16_columns 2, 0, \at
  f16_columns 4, 3, \at
.endm
.macro f16_step_12
  ldr q0, [x1], #16
  f16_value 0
  f16_value 4
.endm

.macro store_rows_12 plus
  store_12 \plus, 1, 8, 14, 20, 26
.endm
.macro store_rows_8 plus
  store_8 \plus, 1, 8, 14, 20, 26
.endm

// ---- Matrix instructions: block (i, j) of 2 x 2 is in v(8 + 12 * i + j), a in v0, v1, b in v2 to v7.
.macro mma_bf16 acc, a, b
  bfmmla v\acc\().4s, v\a\().8h, v\b\().8h
.endm
.macro mma_s8 acc, a, b
  smmla v\acc\().4s, v\a\().16b, v\b\().16b
.endm
.macro mma_u8s8 acc, a, b
  usmmla v\acc\().4s, v\a\().16b, v\b\().16b
.endm
.macro panel_12 product, from, first
  ldp q2, q3, [\from]
  ldp q4, q5, [\from, #32]
  ldp q6, q7, [\from, #64]
  add \from, \from, #96
  .irp j, 0,1,2,3,4,5
    \product %(\first + \j), 0, %(2 + \j)
    \product %(\first + 12 + \j), 1, %(2 + \j)
  .endr
.endm
.macro panel_8 product, from, first
  ldp q2, q3, [\from]
  ldp q4, q5, [\from, #32]
  add \from, \from, #64
  .irp j, 0,1,2,3
    \product %(\first + \j), 0, %(2 + \j)
    \product %(\first + 12 + \j), 1, %(2 + \j)
  .endr
.endm
.macro mma_step_12 product
  .rept 2
    ldp q0, q1, [x1], #32
    panel_12 \product, x2, 8
    panel_12 \product, x6, 14
  .endr
.endm
.macro mma_step_8 product
  .rept 2
    ldp q0, q1, [x1], #32
    panel_8 \product, x2, 8
    panel_8 \product, x6, 12
    panel_8 \product, x8, 16
  .endr
.endm
.macro store_blocks_12 plus
  swap_all
  store_12 \plus, 2, 8, 9, 20, 21
.endm
.macro store_blocks_8 plus
  swap_all
  store_8 \plus, 2, 8, 9, 20, 21
.endm

.macro far_panels name, store, plus, step, product
function \name
  begin_panels
1:
  \step \product
  subs x0, x0, #1
  b.ne 1b
  \store \plus
endfunction \name
.endm

far_panels deft_far_panels_f32_8, store_rows_8, fadd, f32_step_8
far_panels deft_far_panels_f16_12, store_rows_12, fadd, f16_step_12
far_panels deft_far_panels_bf16_12, store_blocks_12, fadd, mma_step_12, mma_bf16
far_panels deft_far_panels_bf16_8, store_blocks_8, fadd, mma_step_8, mma_bf16
far_panels deft_far_panels_s8_12, store_blocks_12, add, mma_step_12, mma_s8
far_panels deft_far_panels_s8_8, store_blocks_8, add, mma_step_8, mma_s8
far_panels deft_far_panels_u8s8_12, store_blocks_12, add, mma_step_12, mma_u8s8
far_panels deft_far_panels_u8s8_8, store_blocks_8, add, mma_step_8, mma_u8s8

.section .note.GNU-stack, "", %progbits
#endif
