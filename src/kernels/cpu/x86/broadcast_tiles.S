// Tiles that multiply two vectors of b by one group of a, broadcast: f32 and f64 (one value a group), bf16 pairs, byte
// quads. Twelve rows (six with 16 registers) keep both multipliers busy; the lower tiles are for matrices of few rows.
#include "kernels/cpu/x86/tile.inc"
#if defined(__x86_64__)

.macro multiply v, op, acc, b
  \op \v\()\acc, \v\()2, \v\()\b
.endm
.macro row v, broadcast, op, a, r0, r1
  \broadcast \v\()2, [rsi + \a]
  multiply \v, <\op>, \r0, 0
  multiply \v, <\op>, \r1, 1
.endm
// AVX-512 broadcasts within the multiplication: 26 instead of 38 instructions a step. Where the other half of a core is
// busy, such a loop runs at 119 GFLOP/s instead of 110; at 140 without a neighbour, either way. vpdpbusd cannot: it
// takes unsigned bytes, which a has, from a register only.
.macro row_within size, op, a, r0, r1
  .if \size == 4
    \op zmm\r0, zmm0, dword bcst [rsi + \a]
    \op zmm\r1, zmm1, dword bcst [rsi + \a]
  .else
    \op zmm\r0, zmm0, qword bcst [rsi + \a]
    \op zmm\r1, zmm1, qword bcst [rsi + \a]
  .endif
.endm
// Step k of four: `size` bytes of each row of a, two vectors of b.
.macro step v, bytes, rows, size, broadcast, op, k
  vmovups \v\()0, [rdx + \bytes * (2 * \k)]
  vmovups \v\()1, [rdx + \bytes * (2 * \k + 1)]
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
    .if \i < \rows
      .ifc \broadcast, within
        row_within \size, \op, %(\size * (\rows * \k + \i)), %(3 + 2 * \i), %(4 + 2 * \i)
      .else
        row \v, \broadcast, <\op>, %(\size * (\rows * \k + \i)), %(3 + 2 * \i), %(4 + 2 * \i)
      .endif
    .endif
  .endr
.endm
// a comes from L2, each cache line once; b stays in L1.
.macro prefetch_a bytes, line
  .if 64 * \line < \bytes
    prefetcht0 [rsi + 1024 + 64 * \line]
  .endif
.endm

// ahead: each four steps prefetch two cache lines of b from the seventh argument (on the stack) on.
.macro broadcast_tile name, v, bytes, rows, size, broadcast, op, ahead=0
function \name
  .if \ahead
    mov r10, [rsp + 8]
  .endif
  imul r8, r8, \size
  begin_rows \v, \bytes, \rows
  mov rax, rdi
  shr rax, 2
  jz 4f
  .balign 32
3:
  .irp k, 0,1,2,3
    prefetch_a %(4 * \size * \rows), %(2 * \k)
    prefetch_a %(4 * \size * \rows), %(2 * \k + 1)
    step \v, \bytes, \rows, \size, \broadcast, <\op>, \k
  .endr
  .if \ahead
    prefetcht1 [r10]
    prefetcht1 [r10 + 64]
    add r10, 128
  .endif
  add rsi, 4 * \size * \rows
  add rdx, 4 * 2 * \bytes
  dec rax
  jnz 3b
4:
  and edi, 3
  jz 6f
5:
  step \v, \bytes, \rows, \size, \broadcast, <\op>, 0
  add rsi, \size * \rows
  add rdx, 2 * \bytes
  dec edi
  jnz 5b
6:
  store_rows \v, \bytes, \rows
  vzeroupper
endfunction \name
.endm

broadcast_tile deft_avx2_f32_6x16, ymm, 32, 6, 4, vbroadcastss, vfmadd231ps
broadcast_tile deft_avx2_f32_4x16, ymm, 32, 4, 4, vbroadcastss, vfmadd231ps
broadcast_tile deft_avx2_f64_6x8, ymm, 32, 6, 8, vbroadcastsd, vfmadd231pd
broadcast_tile deft_avxvnni_u8s8_6x16, ymm, 32, 6, 4, vbroadcastss, <{vex} vpdpbusd>

broadcast_tile deft_avx512_f32_12x32, zmm, 64, 12, 4, within, vfmadd231ps
broadcast_tile deft_avx512_f32_ahead_12x32, zmm, 64, 12, 4, within, vfmadd231ps, 1
broadcast_tile deft_avx512_f32_10x32, zmm, 64, 10, 4, within, vfmadd231ps
broadcast_tile deft_avx512_f32_ahead_10x32, zmm, 64, 10, 4, within, vfmadd231ps, 1
broadcast_tile deft_avx512_f32_8x32, zmm, 64, 8, 4, within, vfmadd231ps
broadcast_tile deft_avx512_f32_ahead_8x32, zmm, 64, 8, 4, within, vfmadd231ps, 1
broadcast_tile deft_avx512_f32_4x32, zmm, 64, 4, 4, within, vfmadd231ps
broadcast_tile deft_avx512_f32_ahead_4x32, zmm, 64, 4, 4, within, vfmadd231ps, 1
broadcast_tile deft_avx512_f64_12x16, zmm, 64, 12, 8, within, vfmadd231pd
broadcast_tile deft_avx512_bf16_12x32, zmm, 64, 12, 4, within, vdpbf16ps
broadcast_tile deft_avx512_bf16_4x32, zmm, 64, 4, 4, within, vdpbf16ps
broadcast_tile deft_vnni_u8s8_12x32, zmm, 64, 12, 4, vbroadcastss, vpdpbusd
broadcast_tile deft_vnni_u8s8_4x32, zmm, 64, 4, 4, vbroadcastss, vpdpbusd

.section .note.GNU-stack, "", @progbits
#endif
