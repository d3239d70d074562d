// f32 tiles of 8, 7 and 4 rows x 8 columns, four values of k per step (Note [Loads ahead]). A step of a is as many
// vectors as the tile has rows, from v0 on: row i of its value k is number rows * k + i. b's vectors alternate in the
// four registers after them. Row i, vector j of c is in v(32 - 2 * rows + 2 * i + j).
//
// Eight columns: 8 x 12 and 12 x 8 need fewer loads, but with k = 768 one panel of each operand fills L1. They reach 95
// and 97 % of the peak, this 98, and in whole GEMMs they are 2 to 4 % slower. 7 rows are for images of 7 x 7: 49 rows
// in tiles of 8 would be 56.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)

.macro fma acc, b, a, lane
  fmla v\acc\().4s, v\b\().4s, v\a\().s[\lane]
.endm
.macro load reg, from, offset
  ldr q\reg, [\from, #\offset]
.endm
// The next value's vector j of b comes first.
.macro column rows, value, j, more
  .if \more || (\value < 3)
    load %(\rows + (2 * \value + \j + 2) % 4), x2, %(32 * \value + 16 * \j + 32)
  .endif
  .irp i, 0,1,2,3,4,5,6,7
    .if \i < \rows
      fma %(32 - 2 * \rows + 2 * \i + \j), %(\rows + (2 * \value + \j) % 4), %((\rows * \value + \i) / 4), %((\rows * \value + \i) % 4)
    .endif
  .endr
.endm
// The next step's vectors of a whose last use was this value.
.macro load_ahead rows, value
  .irp i, 0,1,2,3,4,5,6,7
    .if (\i >= \rows * \value / 4) && (\i < \rows * (\value + 1) / 4)
      load \i, x1, %(16 * (\rows + \i))
    .endif
  .endr
.endm
.macro step rows, more
  .irp value, 0,1,2,3
    column \rows, \value, 0, \more
    column \rows, \value, 1, \more
    .if \more
      load_ahead \rows, \value
    .endif
  .endr
.endm

// For each row: its number and the registers of its sums.
.macro each_row rows, macro
  .irp i, 0,1,2,3,4,5,6,7
    .if \i < \rows
      \macro \i, %(32 - 2 * \rows + 2 * \i), %(33 - 2 * \rows + 2 * \i)
    .endif
  .endr
.endm
.macro begin_row i, r0, r1
  clear \r0
  clear \r1
  load \i, x1, %(16 * \i)
.endm
// Prefetches sums of earlier blocks of k: 49 x 512 x 2048 gains 2 %.
.macro fetch_row i, r0, r1
  prfm pstl1keep, [x6]
  add x6, x6, x4
.endm
.macro put_row i, r0, r1
  put_2 \r0, \r1
.endm
.macro add_row i, r0, r1
  add_2 fadd, 4s, \r0, \r1
.endm

.macro tile name, rows
function \name
  lsl x4, x4, #2
  each_row \rows, begin_row
  tbz w5, #0, 3f
  mov x6, x3
  each_row \rows, fetch_row
3:
  load \rows, x2, 0
  load %(\rows + 1), x2, 16
  subs x0, x0, #1
  b.eq 2f
1:
  step \rows, 1
  add x1, x1, #(16 * \rows)
  add x2, x2, #128
  subs x0, x0, #1
  b.ne 1b
2:
  step \rows, 0
  tbnz w5, #0, 8f
  each_row \rows, put_row
  b 9f
8:
  each_row \rows, add_row
9:
endfunction \name
.endm

tile deft_neon_f32_8x8, 8
tile deft_neon_f32_7x8, 7
tile deft_neon_f32_4x8, 4

.section .note.GNU-stack, "", %progbits
#endif
