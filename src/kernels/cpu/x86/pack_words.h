// Packing of groups of four bytes (kernels/cpu/gemm/pack_rows.h) and of values of two with AVX-512.
#pragma once

#include <cstdint>

namespace deft::cpu {

// The whole groups of `width` lines of so many bytes to the panel at out, every byte xor `flip`; returns how many bytes
// those are. `ahead`: bytes from a line to the line that is packed after it; 0: unknown.
int64_t pack_words_512(const void* const* lines, int width, int64_t bytes, int64_t ahead, unsigned char flip,
                       void* out);

// Rows of `panels` times 32 values, `step` values apart, to panels `panel_size` values apart: two rows of values of two
// bytes in turn, or four rows of bytes. k: a whole number of such groups.
void columns_of_halves_512(const uint16_t* in, int64_t step, int64_t panels, int64_t k, int64_t panel_size,
                           uint16_t* out);
void columns_of_bytes_512(const uint8_t* in, int64_t step, int64_t panels, int64_t k, int64_t panel_size, uint8_t* out);

// Values of two bytes at places, in pairs of places: [pair][part][32][2]. Of each place `count` of them, from `first`
// on, and zeros up to 32; parts lie 32 values apart. Null: zeros.
void pair_halves_512(const uint16_t* const* places, int64_t first, int64_t pairs, int64_t parts, int64_t count,
                     uint16_t* out);
// `count` values at 32 places, at most 32, from `first` on, turned: all places of the first, of the second and so on.
void transpose_halves_512(const uint16_t* const* places, int64_t first, int64_t count, uint16_t* out);

}  // namespace deft::cpu
