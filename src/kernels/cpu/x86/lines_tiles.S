// Tiles of convolutions: tile rows are positions of a padded row, a_row bytes apart, and values of k lie in pieces.
// rdi: a ConvTile (kernels/cpu/conv/line_tiles.h). Rows are addressed from every third one: rsi, r11, r9, rax.
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

.macro row where, t, r0, r1
  vbroadcastss zmm\t, [\where]
  vfmadd231ps zmm\r0, zmm\t, zmm0
  vfmadd231ps zmm\r1, zmm\t, zmm1
.endm
.macro three base, first, rows
  .if \first < \rows
    row \base, 2, %(3 + 2 * \first), %(4 + 2 * \first)
  .endif
  .if \first + 1 < \rows
    row <\base + r10>, 27, %(5 + 2 * \first), %(6 + 2 * \first)
  .endif
  .if \first + 2 < \rows
    row <\base + 2 * r10>, 28, %(7 + 2 * \first), %(8 + 2 * \first)
  .endif
.endm
.macro advance by
  add rsi, \by
  add r11, \by
  add r9, \by
  add rax, \by
.endm

.macro lines_tile name, rows
function \name
  push rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset rbx, 0
  mov rcx, [rdi + 16]
  mov r8, [rdi + 24]
  mov r9, [rdi + 32]
  begin_rows zmm, 64, \rows
  mov rsi, [rdi]
  mov rdx, [rdi + 8]
  mov r10, [rdi + 40]
  mov r8, [rdi + 48]
  mov rcx, [rdi + 56]
  lea rax, [r10 + 2 * r10]
  lea r11, [rsi + rax]
  lea r9, [r11 + rax]
  add rax, r9
3:
  mov rbx, [r8]
  .balign 32
4:
  vmovups zmm0, [rdx]
  vmovups zmm1, [rdx + 64]
  three rsi, 0, \rows
  three r11, 3, \rows
  three r9, 6, \rows
  three rax, 9, \rows
  advance 4
  add rdx, 128
  dec rbx
  jnz 4b
  mov rbx, [r8 + 8]
  advance rbx
  add r8, 16
  dec rcx
  jnz 3b
  mov rcx, [rdi + 16]
  mov r8, [rdi + 24]
  store_rows zmm, 64, \rows
  vzeroupper
  pop rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore rbx
endfunction \name
.endm

lines_tile deft_avx512_f32_lines_12x32, 12
lines_tile deft_avx512_f32_lines_10x32, 10
lines_tile deft_avx512_f32_lines_8x32, 8

.section .note.GNU-stack, "", @progbits
#endif
