// Any bytes as a picture: its pixels, a part of them, or a typed error.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "data/image_decode.h"

namespace deft::data {

inline int fuzz_image(const uint8_t* data, size_t size, ImageFormat format) {
  EncodedImage image{{data, size}, "input"};
  if (image_format(image.bytes) != format) return 0;
  static ImageDecoder decoder;
  uint64_t sum = 0;
  for (bool whole : {true, false}) {
    DecodeOptions options;
    options.most_pixels = 1 << 16;
    options.channels = whole ? 3 : 1;
    options.allow_damaged = options.composite_alpha = whole;
    try {
      ImageSize s = decoder.open(image, options);
      int reduction = whole ? 1 : decoder.best_reduction(s.width, s.height, {2, 2});
      ImageSize r = decoder.reduced(reduction).size;
      PixelRect rect{whole ? 0 : r.width / 3, whole ? 0 : r.height / 3, r.width, r.height};
      rect.width -= rect.x + (whole ? 0 : (r.width - rect.x) / 2);
      rect.height -= rect.y + (whole ? 0 : (r.height - rect.y) / 2);
      PixelView v = decoder.decode(reduction, rect);
      if (v.width != rect.width || v.height != rect.height || v.channels != options.channels) __builtin_trap();
      for (int64_t y = 0; y < v.height; ++y)
        for (int64_t x = 0; x < v.width * v.channels; ++x) sum += v.data[y * v.stride + x];
    } catch (const LoadError& e) {
      if (e.field.empty() || e.format.empty() || e.file != "input" || e.offset > size) __builtin_trap();
    } catch (const UnsupportedError&) {
    }
  }
  static volatile uint64_t used;
  used = sum;
  (void)used;
  return 0;
}

}  // namespace deft::data
