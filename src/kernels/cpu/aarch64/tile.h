// What the register tiles of this folder share. Assembly only.
//
// Arguments (kernels/cpu/gemm_tile.h): x0 steps, x1 a, x2 b, x3 c, x4 c_row in elements, bit 0 of w5 add (the
// bits above those of a bool are undefined).
// Accumulators are v8 to v31; the low halves of v8 to v15 belong to the caller.
#pragma once
#if defined(__aarch64__)

.altmacro

// Every function here begins with bti c and never stores the return address: BTI and PAC.
.pushsection .note.gnu.property, "a"
.balign 8
.long 4, 16, 5  // sizes of the name and of what follows it, NT_GNU_PROPERTY_TYPE_0
.asciz "GNU"
.long 0xc0000000, 4, 3, 0  // GNU_PROPERTY_AARCH64_FEATURE_1_AND: BTI, PAC
.popsection

.macro function name
  .text
  .balign 64
  .globl \name
  .hidden \name
  .type \name, %function
\name:
  .cfi_startproc
  hint #34  // bti c
  stp d8, d9, [sp, #-64]!
  .cfi_adjust_cfa_offset 64
  stp d10, d11, [sp, #16]
  stp d12, d13, [sp, #32]
  stp d14, d15, [sp, #48]
.endm

.macro endfunction name
  ldp d10, d11, [sp, #16]
  ldp d12, d13, [sp, #32]
  ldp d14, d15, [sp, #48]
  ldp d8, d9, [sp], #64
  .cfi_adjust_cfa_offset -64
  ret
  .cfi_endproc
  .size \name, . - \name
.endm

.macro clear r
  movi v\r\().2d, #0
.endm
.macro clear_accumulators
  .irp r, 8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    clear \r
  .endr
.endm

// ---- Rows of c: three vectors, or two.
.macro put_3 r0, r1, r2
  stp q\r0, q\r1, [x3]
  str q\r2, [x3, #32]
  add x3, x3, x4
.endm
.macro add_3 op, type, r0, r1, r2
  ldp q0, q1, [x3]
  ldr q2, [x3, #32]
  \op v\r0\().\type, v\r0\().\type, v0.\type
  \op v\r1\().\type, v\r1\().\type, v1.\type
  \op v\r2\().\type, v\r2\().\type, v2.\type
  put_3 \r0, \r1, \r2
.endm
.macro put_2 r0, r1
  stp q\r0, q\r1, [x3]
  add x3, x3, x4
.endm
.macro add_2 op, type, r0, r1
  ldp q0, q1, [x3]
  \op v\r0\().\type, v\r0\().\type, v0.\type
  \op v\r1\().\type, v\r1\().\type, v1.\type
  put_2 \r0, \r1
.endm

// Row i is in v(8 + 3 i) to v(10 + 3 i).
.macro store_8x12 op, type
  tbnz w5, #0, 8f
  .irp i, 0,1,2,3,4,5,6,7
    put_3 %(8 + 3 * \i), %(9 + 3 * \i), %(10 + 3 * \i)
  .endr
  b 9f
8:
  .irp i, 0,1,2,3,4,5,6,7
    add_3 \op, \type, %(8 + 3 * \i), %(9 + 3 * \i), %(10 + 3 * \i)
  .endr
9:
.endm
// ---- Matrix instructions leave 2 x 2 blocks: rows 2 i, 2 i + 1 and columns 2 j, 2 j + 1 in one register. Halves of
// neighbouring blocks change places: the first register gets four columns of the upper row, the second of the lower.
.macro swap_halves x, y
  zip1 v0.2d, v\x\().2d, v\y\().2d
  zip2 v\y\().2d, v\x\().2d, v\y\().2d
  mov v\x\().16b, v0.16b
.endm
.macro swap_all
  .irp r, 8,10,12,14,16,18,20,22,24,26,28,30
    swap_halves \r, %(\r + 1)
  .endr
.endm
// The same with the upper row in a register of its own, which saves the move.
.macro part_halves upper, x, y
  zip1 v\upper\().2d, v\x\().2d, v\y\().2d
  zip2 v\y\().2d, v\x\().2d, v\y\().2d
.endm
// Block (i, j) is in v(8 + 6 i + j).
.macro rows_of_blocks_8x12 i
  part_halves 5, %(8 + 6 * \i), %(9 + 6 * \i)
  part_halves 6, %(10 + 6 * \i), %(11 + 6 * \i)
  part_halves 7, %(12 + 6 * \i), %(13 + 6 * \i)
.endm
.macro store_blocks_8x12 op, type
  tbnz w5, #0, 8f
  .irp i, 0,1,2,3
    rows_of_blocks_8x12 \i
    put_3 5, 6, 7
    put_3 %(9 + 6 * \i), %(11 + 6 * \i), %(13 + 6 * \i)
  .endr
  b 9f
8:
  .irp i, 0,1,2,3
    rows_of_blocks_8x12 \i
    add_3 \op, \type, 5, 6, 7
    add_3 \op, \type, %(9 + 6 * \i), %(11 + 6 * \i), %(13 + 6 * \i)
  .endr
9:
.endm
// Block (i, j) is in v(8 + 4 i + j).
.macro rows_of_blocks_12x8 i
  part_halves 6, %(8 + 4 * \i), %(9 + 4 * \i)
  part_halves 7, %(10 + 4 * \i), %(11 + 4 * \i)
.endm
.macro store_blocks_12x8 op, type
  tbnz w5, #0, 8f
  .irp i, 0,1,2,3,4,5
    rows_of_blocks_12x8 \i
    put_2 6, 7
    put_2 %(9 + 4 * \i), %(11 + 4 * \i)
  .endr
  b 9f
8:
  .irp i, 0,1,2,3,4,5
    rows_of_blocks_12x8 \i
    add_2 \op, \type, 6, 7
    add_2 \op, \type, %(9 + 4 * \i), %(11 + 4 * \i)
  .endr
9:
.endm

// Note [Loads ahead]: loads of the next step are issued as soon as a register is free, not at the head of the step:
// BFMMLA 8 x 12 from the second cache level goes from 87 to 91 % of the peak. Prefetching a's panel as well costs 2 %
// and gains nothing. The last step must not read beyond the panels: it has `next` = 0.

// One step of a tile of 2 x 2 blocks with four vectors of one side (v0 to v3) and six of the other, which pass through
// v4 to v7 two by two. x is the register of the four, y of the six; `at` and `from` are where their step begins.
// Before: the first two of the six are in now0, now1. After: the next step's are in then0, then1.
.macro six_step product, x, at, y, from, now0, now1, then0, then1, next
  ldp q\then0, q\then1, [\y, #(\from + 32)]
  .irp i, 0,1,2,3
    \product \i, 0, \now0
    \product \i, 1, \now1
  .endr
  ldp q\now0, q\now1, [\y, #(\from + 64)]
  .irp i, 0,1,2,3
    \product \i, 2, \then0
    \product \i, 3, \then1
  .endr
  .if \next
    ldp q\then0, q\then1, [\y, #(\from + 96)]
  .endif
  \product 0, 4, \now0
  \product 0, 5, \now1
  \product 1, 4, \now0
  \product 1, 5, \now1
  .if \next
    ldp q0, q1, [\x, #(\at + 64)]
  .endif
  \product 2, 4, \now0
  \product 2, 5, \now1
  \product 3, 4, \now0
  \product 3, 5, \now1
  .if \next
    ldp q2, q3, [\x, #(\at + 96)]
  .endif
.endm

// All steps, two at a time.
.macro six_loop product, x, y
  ldp q0, q1, [\x]
  ldp q2, q3, [\x, #32]
  ldp q4, q5, [\y]
  subs x0, x0, #1
  b.eq 2f
1:
  six_step \product, \x, 0, \y, 0, 4, 5, 6, 7, 1
  six_step \product, \x, 64, \y, 96, 6, 7, 4, 5, 1
  add \x, \x, #128
  add \y, \y, #192
  subs x0, x0, #1
  b.ne 1b
2:
  six_step \product, \x, 0, \y, 0, 4, 5, 6, 7, 1
  six_step \product, \x, 64, \y, 96, 6, 7, 4, 5, 0
.endm

#endif
