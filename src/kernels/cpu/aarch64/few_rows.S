// Tiles of four rows, for GEMMs of few rows: memory is the limit, and the large tiles would multiply zeros.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
#include "kernels/cpu/aarch64/s8_tiles.inc"
.arch armv8.2-a+bf16+i8mm

.macro clear_twelve
  .irp r, 8,9,10,11,12,13,14,15,16,17,18,19
    clear \r
  .endr
.endm

// ---- Matrix instructions: block (i, j) of 2 x 2 is in v(8 + 6 i + j) or v(8 + 4 i + j), a in v0, v1, b in v2 to v7.
.macro bf16 acc, a, b
  bfmmla v\acc\().4s, v\a\().8h, v\b\().8h
.endm
.macro group_4x12 product
  ldp q0, q1, [x1], #32
  ldp q2, q3, [x2]
  ldp q4, q5, [x2, #32]
  ldp q6, q7, [x2, #64]
  add x2, x2, #96
  .irp j, 0,1,2,3,4,5
    \product %(8 + \j), 0, %(2 + \j)
    \product %(14 + \j), 1, %(2 + \j)
  .endr
.endm
.macro block_loop group, product
  lsl x4, x4, #2
  clear_twelve
1:
  \group \product
  \group \product
  subs x0, x0, #1
  b.ne 1b
  .irp r, 8,10,12,14,16,18
    swap_halves \r, %(\r + 1)
  .endr
.endm
.macro store_blocks_4x12 op
  tbnz w5, #0, 8f
  .irp i, 0,1
    put_3 %(8 + 6 * \i), %(10 + 6 * \i), %(12 + 6 * \i)
    put_3 %(9 + 6 * \i), %(11 + 6 * \i), %(13 + 6 * \i)
  .endr
  b 9f
8:
  .irp i, 0,1
    add_3 \op, 4s, %(8 + 6 * \i), %(10 + 6 * \i), %(12 + 6 * \i)
    add_3 \op, 4s, %(9 + 6 * \i), %(11 + 6 * \i), %(13 + 6 * \i)
  .endr
9:
.endm
.macro store_blocks_4x8 op
  tbnz w5, #0, 8f
  .irp i, 0,1
    put_2 %(8 + 4 * \i), %(10 + 4 * \i)
    put_2 %(9 + 4 * \i), %(11 + 4 * \i)
  .endr
  b 9f
8:
  .irp i, 0,1
    add_2 \op, 4s, %(8 + 4 * \i), %(10 + 4 * \i)
    add_2 \op, 4s, %(9 + 4 * \i), %(11 + 4 * \i)
  .endr
9:
.endm

function deft_bf16_4x12
  block_loop group_4x12, bf16
  store_blocks_4x12 fadd
endfunction deft_bf16_4x12

function deft_i8mm_s8_4x8
  block_loop group_4x8, signed
  store_blocks_4x8 add
endfunction deft_i8mm_s8_4x8

function deft_i8mm_u8s8_4x8
  block_loop group_4x8, mixed
  store_blocks_4x8 add
endfunction deft_i8mm_u8s8_4x8

.section .note.GNU-stack, "", %progbits
#endif
