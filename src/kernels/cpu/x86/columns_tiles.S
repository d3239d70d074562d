// Tiles of a product of two matrices that lie with k outermost: c += a turned times b, rows of both read where they are.
// Arguments as tile.h says, but rdi is k; on the stack the bytes from row to row of a and of b. Both are asked for eight
// rows ahead.
#include "kernels/cpu/x86/tile.h"
#if defined(__x86_64__)

.macro multiply_row a, r0, r1
  vfmadd231ps zmm\r0, zmm0, dword bcst [rsi + \a]
  vfmadd231ps zmm\r1, zmm1, dword bcst [rsi + \a]
.endm

.macro columns_tile name, rows
function \name
  mov r10, [rsp + 8]
  mov r11, [rsp + 16]
  shl r8, 2
  begin_rows zmm, 64, \rows
  .balign 32
3:
  vmovups zmm0, [rdx]
  vmovups zmm1, [rdx + 64]
  prefetcht0 [rsi + 8 * r10]
  prefetcht0 [rdx + 8 * r11]
  prefetcht0 [rdx + 8 * r11 + 64]
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
    .if \i < \rows
      multiply_row %(4 * \i), %(3 + 2 * \i), %(4 + 2 * \i)
    .endif
  .endr
  add rsi, r10
  add rdx, r11
  dec rdi
  jnz 3b
  store_rows zmm, 64, \rows
  vzeroupper
endfunction \name
.endm

columns_tile deft_avx512_f32_columns_12x32, 12
columns_tile deft_avx512_f32_columns_8x32, 8

.section .note.GNU-stack, "", @progbits
#endif
