// What AMX tiles share that take a LinesTile (kernels/cpu/line_blocks.h). Assembly only. strips: of 16 rows; wide: more
// than 16 columns.
#pragma once
#include "kernels/cpu/x86/tile.h"
#if defined(__x86_64__)

.macro each_sum op, strips, wide
  \op 0, rcx, 0
  .if \wide
    \op 1, rcx, 64
  .endif
  .if \strips == 2
    \op 2, r11, 0
    .if \wide
      \op 3, r11, 64
    .endif
  .endif
.endm
.macro clear_sum tile, from, at
  tilezero tmm\tile
.endm
.macro load_sum tile, from, at
  tileloadd tmm\tile, [\from + r8 + \at]
.endm
.macro store_sum tile, from, at
  tilestored [\from + r8 + \at], tmm\tile
.endm

.macro save register
  push \register
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset \register, 0
.endm
.macro restore register
  pop \register
  .cfi_adjust_cfa_offset -8
  .cfi_restore \register
.endm

// From a LinesTile at rdi: rcx and r11 the first and the 17th row of c, r8 its rows' distance, rsi and r9 the same rows of
// a, rax their distance, rdx b, r10 the distance of its rows, r12 the pieces. Tiles 0 to 3 are zeros or the sums so far.
.macro begin_lines strips, wide
  mov rcx, [rdi + 16]
  mov r8, [rdi + 24]
  mov r11, r8
  shl r11, 4
  add r11, rcx
  cmp qword ptr [rdi + 32], 0
  jne 1f
  each_sum clear_sum, \strips, \wide
  jmp 2f
1:
  each_sum load_sum, \strips, \wide
2:
  mov rsi, [rdi]
  mov rdx, [rdi + 8]
  mov rax, [rdi + 40]
  mov r9, rax
  shl r9, 4
  add r9, rsi
  mov r10d, 128
  mov r12, [rdi + 48]
.endm

#endif
