// AMX tiles of convolutions: tile rows are positions of padded rows, a_row bytes apart, and steps of k lie in pieces,
// a_step bytes apart. rdi: a ConvTile (kernels/cpu/conv/line_tiles.h). Registers as in amx_tiles.S. b has panels of 32
// columns: `wide` uses all, else the first 16 are multiplied.
#include "kernels/cpu/x86/amx_lines.inc"
#if defined(__x86_64__)

// streams: b bypasses L1, where a stays, and is not prefetched (Note [Streams] in amx_tiles.S). Granite Rapids, 3 x 3
// of 64 to 512 channels, batch 8 and 1: 0.75 to 0.9 of the time.

// Prefetches a quarter of what the next step reads of b.
.macro prefetch_b part, wide, streams
  .if !\streams
    .irp line, 0,1,2,3
      prefetcht0 [rdx + 2048 + 128 * (4 * \part + \line)]
      .if \wide
        prefetcht0 [rdx + 2048 + 128 * (4 * \part + \line) + 64]
      .endif
    .endr
  .endif
.endm
.macro load_b tile, at, streams
  .if \streams
    tileloaddt1 \tile, [rdx + r10 + \at]
  .else
    tileloadd \tile, [rdx + r10 + \at]
  .endif
.endm

.macro amx_lines_tile name, op, strips, wide, streams
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
  load_b tmm6, 0, \streams
  .if \wide
    load_b tmm7, 64, \streams
  .endif
  tileloadd tmm4, [rsi + rax]
  .if \strips == 2
    tileloadd tmm5, [r9 + rax]
  .endif
  \op tmm0, tmm4, tmm6
  prefetch_b 0, \wide, \streams
  prefetch_b 1, \wide, \streams
  .if \wide
    \op tmm1, tmm4, tmm7
  .endif
  prefetch_b 2, \wide, \streams
  .if \strips == 2
    \op tmm2, tmm5, tmm6
    prefetch_b 3, \wide, \streams
    .if \wide
      \op tmm3, tmm5, tmm7
    .endif
  .else
    prefetch_b 3, \wide, \streams
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

.macro amx_lines_tiles type, op, streams
  amx_lines_tile deft_amx_\type\()_lines_32x32, \op, 2, 1, \streams
  amx_lines_tile deft_amx_\type\()_lines_32x16, \op, 2, 0, \streams
  amx_lines_tile deft_amx_\type\()_lines_16x32, \op, 1, 1, \streams
  amx_lines_tile deft_amx_\type\()_lines_16x16, \op, 1, 0, \streams
.endm
amx_lines_tiles bf16, tdpbf16ps, 0
amx_lines_tiles s8, tdpbssd, 0
amx_lines_tiles u8s8, tdpbusd, 0
amx_lines_tiles bf16_stream, tdpbf16ps, 1
amx_lines_tiles f16_stream, dp_f16, 1
amx_lines_tiles s8_stream, tdpbssd, 1
amx_lines_tiles u8s8_stream, tdpbusd, 1

.section .note.GNU-stack, "", @progbits
#endif
