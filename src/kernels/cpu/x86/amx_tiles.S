// AMX: 32 x 32 values of c as two by two tiles of 16 rows of 64 bytes, and 16 x 32 for matrices of few rows. A step is
// 64 bytes of k: 32 bf16 or f16, or 64 bytes. Tiles 0 to 3 hold c, 4 and 5 rows of a, 6 and 7 columns of b.
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

// Note [Loads first]
// A step loads all its tiles before it multiplies, and while it multiplies prefetches the cache lines of the next step.
// With panels in L2 (k = 768) this gives 4,400 to 5,000 GFLOP/s on 16 threads and 730 on one, where loads just before
// their use gave 3,200 and 530 with the lines of a prefetched two steps ahead, 2,700 and 420 with none. Lines of b two
// or four steps ahead, or columns of b in whole kilobytes, gave no more.

// Cache lines [8 part, 8 part + 8) of the data `step` bytes ahead.
.macro prefetch from, step, part
  .irp line, 0,1,2,3,4,5,6,7
    prefetcht0 [\from + \step + 64 * (8 * \part + \line)]
  .endr
.endm

// Tiles 0 to 3: zeros, with the next code at 2, or the contents of c. rcx and r11 are its first and 17th row, r8 the
// bytes from row to row; rax and r10 those of a and b.
.macro begin_sums strips
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
.endm
.macro store_sums strips
  tilestored [rcx + r8], tmm0
  tilestored [rcx + r8 + 64], tmm1
  .if \strips == 2
    tilestored [r11 + r8], tmm2
    tilestored [r11 + r8 + 64], tmm3
  .endif
.endm

// strips: of 16 rows. With one, a stays in L1, and b, which may come from memory, is prefetched earlier.
.macro amx_tile name, op, strips
function \name
  begin_sums \strips
  .balign 32
2:
  tileloadd tmm6, [rdx + r10]
  tileloadd tmm7, [rdx + r10 + 64]
  tileloadd tmm4, [rsi + rax]
  .if \strips == 2
    tileloadd tmm5, [rsi + rax + 1024]
  .endif
  \op tmm0, tmm4, tmm6
  .if \strips == 2
    prefetch rsi, 2048, 0
    prefetch rdx, 2048, 0
    \op tmm1, tmm4, tmm7
    prefetch rsi, 2048, 1
    prefetch rdx, 2048, 1
    \op tmm2, tmm5, tmm6
    prefetch rsi, 2048, 2
    prefetch rdx, 2048, 2
    \op tmm3, tmm5, tmm7
    prefetch rsi, 2048, 3
    prefetch rdx, 2048, 3
  .else
    prefetch rdx, 4096, 0
    prefetch rdx, 4096, 1
    \op tmm1, tmm4, tmm7
    prefetch rdx, 4096, 2
    prefetch rdx, 4096, 3
  .endif
  add rsi, 1024 * \strips
  add rdx, 2048
  dec rdi
  jnz 2b
  store_sums \strips
endfunction \name
.endm

amx_tile deft_amx_bf16_32x32, tdpbf16ps, 2
amx_tile deft_amx_bf16_16x32, tdpbf16ps, 1
amx_tile deft_amx_f16_16x32, dp_f16, 1
amx_tile deft_amx_s8_32x32, tdpbssd, 2
amx_tile deft_amx_s8_16x32, tdpbssd, 1
amx_tile deft_amx_u8s8_32x32, tdpbusd, 2
amx_tile deft_amx_u8s8_16x32, tdpbusd, 1

// Note [Streams]
// The same for CPUs with AMX-FP16, whose hardware prefetches the next lines: software prefetching takes their time.
// Each tile is loaded two multiplications before its use, and a bypasses L1, where b stays. Granite Rapids, one thread,
// 1024 x 768 x 768 of bf16 in GFLOP/s: 1,050 by the tile above, 1,110 by this one, 1,410 with k in parts of which b
// stays there as a whole (GemmTile::part_steps). Emerald Rapids, tiles alone, panels in L2, k = 768, in % of the
// moment's peak: 57 and 73 where the core is alone, but 61 and 44 where it shares its units with another program.
// ahead: prefetches b from the seventh argument (on the stack) on, two lines a step into L2: 4096 x 3072 x 768 gains 9
// %, and what is in L2 already loses nothing. (Four lines: no more.)
.macro amx_stream_tile name, op, ahead
function \name
  .if \ahead
    push rbx
    .cfi_adjust_cfa_offset 8
    mov rbx, [rsp + 16]
  .endif
  begin_sums 2
