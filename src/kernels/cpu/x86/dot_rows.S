// Dot products of rows of bytes with four lines (columns of b) in place: few rows times a large matrix, which is read
// once. Arguments: rdi steps of 64 bytes, rsi rows in the form of Note [Packed rows] in dot_rows.h, rdx four pointers
// to lines, rcx out, four values for each row. The sum of row i and line j is in zmm(4 i + j); lines are in zmm20 to
// zmm23.
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

.macro add_line acc, line
  vpdpbusd zmm\acc, zmm24, zmm\line
.endm
// VNNI takes unsigned rows. Signed ones are shifted by 128, and the sums of lines, in zmm16 to zmm19, correct for that.
.macro load_row signed, at
  .if \signed
    vpxord zmm24, zmm25, [rsi + \at]
  .else
    vmovdqu64 zmm24, [rsi + \at]
  .endif
.endm
.macro dots_of_row signed, i
  load_row \signed, %(64 * \i)
  .irp j, 0,1,2,3
    add_line %(4 * \i + \j), %(20 + \j)
  .endr
.endm
.macro unshift acc, line_sum
  vpsubd zmm\acc, zmm\acc, zmm\line_sum
.endm
.macro halve r
  vextracti64x4 ymm24, zmm\r, 1
  vpaddd ymm\r, ymm\r, ymm24
.endm
.macro store_row r0, r1, r2, r3, at
  halve \r0
  halve \r1
  halve \r2
  halve \r3
  vphaddd ymm\r0, ymm\r0, ymm\r1
  vphaddd ymm\r2, ymm\r2, ymm\r3
  vphaddd ymm\r0, ymm\r0, ymm\r2
  vextracti128 xmm\r1, ymm\r0, 1
  vpaddd xmm\r0, xmm\r0, xmm\r1
  vmovdqu [rcx + \at], xmm\r0
.endm

.macro dots name, signed, rows
function \name
  mov r8, [rdx]
  mov r9, [rdx + 8]
  mov r10, [rdx + 16]
  mov r11, [rdx + 24]
  .irp r, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19
    vpxord zmm\r, zmm\r, zmm\r
  .endr
  .if \signed
    mov eax, 0x80808080
    vpbroadcastd zmm25, eax
    mov eax, 0x01010101
    vpbroadcastd zmm26, eax
  .endif
  .balign 32
1:
  vmovdqu64 zmm20, [r8]
  vmovdqu64 zmm21, [r9]
  vmovdqu64 zmm22, [r10]
  vmovdqu64 zmm23, [r11]
  prefetcht0 [r8 + 1024]
  prefetcht0 [r9 + 1024]
  prefetcht0 [r10 + 1024]
  prefetcht0 [r11 + 1024]
  .if \signed
    vpdpbusd zmm16, zmm26, zmm20
    vpdpbusd zmm17, zmm26, zmm21
    vpdpbusd zmm18, zmm26, zmm22
    vpdpbusd zmm19, zmm26, zmm23
  .endif
  .irp i, 0,1,2,3
    .if \i < \rows
      dots_of_row \signed, \i
    .endif
  .endr
  add r8, 64
  add r9, 64
  add r10, 64
  add r11, 64
  add rsi, 64 * \rows
  dec rdi
  jnz 1b
  .if \signed
    .irp r, 16,17,18,19
      vpslld zmm\r, zmm\r, 7
    .endr
  .endif
  .irp i, 0,1,2,3
    .if \i < \rows
      .if \signed
        .irp j, 0,1,2,3
          unshift %(4 * \i + \j), %(16 + \j)
        .endr
      .endif
      store_row %(4 * \i), %(4 * \i + 1), %(4 * \i + 2), %(4 * \i + 3), %(16 * \i)
    .endif
  .endr
  vzeroupper
endfunction \name
.endm

dots deft_dots1_s8, 1, 1
dots deft_dots2_s8, 1, 2
dots deft_dots4_s8, 1, 4
dots deft_dots1_u8s8, 0, 1
dots deft_dots2_u8s8, 0, 2
dots deft_dots4_u8s8, 0, 4

.section .note.GNU-stack, "", @progbits
#endif
