// AMX: tiles whose rows are positions of copied lines, a_row bytes apart, and whose steps of k lie in pieces, a_step bytes
// apart. rdi: a LinesTile (kernels/cpu/line_blocks.h). Registers as in amx_tiles.S; b has panels of 32 columns, of which `wide` takes
// all, else the first 16 are multiplied.
#include "kernels/cpu/x86/amx_lines.h"
#if defined(__x86_64__)

// A quarter of what the next step reads of b.
.macro prefetch_b part, wide
  .irp line, 0,1,2,3
    prefetcht0 [rdx + 2048 + 128 * (4 * \part + \line)]
    .if \wide
      prefetcht0 [rdx + 2048 + 128 * (4 * \part + \line) + 64]
    .endif
  .endr
.endm

.macro amx_lines_tile name, op, strips, wide
function \name
  save rbx
  save r12
  save r13
  begin_lines \strips, \wide
  mov r13, [rdi + 64]
  mov rdi, [rdi + 56]
3:
  mov rbx, [r12]
  .balign 32
4:
  tileloadd tmm6, [rdx + r10]
  .if \wide
    tileloadd tmm7, [rdx + r10 + 64]
  .endif
  tileloadd tmm4, [rsi + rax]
  .if \strips == 2
    tileloadd tmm5, [r9 + rax]
  .endif
  \op tmm0, tmm4, tmm6
  prefetch_b 0, \wide
  prefetch_b 1, \wide
  .if \wide
    \op tmm1, tmm4, tmm7
  .endif
  prefetch_b 2, \wide
  .if \strips == 2
    \op tmm2, tmm5, tmm6
    prefetch_b 3, \wide
    .if \wide
      \op tmm3, tmm5, tmm7
    .endif
  .else
    prefetch_b 3, \wide
  .endif
  add rsi, r13
  add r9, r13
  add rdx, 2048
  dec rbx
  jnz 4b
  mov rbx, [r12 + 8]
  add rsi, rbx
  add r9, rbx
  add r12, 16
  dec rdi
  jnz 3b
  each_sum store_sum, \strips, \wide
  restore r13
  restore r12
  restore rbx
endfunction \name
.endm

.macro amx_lines_tiles type, op
  amx_lines_tile deft_amx_\type\()_lines_32x32, \op, 2, 1
  amx_lines_tile deft_amx_\type\()_lines_32x16, \op, 2, 0
  amx_lines_tile deft_amx_\type\()_lines_16x32, \op, 1, 1
  amx_lines_tile deft_amx_\type\()_lines_16x16, \op, 1, 0
.endm
amx_lines_tiles bf16, tdpbf16ps
amx_lines_tiles f16, dp_f16
amx_lines_tiles s8, tdpbssd
amx_lines_tiles u8s8, tdpbusd

.section .note.GNU-stack, "", @progbits
#endif
