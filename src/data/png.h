// PNG through libpng: all colour types, 1 to 16 bits, interlaced or not.
#pragma once

#include <memory>

#include "data/encoded_image.h"

namespace deft::data {

// Keeps the memory of its pixels from image to image; one per thread.
class PngDecoder {
 public:
  PngDecoder();
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Reads the header and walks over the chunks. LoadError with the offset for what is no PNG, is truncated or has too
  // many pixels.
  ImageHeader open(const EncodedImage& image, const DecodeOptions& options);
  // The part `rect` of the image. Rows below it are not unpacked, unless the image is interlaced. Valid until the
  // next call. 16 bits become 8 by rounding, palettes colours; for alpha see DecodeOptions.
  PixelView decode(const PixelRect& rect);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deft::data
