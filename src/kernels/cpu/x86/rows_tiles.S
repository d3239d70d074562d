// Tiles of f32 that read the rows of a in place instead of from a panel: broadcasts take a value from anywhere, and
// nothing is packed. Rows are addressed from every third one: rsi, r11, r9, rax. Further arguments, on the stack: a_row
// in bytes; `ahead`, the distance of the rows to prefetch (0: none); b_ahead, the b to prefetch, two cache lines each
// four steps.
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

.macro row where, k, r0, r1
  vbroadcastss zmm2, [\where + 4 * \k]
  vfmadd231ps zmm\r0, zmm2, zmm0
  vfmadd231ps zmm\r1, zmm2, zmm1
.endm
.macro three base, first, rows, k
  .if \first < \rows
    row \base, \k, %(3 + 2 * \first), %(4 + 2 * \first)
  .endif
  .if \first + 1 < \rows
    row <\base + r10>, \k, %(5 + 2 * \first), %(6 + 2 * \first)
  .endif
  .if \first + 2 < \rows
    row <\base + 2 * r10>, \k, %(7 + 2 * \first), %(8 + 2 * \first)
  .endif
.endm
.macro step rows, k
  vmovups zmm0, [rdx + 128 * \k]
  vmovups zmm1, [rdx + 128 * \k + 64]
  three rsi, 0, \rows, \k
  three r11, 3, \rows, \k
  three r9, 6, \rows, \k
  three rax, 9, \rows, \k
.endm
.macro advance steps
  add rsi, 4 * \steps
  add r11, 4 * \steps
  add r9, 4 * \steps
  add rax, 4 * \steps
  add rdx, 128 * \steps
.endm
// The cache line of each row that lies rbp bytes further on.
.macro ahead base, first, rows
  .if \first < \rows
    prefetcht1 [rbp + \base]
  .endif
  .if \first + 1 < \rows
    lea rbx, [rbp + r10]
    prefetcht1 [rbx + \base]
  .endif
  .if \first + 2 < \rows
    lea rbx, [rbp + 2 * r10]
    prefetcht1 [rbx + \base]
  .endif
.endm

.macro rows_tile name, rows
function \name
  push rbx
  .cfi_adjust_cfa_offset 8
  push rbp
  .cfi_adjust_cfa_offset 8
  push r12
  .cfi_adjust_cfa_offset 8
  mov r10, [rsp + 32]
  mov rbp, [rsp + 40]
  mov r12, [rsp + 48]
  shl r8, 2
  begin_rows zmm, 64, \rows
  lea rax, [r10 + 2 * r10]
  lea r11, [rsi + rax]
  lea r9, [r11 + rax]
  add rax, r9
  sub rdi, 16
  jl 8f
  .balign 32
7:
  test rbp, rbp
  jz 9f
  ahead rsi, 0, \rows
  ahead r11, 3, \rows
  ahead r9, 6, \rows
  ahead rax, 9, \rows
9:
  mov ebx, 4
3:
  .irp k, 0,1,2,3
    step \rows, \k
  .endr
  prefetcht1 [r12]
  prefetcht1 [r12 + 64]
  add r12, 128
  advance 4
  dec ebx
  jnz 3b
  sub rdi, 16
  jge 7b
8:
  add rdi, 16
  jz 6f
5:
  step \rows, 0
  advance 1
  dec rdi
  jnz 5b
6:
  store_rows zmm, 64, \rows
  vzeroupper
  pop r12
  .cfi_adjust_cfa_offset -8
  pop rbp
  .cfi_adjust_cfa_offset -8
  pop rbx
  .cfi_adjust_cfa_offset -8
endfunction \name
.endm

rows_tile deft_avx512_f32_rows_12x32, 12
rows_tile deft_avx512_f32_rows_10x32, 10
rows_tile deft_avx512_f32_rows_8x32, 8
rows_tile deft_avx512_f32_rows_4x32, 4

.section .note.GNU-stack, "", @progbits
#endif