2:
  tileloaddt1 tmm4, [rsi + rax]
  tileloadd tmm6, [rdx + r10]
  tileloadd tmm7, [rdx + r10 + 64]
  dec rdi
  jz 4f
  .balign 32
3:
  \op tmm0, tmm4, tmm6
  tileloaddt1 tmm5, [rsi + rax + 1024]
  \op tmm1, tmm4, tmm7
  add rsi, 2048
  add rdx, 2048
  tileloaddt1 tmm4, [rsi + rax]
  \op tmm2, tmm5, tmm6
  tileloadd tmm6, [rdx + r10]
  \op tmm3, tmm5, tmm7
  .if \ahead
    prefetcht1 [rbx]
    prefetcht1 [rbx + 64]
    add rbx, 128
  .endif
  tileloadd tmm7, [rdx + r10 + 64]
  dec rdi
  jnz 3b
4:
  \op tmm0, tmm4, tmm6
  tileloaddt1 tmm5, [rsi + rax + 1024]
  \op tmm1, tmm4, tmm7
  \op tmm2, tmm5, tmm6
  \op tmm3, tmm5, tmm7
  store_sums 2
  .if \ahead
    pop rbx
    .cfi_adjust_cfa_offset -8
  .endif
endfunction \name
.endm

.macro amx_stream_tiles type, op
  amx_stream_tile deft_amx_\type\()_stream_32x32, \op, 0
  amx_stream_tile deft_amx_\type\()_ahead_32x32, \op, 1
.endm
amx_stream_tiles bf16, tdpbf16ps
amx_stream_tiles f16, dp_f16
amx_stream_tiles s8, tdpbssd
amx_stream_tiles u8s8, tdpbusd

// 32 x 32 on rows of a in place, the seventh argument (on the stack) bytes apart: a tile register takes rows at any
// distance, so that a matrix of the panel's type needs no packing. Prefetching the next panel of b, four lines a step,
// gained 5 % where it comes from memory and lost 3 % where it does not: the other arguments are not used. CPUs with
// AMX-FP16 gain nothing here from a stream (0.97 to 1.05x).
// Prefetches the next step's cache lines of four rows from rbx on, which then is at the next four.
.macro prefetch_rows
  prefetcht0 [rbx]
  prefetcht0 [rbx + rax]
  prefetcht0 [rbx + 2 * rax]
  prefetcht0 [rbx + r11]
  lea rbx, [rbx + 4 * rax]
.endm

.macro amx_rows_tile name, op
function \name
  mov rax, [rsp + 8]
  push rbx
  .cfi_adjust_cfa_offset 8
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
  lea r11, [rax + 2 * rax]
  mov r9, rax
  shl r9, 4
  add r9, rsi
  .balign 32
3:
  tileloadd tmm6, [rdx + r10]
  tileloadd tmm7, [rdx + r10 + 64]
  tileloadd tmm4, [rsi + rax]
  tileloadd tmm5, [r9 + rax]
  lea rbx, [rsi + 64]
  \op tmm0, tmm4, tmm6
  prefetch_rows
  prefetch_rows
  prefetch rdx, 2048, 0
  \op tmm1, tmm4, tmm7
  prefetch_rows
  prefetch_rows
  prefetch rdx, 2048, 1
  \op tmm2, tmm5, tmm6
  prefetch_rows
  prefetch_rows
  prefetch rdx, 2048, 2
  \op tmm3, tmm5, tmm7
  prefetch_rows
  prefetch_rows
  prefetch rdx, 2048, 3
  add rsi, 64
  add r9, 64
  add rdx, 2048
  dec rdi
  jnz 3b
  mov r11, r8
  shl r11, 4
  add r11, rcx
  store_sums 2
  pop rbx
  .cfi_adjust_cfa_offset -8
endfunction \name
.endm

amx_rows_tile deft_amx_bf16_rows_32x32, tdpbf16ps
amx_rows_tile deft_amx_f16_rows_32x32, dp_f16
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
