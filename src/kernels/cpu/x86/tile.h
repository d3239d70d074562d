// What the register tiles of this folder share. Assembly only.
//
// Arguments (kernels/cpu/gemm_tile.h): rdi steps, rsi a, rdx b, rcx c, r8 c_row in elements, r9b add.
// Sums of floats start from c where it is added to: a product that is split along k stays one chain (Note [One chain]).
#pragma once
#if defined(__x86_64__)

.intel_syntax noprefix
.altmacro

// Every function here begins with endbr64 and keeps the return address where it is: IBT and shadow stacks.
.pushsection .note.gnu.property, "a"
.balign 8
.long 4, 16, 5  // sizes of the name and of what follows it, NT_GNU_PROPERTY_TYPE_0
.asciz "GNU"
.long 0xc0000002, 4, 3, 0  // GNU_PROPERTY_X86_FEATURE_1_AND: IBT, SHSTK
.popsection

.macro function name
  .text
  .balign 64
  .globl \name
  .hidden \name
  .type \name, @function
\name:
  .cfi_startproc
  endbr64
.endm

.macro endfunction name
  ret
  .cfi_endproc
  .size \name, . - \name
.endm

// TDPFP16PS, which assemblers before binutils 2.40 do not know.
.irp r, 0,1,2,3,4,5,6,7
  .set number_of_tmm\r, \r
.endr
.macro dp_f16 sums, a, b
  .byte 0xc4, 0xe2, 0x03 | (15 - number_of_\b) << 3, 0x5c, 0xc0 | number_of_\sums << 3 | number_of_\a
.endm

// ---- Sums of two vectors a row: row i is in registers 3 + 2 i and 4 + 2 i of kind v (ymm, zmm), `bytes` long each.
.macro clear v, r0, r1
  vmovaps \v\()\r0, \v\()0
  vmovaps \v\()\r1, \v\()0
.endm
.macro load v, bytes, r0, r1
  vmovups \v\()\r0, [rax]
  vmovups \v\()\r1, [rax + \bytes]
  add rax, r8
.endm
.macro store v, bytes, r0, r1
  vmovups [rcx], \v\()\r0
  vmovups [rcx + \bytes], \v\()\r1
  add rcx, r8
.endm

.macro clear_rows v, rows
  vxorps xmm0, xmm0, xmm0
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
    .if \i < \rows
      clear \v, %(3 + 2 * \i), %(4 + 2 * \i)
    .endif
  .endr
.endm
// r8 is c_row in bytes.
.macro load_rows v, bytes, rows
  mov rax, rcx
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
    .if \i < \rows
      load \v, \bytes, %(3 + 2 * \i), %(4 + 2 * \i)
    .endif
  .endr
.endm
// Zeros, or the sums to add to.
.macro begin_rows v, bytes, rows
  test r9b, r9b
  jnz 1f
  clear_rows \v, \rows
  jmp 2f
1:
  load_rows \v, \bytes, \rows
2:
.endm
.macro store_rows v, bytes, rows
  .irp i, 0,1,2,3,4,5,6,7,8,9,10,11
    .if \i < \rows
      store \v, \bytes, %(3 + 2 * \i), %(4 + 2 * \i)
    .endif
  .endr
.endm

#endif
