// AMX: 32 x 32 values of c as two by two tiles of 16 rows of 64 bytes, and 16 x 32 for matrices of few rows. A step is
// 64 bytes of k: 32 bf16 or 64 bytes. Tiles 0 to 3 hold c, 4 and 5 rows of a, 6 and 7 columns of b.
#include "kernels/cpu/x86/tile.h"
#if defined(__x86_64__)

// Of what the next but one step (4 KB ahead) reads from farther away: lines [8 part, 8 part + 8).
.macro prefetch from, part
  .irp line, 0,1,2,3,4,5,6,7
    prefetcht0 [\from + 4096 + 64 * (8 * \part + \line)]
  .endr
.endm

// strips: of 16 rows. With two, b stays in the first cache level and a streams; with one, b streams.
.macro amx_tile name, op, strips, stream
function \name
  shl r8, 2
  mov r11, r8
  shl r11, 4
  add r11, rcx
  mov eax, 64
  mov r10d, 128
  test r9b, r9b
  jnz 1f
  tilezero tmm0
  tilezero tmm1
  tilezero tmm2
  tilezero tmm3
  jmp 2f
1:
  tileloadd tmm0, [rcx + r8]
  tileloadd tmm1, [rcx + r8 + 64]
  .if \strips == 2
    tileloadd tmm2, [r11 + r8]
    tileloadd tmm3, [r11 + r8 + 64]
  .endif
  .balign 32
2:
  tileloadd tmm6, [rdx + r10]
  tileloadd tmm4, [rsi + rax]
  \op tmm0, tmm4, tmm6
  prefetch \stream, 0
  tileloadd tmm7, [rdx + r10 + 64]
  \op tmm1, tmm4, tmm7
  prefetch \stream, 1
  .if \strips == 2
    tileloadd tmm5, [rsi + rax + 1024]
    \op tmm2, tmm5, tmm6
    prefetch \stream, 2
    \op tmm3, tmm5, tmm7
    prefetch \stream, 3
  .else
    prefetch \stream, 2
    prefetch \stream, 3
  .endif
  add rsi, 1024 * \strips
  add rdx, 2048
  dec rdi
  jnz 2b
  tilestored [rcx + r8], tmm0
  tilestored [rcx + r8 + 64], tmm1
  .if \strips == 2
    tilestored [r11 + r8], tmm2
    tilestored [r11 + r8 + 64], tmm3
  .endif
endfunction \name
.endm

amx_tile deft_amx_bf16_32x32, tdpbf16ps, 2, rsi
amx_tile deft_amx_bf16_16x32, tdpbf16ps, 1, rdx
amx_tile deft_amx_s8_32x32, tdpbssd, 2, rsi
amx_tile deft_amx_s8_16x32, tdpbssd, 1, rdx
amx_tile deft_amx_u8s8_32x32, tdpbusd, 2, rsi
amx_tile deft_amx_u8s8_16x32, tdpbusd, 1, rdx

// 32 x 32 with the rows of a as they lie in memory, the seventh argument (on the stack) bytes apart: a tile register
// takes rows at any distance, so that a matrix of the panel's type needs no packing.
.macro amx_rows_tile name, op
function \name
  mov rax, [rsp + 8]
  shl r8, 2
  mov r11, r8
  shl r11, 4
  add r11, rcx
  mov r10d, 128
  test r9b, r9b
  jnz 1f
  tilezero tmm0
  tilezero tmm1
  tilezero tmm2
  tilezero tmm3
  jmp 2f
1:
  tileloadd tmm0, [rcx + r8]
  tileloadd tmm1, [rcx + r8 + 64]
  tileloadd tmm2, [r11 + r8]
  tileloadd tmm3, [r11 + r8 + 64]
2:
  mov r9, rax
  shl r9, 4
  add r9, rsi
  .balign 32
3:
  tileloadd tmm6, [rdx + r10]
  tileloadd tmm4, [rsi + rax]
  \op tmm0, tmm4, tmm6
  tileloadd tmm7, [rdx + r10 + 64]
  \op tmm1, tmm4, tmm7
  tileloadd tmm5, [r9 + rax]
  \op tmm2, tmm5, tmm6
  \op tmm3, tmm5, tmm7
  add rsi, 64
  add r9, 64
  add rdx, 2048
  dec rdi
  jnz 3b
  tilestored [rcx + r8], tmm0
  tilestored [rcx + r8 + 64], tmm1
  tilestored [r11 + r8], tmm2
  tilestored [r11 + r8 + 64], tmm3
endfunction \name
.endm

amx_rows_tile deft_amx_bf16_rows_32x32, tdpbf16ps
amx_rows_tile deft_amx_s8_rows_32x32, tdpbssd
amx_rows_tile deft_amx_u8s8_rows_32x32, tdpbusd

function deft_amx_begin
  ldtilecfg [rip + tile_shapes]
endfunction deft_amx_begin

function deft_amx_end
  tilerelease
endfunction deft_amx_end

// Palette 1, and for each of eight tiles 64 bytes a row (16 bits each from byte 16) and 16 rows (bytes from byte 48).
.section .rodata
.balign 64
tile_shapes:
  .byte 1
  .zero 15
  .rept 8
    .short 64
  .endr
  .zero 16
  .rept 8
    .byte 16
  .endr
  .zero 8

.section .note.GNU-stack, "", @progbits
#endif
