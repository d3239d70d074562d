// Random words to values. A value depends on its words alone, not on where in a run they lie.
#pragma once

#include <cstdint>

namespace deft::cpu {

// out[i] = uniform_from_bits(words[i]) * (high - low) + low in double with both roundings, then rounded to the type of
// out. Where that is not less than `end` it is low.
void uniform_values(const uint32_t* words, int64_t n, double low, double high, float end, float* out);
void uniform_values(const uint32_t* words, int64_t n, double low, double high, double end, double* out);

// Box-Muller in double with each operation rounded by itself, then rounded to the type of out. Words 2i and 2i + 1 make
// values 2i and 2i + 1: the radius is sqrt(-2 log((word + 0.5) / 2^32)) of the first word, the angle
// 2 pi (word + 0.5) / 2^32 of the second. Reads an even number of words where n is odd, too.
void normal_values(const uint32_t* words, int64_t n, double mean, double std, float* out);
void normal_values(const uint32_t* words, int64_t n, double mean, double std, double* out);

}  // namespace deft::cpu
