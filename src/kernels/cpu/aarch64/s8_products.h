// The products of 2 x 2 sums of bytes, signed (SMMLA) and unsigned by signed (USMMLA), and the tiles built of them.
.macro signed acc, a, b
  smmla v\acc\().4s, v\a\().16b, v\b\().16b
.endm
.macro mixed acc, a, b
  usmmla v\acc\().4s, v\a\().16b, v\b\().16b
.endm
.macro signed_tall i, j, a
  signed %(8 + 4 * \j + \i), \a, \i
.endm
.macro mixed_tall i, j, a
  mixed %(8 + 4 * \j + \i), \a, \i
.endm
.macro group_4x8 product
  ldp q0, q1, [x1], #32
  ldp q2, q3, [x2]
  ldp q4, q5, [x2, #32]
  add x2, x2, #64
  .irp j, 0,1,2,3
    \product %(8 + \j), 0, %(2 + \j)
    \product %(12 + \j), 1, %(2 + \j)
  .endr
.endm
