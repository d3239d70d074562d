// AMX tiles of f32 values split into three parts of bf16 (Note [Split f32] in split_tiles.cpp). rdi: a ConvTile
// (kernels/cpu/conv/line_tiles.h). A step of k is 32 values: 64 bytes for each part of each row of a, with parts a_part
// bytes apart; of b 16 pairs of rows, each with the 32 columns of the first parts, of the second and of the third.
// Registers as in amx_tiles.S. b has panels of 32 columns: `wide` uses all, else the first 16 are multiplied.
#include "kernels/cpu/x86/amx_lines.inc"
#if defined(__x86_64__)

// The layout of a. In panels, its rows, their parts and steps are contiguous, and it is prefetched; otherwise it is in
// cache (the taps of a convolution read it repeatedly), or prefetching gained nothing.
.set in_panels, 0
.set in_lines, 1

// Prefetches four cache lines of each operand of the next step, or as much of it as exists and is read, and one to L2
// of what is read of b later. (Without those of the next step, panels in L2 gain up to 6 %, and panels beyond lose as
// much.)
.macro ask_for line, strips, form, parts
  .irp i, 0,1,2,3
    .if (\form == in_panels) && (\line + \i < 48 * \strips) && ((\line + \i) % 3 < \parts)
      prefetcht0 [rsi + 3072 * \strips + 64 * (\line + \i)]
    .endif
    .if (\line + \i) % 6 < 2 * \parts
      prefetcht0 [rdx + 6144 + 64 * (\line + \i)]
    .endif
  .endr
  .if \form == in_panels
    prefetcht1 [r14 + 16 * \line]
  .endif
.endm
// A 24th of what a step prefetches, or a 12th where there are half as many multiplications.
.macro ask_some share, strips, form, parts
  .if \parts == 3
    ask_for %(4 * \share), \strips, \form, \parts
  .else
    ask_for %(8 * \share), \strips, \form, \parts
    ask_for %(8 * \share + 4), \strips, \form, \parts
  .endif
.endm

.macro load_a part, strips, form
  .if (\form == in_panels) || (\part == 0)
    tileloadd tmm4, [rsi + rax + 64 * \part]
    .if \strips == 2
      tileloadd tmm5, [r9 + rax + 64 * \part]
    .endif
  .else
    lea r15, [rsi + \part * r14]
    tileloadd tmm4, [r15 + rax]
    .if \strips == 2
      lea r15, [r9 + \part * r14]
      tileloadd tmm5, [r15 + rax]
    .endif
  .endif
.endm
.macro load_b part, wide
  tileloadd tmm6, [rdx + r10 + 128 * \part]
  .if \wide
    tileloadd tmm7, [rdx + r10 + 128 * \part + 64]
  .endif
.endm
.macro multiply share, strips, wide, form, parts
  tdpbf16ps tmm0, tmm4, tmm6
  ask_some \share, \strips, \form, \parts
  .if \wide
    tdpbf16ps tmm1, tmm4, tmm7
  .endif
  ask_some %(\share + 1), \strips, \form, \parts
  .if \strips == 2
    tdpbf16ps tmm2, tmm5, tmm6
  .endif
  ask_some %(\share + 2), \strips, \form, \parts
  .if \strips == 2 && \wide
    tdpbf16ps tmm3, tmm5, tmm7
  .endif
  ask_some %(\share + 3), \strips, \form, \parts
.endm

// parts: 3, or the first 2, of which three of four combinations are summed. Each multiplication changes one operand
// only, so that 32 x 32 loads 14 tiles for 24 multiplications (8 for 12).
.macro split_tile name, strips, wide, form, parts
function \name
  save rbx
  save r12
  save r13
  save r14
  .if \form != in_panels
    save r15
  .endif
  begin_lines \strips, \wide
  mov r10d, 384
  mov r13, [rdi + 64]
  .if \form == in_panels
    mov r14, [rdi + 72]
  .else
    mov r14, [rdi + 80]
  .endif
  mov rdi, [rdi + 56]
3:
  mov rbx, [r12]
  .balign 32
4:
  .if \parts == 3
    load_a 2, \strips, \form
    load_b 0, \wide
    multiply 0, \strips, \wide, \form, \parts
    load_a 0, \strips, \form
    multiply 4, \strips, \wide, \form, \parts
    load_b 2, \wide
    multiply 8, \strips, \wide, \form, \parts
    load_b 1, \wide
    multiply 12, \strips, \wide, \form, \parts
    load_a 1, \strips, \form
    multiply 16, \strips, \wide, \form, \parts
    load_b 0, \wide
    multiply 20, \strips, \wide, \form, \parts
  .else
    load_a 1, \strips, \form
    load_b 0, \wide
    multiply 0, \strips, \wide, \form, \parts
    load_a 0, \strips, \form
    multiply 4, \strips, \wide, \form, \parts
    load_b 1, \wide
    multiply 8, \strips, \wide, \form, \parts
  .endif
  add rsi, r13
  add r9, r13
  add rdx, 6144
  .if \form == in_panels
    add r14, 1536
  .endif
  dec rbx
  jnz 4b
  mov rbx, [r12 + 8]
  add rsi, rbx
  add r9, rbx
  add r12, 16
  dec rdi
  jnz 3b
  each_sum store_sum, \strips, \wide
  .if \form != in_panels
    restore r15
  .endif
  restore r14
  restore r13
  restore r12
  restore rbx
endfunction \name
.endm

.macro split_tiles name, parts
  split_tile \name\()_32x32, 2, 1, in_panels, \parts
  split_tile \name\()_16x32, 1, 1, in_panels, \parts
  split_tile \name\()_lines_32x32, 2, 1, in_lines, \parts
  split_tile \name\()_lines_32x16, 2, 0, in_lines, \parts
  split_tile \name\()_lines_16x32, 1, 1, in_lines, \parts
  split_tile \name\()_lines_16x16, 1, 0, in_lines, \parts
.endm
split_tiles deft_amx_split, 3
split_tiles deft_amx_rough, 2

.section .note.GNU-stack, "", @progbits
#endif
