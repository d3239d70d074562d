// bf16 in, f32 sums (BFMMLA), 8 x 12 and 12 x 8, eight values of k per step.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
.arch armv8.2-a+bf16

.macro mma acc, a, b
  bfmmla v\acc\().4s, v\a\().8h, v\b\().8h
.endm
.macro wide i, j, b
  mma %(8 + 6 * \i + \j), \i, \b
.endm
.macro tall i, j, a
  mma %(8 + 4 * \j + \i), \a, \i
.endm

function deft_bf16_8x12
  lsl x4, x4, #2
  clear_accumulators
  six_loop wide, x1, x2
  store_blocks_8x12 fadd, 4s
endfunction deft_bf16_8x12

function deft_bf16_12x8
  lsl x4, x4, #2
  clear_accumulators
  six_loop tall, x2, x1
  store_blocks_12x8 fadd, 4s
endfunction deft_bf16_12x8

.section .note.GNU-stack, "", %progbits
#endif
