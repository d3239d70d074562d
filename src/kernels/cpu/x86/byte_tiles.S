// Bytes with AVX2 alone, 6 x 8, eight values of k per step. VPMADDUBSW saturates, so both operands are widened to 16
// bits (VPMADDWD adds two exact products in 32 bits): b in registers, a through 96 bytes of the red zone, from where
// broadcasts cost no shuffle. Row i has two sums for each column, those of columns 0 to 3 in ymm(3 + 2 i), of columns 4
// to 7 in ymm(4 + 2 i).
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

.macro multiply acc, a, b
  vpmaddwd ymm15, ymm\a, ymm\b
  vpaddd ymm\acc, ymm\acc, ymm15
.endm
.macro row a, r0, r1
  vpbroadcastq ymm2, [r10 + \a]
  multiply \r0, 2, 0
  multiply \r1, 2, 1
.endm
// Four values of k of all rows and columns.
.macro step k
  vpmovsxbw ymm0, [rdx + 32 * \k]
  vpmovsxbw ymm1, [rdx + 32 * \k + 16]
  .irp i, 0,1,2,3,4,5
    row %(8 * (6 * \k + \i)), %(3 + 2 * \i), %(4 + 2 * \i)
  .endr
.endm

.macro fold r0, r1
  vphaddd ymm\r0, ymm\r0, ymm\r1  // columns 0 1 4 5 2 3 6 7
  vpermq ymm\r0, ymm\r0, 0b11011000
.endm
.macro add_c r
  vpaddd ymm\r, ymm\r, [rax]
  add rax, r8
.endm
.macro put_c r
  vmovdqu [rcx], ymm\r
  add rcx, r8
.endm

.macro byte_tile name, widen
function \name
  lea r10, [rsp - 96]
  and r10, -32
  shl r8, 2
  clear_rows ymm, 6
  .balign 32
1:
  .irp part, 0,1,2
    \widen ymm0, [rsi + 16 * \part]
    vmovdqa [r10 + 32 * \part], ymm0
  .endr
  prefetcht0 [rsi + 512]
  step 0
  step 1
  add rsi, 48
  add rdx, 64
  dec rdi
  jnz 1b
  .irp i, 0,1,2,3,4,5
    fold %(3 + 2 * \i), %(4 + 2 * \i)
  .endr
  test r9b, r9b
  jz 2f
  mov rax, rcx
  .irp r, 3,5,7,9,11,13
    add_c \r
  .endr
2:
  .irp r, 3,5,7,9,11,13
    put_c \r
  .endr
  vzeroupper
endfunction \name
.endm

byte_tile deft_avx2_s8_6x8, vpmovsxbw
byte_tile deft_avx2_u8s8_6x8, vpmovzxbw

.section .note.GNU-stack, "", @progbits
#endif
