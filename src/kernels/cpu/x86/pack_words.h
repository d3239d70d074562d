// Packing of groups of four bytes (kernels/cpu/gemm/pack_rows.h) and of values of two with AVX-512.
#pragma once

#include <cstdint>

namespace deft::cpu {

// Packs the whole groups of `width` lines of `bytes` bytes to the panel at out, every byte xor `flip`; returns how many
// bytes of each line those are. `ahead`: bytes from a line to the line that is packed after it; 0: unknown.
int64_t pack_words_512(const void* const* lines, int width, int64_t bytes, int64_t ahead, unsigned char flip,
                       void* out);

// Packs rows of `panels` times 32 values, `step` values apart, to panels `panel_size` values apart: two rows of 16-bit
// values interleaved, or four rows of bytes. k: a whole number of such groups.
void columns_of_halves_512(const uint16_t* in, int64_t step, int64_t panels, int64_t k, int64_t panel_size,
                           uint16_t* out);
void columns_of_bytes_512(const uint8_t* in, int64_t step, int64_t panels, int64_t k, int64_t panel_size, uint8_t* out);

// Interleaves pairs of arrays of 16-bit values: [pair][part][32][2]. Takes `count` values of each from `first` on, and
// zeros up to 32; parts lie 32 values apart. Null: zeros.
void pair_halves_512(const uint16_t* const* places, int64_t first, int64_t pairs, int64_t parts, int64_t count,
                     uint16_t* out);
// Transposes `count` values (at most 32) from `first` on of 32 arrays: the first value of all arrays, the second and so
// on.
void transpose_halves_512(const uint16_t* const* places, int64_t first, int64_t count, uint16_t* out);

}  // namespace deft::cpu
