// One row times a panel of 16 columns (kernels/cpu/row_panels.h): x0 k, x1 row, x2 panel, x3 sixteen sums. Column
// vector i of products p, p + 4, ... is summed in v(16 + 4 (p % 4) + i). Prefetching 1 or 2 KB ahead gains nothing
// for panels in the second cache level.
#include "kernels/cpu/aarch64/tile.h"
#if defined(__aarch64__)

.macro fma i, b, lane
  fmla v\i\().4s, v\b\().4s, v0.s[\lane]
.endm
// Position p of k and its place in the panel.
.macro position p
  ldp q4, q5, [x2, #(64 * \p)]
  ldp q6, q7, [x2, #(64 * \p + 32)]
  fma %(16 + 4 * \p), 4, \p
  fma %(17 + 4 * \p), 5, \p
  fma %(18 + 4 * \p), 6, \p
  fma %(19 + 4 * \p), 7, \p
.endm
.macro four_positions
  position 0
  position 1
  position 2
  position 3
  add x2, x2, #256
.endm
.macro sum to, from
  fadd v\to\().4s, v\to\().4s, v\from\().4s
.endm

function deft_row_panel_f32
  .irp r, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    clear \r
  .endr
  lsr x4, x0, #2
  cbz x4, 2f
1:
  ldr q0, [x1], #16
  four_positions
  subs x4, x4, #1
  b.ne 1b
2:
  ands x0, x0, #3
  b.eq 3f
  ldr s0, [x1], #4  // clears the other lanes
  cmp x0, #2
  b.lo 4f
  ld1 {v0.s}[1], [x1], #4
  b.eq 4f
  ld1 {v0.s}[2], [x1]
4:
  four_positions
3:
  .irp i, 0,1,2,3
    sum %(16 + \i), %(20 + \i)
    sum %(24 + \i), %(28 + \i)
    sum %(16 + \i), %(24 + \i)
  .endr
  stp q16, q17, [x3]
  stp q18, q19, [x3, #32]
endfunction deft_row_panel_f32

.section .note.GNU-stack, "", %progbits
#endif
