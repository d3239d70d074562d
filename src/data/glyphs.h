// Drawn characters: a data set that needs no file. Each image is made of the strokes of a character, bent, rotated,
// slanted, shifted, drawn with a pen of changing width in black on white or white on black, with noise and a stray
// line. A linear model fails on it, a small convolutional net does not.
#pragma once

#include "data/image_set.h"

namespace deft::data {

inline constexpr int64_t kGlyphSize = 32;
int64_t glyph_classes();
char glyph_name(int64_t label);  // the character of a class

// Image i depends only on (seed, i).
ImageSet make_glyphs(uint64_t seed, int64_t count);

}  // namespace deft::data
