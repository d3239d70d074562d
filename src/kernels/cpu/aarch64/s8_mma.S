// Signed bytes, int32 sums (SMMLA), and unsigned by signed bytes (USMMLA), 8 x 12 and 12 x 8, sixteen values of k per
// step.
#include "kernels/cpu/aarch64/tile.inc"
#if defined(__aarch64__)
#include "kernels/cpu/aarch64/s8_tiles.inc"
.arch armv8.2-a+i8mm

.macro signed_wide i, j, b
  signed %(8 + 6 * \i + \j), \i, \b
.endm
.macro mixed_wide i, j, b
  mixed %(8 + 6 * \i + \j), \i, \b
.endm

.macro wide_tile name, product
function \name
  lsl x4, x4, #2
  clear_accumulators
  six_loop \product, x1, x2
  store_blocks_8x12 add, 4s
endfunction \name
.endm
.macro tall_tile name, product
function \name
  lsl x4, x4, #2
  clear_accumulators
  six_loop \product, x2, x1
  store_blocks_12x8 add, 4s
endfunction \name
.endm

wide_tile deft_i8mm_s8_8x12, signed_wide
tall_tile deft_i8mm_s8_12x8, signed_tall
wide_tile deft_i8mm_u8s8_8x12, mixed_wide
tall_tile deft_i8mm_u8s8_12x8, mixed_tall

.section .note.GNU-stack, "", %progbits
#endif
