// Tiles of c += a^T b, where k is the outermost dim of both: rows of both are read in place. rdi: a GemmTnTile
// (kernels/cpu/gemm/gemm_tn_tiles.h). Rows of a and b are prefetched eight steps ahead, and each step prefetches a
// cache line for later.
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

.macro multiply_row a, t, r0, r1
  vbroadcastss zmm\t, [rsi + \a]
  vfmadd231ps zmm\r0, zmm0, zmm\t
  vfmadd231ps zmm\r1, zmm1, zmm\t
.endm

.macro columns_tile name, rows
function \name
  mov rsi, [rdi]
  mov rdx, [rdi + 8]
  mov rcx, [rdi + 16]
  mov r8, [rdi + 24]
  mov r9, [rdi + 32]
  begin_rows zmm, 64, \rows
  mov r10, [rdi + 56]
  mov r11, [rdi + 64]
  mov rax, [rdi + 88]
  mov r9, [rdi + 96]
  mov r8, [rdi + 48]
3:
  mov rcx, [rdi + 40]
  .balign 32
4:
  vmovups zmm0, [rdx]
  vmovups zmm1, [rdx + 64]
  prefetcht0 [rsi + 8 * r10]
  prefetcht0 [rdx + 8 * r11]
  prefetcht0 [rdx + 8 * r11 + 64]
  prefetcht1 [rax]
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
    .if \i < \rows
      multiply_row %(4 * \i), %(27 + \i - \i / 5 * 5), %(3 + 2 * \i), %(4 + 2 * \i)
    .endif
  .endr
  add rsi, r10
  add rdx, r11
  add rax, r9
  dec rcx
  jnz 4b
  add rsi, [rdi + 72]
  add rdx, [rdi + 80]
  add rax, [rdi + 104]
  dec r8
  jnz 3b
  mov rcx, [rdi + 16]
  mov r8, [rdi + 24]
  store_rows zmm, 64, \rows
  vzeroupper
endfunction \name
.endm

columns_tile deft_avx512_f32_columns_12x32, 12
columns_tile deft_avx512_f32_columns_10x32, 10
columns_tile deft_avx512_f32_columns_8x32, 8

.section .note.GNU-stack, "", @progbits
#endif
