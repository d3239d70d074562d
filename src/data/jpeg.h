// JPEG through libjpeg-turbo: only the wanted part, at full size or 1/2, 1/4, 1/8 of it.
#pragma once

#include <memory>

#include "data/encoded_image.h"

namespace deft::data {

// Keeps its memory from image to image; one per thread.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Reads the header. LoadError with the offset for what is no JPEG, is broken or has too many pixels.
  ImageHeader open(const EncodedImage& image, const DecodeOptions& options);
  // The part `rect` of the image at 1 / reduction (1, 2, 4 or 8), once per open(). Its pixels equal those of the whole
  // image, bit by bit: columns and rows outside of it are not transformed, rows below it not even read. Valid until
  // the next call. Gray, YCbCr, RGB, CMYK and YCCK, baseline and progressive; CMYK counts as inverted, as Adobe writes
  // it.
  PixelView decode(int reduction, const PixelRect& rect);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deft::data
