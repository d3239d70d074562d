// Random words in bulk, and the factors of dropout.
#pragma once

#include <cstdint>

#include "runtime/random.h"

namespace deft::cpu {

// out[4 * i + j] = philox(draw, first_block + i)[j] for `blocks` blocks.
void philox_words(PhiloxState draw, uint64_t first_block, int64_t blocks, uint32_t* out);

// Element i of a draw is dropped where uniform_from_bits of its word is less than p, and multiplied by 1 / (1 - p)
// where not.
struct Dropping {
  double p = 0;  // in [0, 1]
  PhiloxState draw;
  double scale() const { return p < 1 ? 1 / (1 - p) : 0; }
  // Words below it are dropped; with p = 1 the last word is not, but its factor is 0 as well.
  uint32_t threshold() const;
};
// Factors of elements [first, first + n), 0 or the scale. T is float or double.
template <class T>
void drop_factors(const Dropping& d, uint64_t first, int64_t n, T* out);

}  // namespace deft::cpu
