// GEMMs from bytes to bytes: the tiles of s8_mma.S and few_rows.S with eight columns, whose sums never reach memory.
//
// Arguments (requantize() in kernels/cpu/gemm/gemm_tile.h): x0 steps, x1 a, x2 b, x3 terms of the columns, x4 range,
// x5 c, x6 c_row in bytes, x7 count. Block (i, j) of 2 x 2 sums is in v(8 + 4 i + j).
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
#include "kernels/cpu/aarch64/s8_tiles.inc"
.arch armv8.2-a+i8mm


// Sums start from the correction of their column.
.macro start_pair r0, r1, r2, r3
  ldp q\r0, q\r1, [x3, #128]
  ldp q\r2, q\r3, [x3, #160]
.endm
.macro start pairs
  .irp i, 0,1,2,3,4,5
    .if \i < \pairs
      start_pair %(8 + 4 * \i), %(9 + 4 * \i), %(10 + 4 * \i), %(11 + 4 * \i)
    .endif
  .endr
.endm

// Scale and bias in one rounding, then 1.5 * 2^23 is added: the sum is rounded to an integer, ties to even, and its low
// byte is the result. v0: scale of the column; v1: 1.5 * 2^23; v2, v3: least and most; v4 to v7: for the bias.
.macro convert r
  scvtf v\r\().4s, v\r\().4s
.endm
.macro scale_block r, t, bias
  ldr q\t, [x3, #\bias]
  fmla v\t\().4s, v\r\().4s, v0.4s
.endm
.macro round_block r, t
  fadd v\r\().4s, v\t\().4s, v1.4s
.endm
.macro least r
  fmax v\r\().4s, v\r\().4s, v2.4s
.endm
.macro most r
  fmin v\r\().4s, v\r\().4s, v3.4s
.endm
// Low halves of two blocks.
.macro halves r, q
  uzp1 v\r\().8h, v\r\().8h, v\q\().8h
.endm
// Low bytes of four blocks, then their rows: the zero point is in v9.
.macro bytes r, q
  uzp1 v\r\().16b, v\r\().16b, v\q\().16b
  add v\r\().16b, v\r\().16b, v9.16b
.endm
.macro put_rows r, q
  uzp1 v\q\().8h, v\r\().8h, v\r\().8h
  uzp2 v\r\().8h, v\r\().8h, v\r\().8h
  str d\q, [x5]
  str d\r, [x5, x6]
  add x5, x5, x6, lsl #1
.endm

// The scheduler's queues are short: the steps of a block are issued a few blocks apart (264 cycles for 12 x 8 x 256
// instead of 280). Blocks are counted column by column: n is in v(8 + 4 (n % pairs) + n / pairs).
.macro do_convert n, pairs
  .if \n < 4 * \pairs
    convert %(8 + 4 * (\n % \pairs) + \n / \pairs)
  .endif
.endm
.macro do_scale n, pairs
  .if \n < 4 * \pairs
    .if \n % \pairs == 0
      ldr q0, [x3, #(16 * (\n / \pairs))]
    .endif
    scale_block %(8 + 4 * (\n % \pairs) + \n / \pairs), %(4 + \n % 4), %(64 + 16 * (\n / \pairs))
  .endif
.endm
.macro do_round n, pairs
  .if ((\n) >= 0) && ((\n) < 4 * \pairs)
    round_block %(8 + 4 * (\n % \pairs) + \n / \pairs), %(4 + \n % 4)
  .endif
.endm
.macro do_clamp op, n, pairs
  .if ((\n) >= 0) && ((\n) < 4 * \pairs)
    \op %(8 + 4 * (\n % \pairs) + \n / \pairs)
  .endif
.endm
.macro do_halves n, pairs
  .if ((\n) >= 0) && ((\n) < 4 * \pairs) && ((\n) / \pairs % 2 == 1)
    halves %(7 + 4 * (\n % \pairs) + \n / \pairs), %(8 + 4 * (\n % \pairs) + \n / \pairs)
  .endif
.endm
.macro do_bytes n, pairs
  .if ((\n) >= 3 * \pairs) && ((\n) < 4 * \pairs)
    bytes %(8 + 4 * (\n % \pairs)), %(10 + 4 * (\n % \pairs))
  .endif
.endm
.macro do_rows n, pairs
  .if ((\n) >= 3 * \pairs) && ((\n) < 4 * \pairs)
    put_rows %(8 + 4 * (\n % \pairs)), %(10 + 4 * (\n % \pairs))
  .endif
.endm
.macro finish_step n, pairs
  do_convert %(\n + 4), \pairs
  do_scale \n, \pairs
  do_round %(\n - 3), \pairs
  do_clamp least, %(\n - 5), \pairs
  do_clamp most, %(\n - 7), \pairs
  do_halves %(\n - 9), \pairs
  do_bytes %(\n - 10), \pairs
  do_rows %(\n - 12), \pairs
.endm
.macro finish pairs
  ldp q1, q2, [x4]
  ldr q3, [x4, #32]
  .irp n, 0,1,2,3
    do_convert \n, \pairs
  .endr
  .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35
    .if \n == 3 * \pairs + 9
      ldr q9, [x4, #48]
    .endif
    finish_step \n, \pairs
  .endr
.endm

// One panel of a times `count` panels of b: x8, x9, x10 keep steps, a and c.
.macro next_tile
  add x10, x10, #8
  mov x5, x10
  add x3, x3, #192
  mov x1, x9
  mov x0, x8
.endm
.macro tall_tiles name, product
function \name
  mov x8, x0
  mov x9, x1
  mov x10, x5
3:
  start 6
  six_loop \product, x2, x1
  add x2, x2, #128
  finish 6
  next_tile
  subs x7, x7, #1
  b.ne 3b
endfunction \name
.endm
.macro low_tiles name, product
function \name
  mov x8, x0
  mov x9, x1
  mov x10, x5
3:
  start 2
1:
  group_4x8 \product
  group_4x8 \product
  subs x0, x0, #1
  b.ne 1b
  finish 2
  next_tile
  subs x7, x7, #1
  b.ne 3b
endfunction \name
.endm

tall_tiles deft_i8mm_s8_12x8_bytes, signed_tall
tall_tiles deft_i8mm_u8s8_12x8_bytes, mixed_tall
low_tiles deft_i8mm_s8_4x8_bytes, signed
low_tiles deft_i8mm_u8s8_4x8_bytes, mixed

.section .note.GNU-stack, "", %progbits
#endif
