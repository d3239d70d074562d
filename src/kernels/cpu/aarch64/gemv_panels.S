// One row times a panel of 16 columns (kernels/cpu/gemm/gemv_panels.h): x0 k, x1 row, x2 panel, x3 sixteen sums. Column
// vector i of products p, p + 4, ... is summed in v(16 + 4 (p % 4) + i). Prefetching 1 or 2 KB ahead gains nothing for
// panels in L2.
#include "kernels/cpu/aarch64/tile.inc"
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

// The last x0 values of the row, 1 to 3, and zeros.
.macro load_rest
  ldr s0, [x1], #4
  cmp x0, #2
  b.lo 4f
  ld1 {v0.s}[1], [x1], #4
  b.eq 4f
  ld1 {v0.s}[2], [x1]
4:
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
  load_rest
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

// Four panels, whose addresses are in x2, to 64 sums: one sum for each column, vector i of panel s in v(16 + 4 s + i).
// Where panels of 1 MB and more come from L3, four streams make the hardware prefetch far enough: an LSTM cell of 256
// units takes 36.7 us instead of 39.7, a network of 784, 1024, 1024 and 10 units 132 us instead of 200. From L2 both
// read at 65 to 69 GB/s, of 71 that loads alone can.
.macro panel_position panel, first, at
  ldp q4, q5, [\panel, #(64 * \at)]
  ldp q6, q7, [\panel, #(64 * \at + 32)]
  fma %(\first), 4, \at
  fma %(\first + 1), 5, \at
  fma %(\first + 2), 6, \at
  fma %(\first + 3), 7, \at
.endm
.macro four_panels
  .irp at, 0,1,2,3
    panel_position x10, 16, \at
    panel_position x11, 20, \at
    panel_position x12, 24, \at
    panel_position x13, 28, \at
  .endr
  .irp panel, x10,x11,x12,x13
    add \panel, \panel, #256
  .endr
.endm

.macro put_pair r0, r1
  stp q\r0, q\r1, [x3], #32
.endm

function deft_row_panels4_f32
  .irp r, 16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    clear \r
  .endr
  ldp x10, x11, [x2]
  ldp x12, x13, [x2, #16]
  lsr x4, x0, #2
  cbz x4, 2f
1:
  ldr q0, [x1], #16
  four_panels
  subs x4, x4, #1
  b.ne 1b
2:
  ands x0, x0, #3
  b.eq 3f
  load_rest
  four_panels
3:
  .irp r, 16,18,20,22,24,26,28,30
    put_pair \r, %(\r + 1)
  .endr
endfunction deft_row_panels4_f32

.section .note.GNU-stack, "", %progbits
#endif
