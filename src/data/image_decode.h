// Decodes images of all known formats, rotated as their EXIF orientation says.
#pragma once

#include <memory>
#include <vector>

#include "data/encoded_image.h"
#include "data/jpeg.h"
#include "data/png.h"

namespace deft::data {

enum class ImageFormat : uint8_t { unknown, jpeg, png };
// By its first bytes; names do not count.
ImageFormat image_format(std::span<const uint8_t> bytes);

// Keeps its memory from image to image; one per thread. All coordinates refer to the image as it is shown,
// after the orientation.
class ImageDecoder {
 public:
  // Reads the header. LoadError with the offset for files that are not images, are broken or have too many pixels.
  ImageSize open(const EncodedImage& image, const DecodeOptions& options);
  ImageFormat format() const { return format_; }
  // The largest of 8, 4, 2 and 1 that divides the image for free and leaves at least `least` of a part of this size.
  int best_reduction(double width, double height, ImageSize least) const;
  // The image at 1 / reduction: its size, and where the corner of the full image lies in it. That is (0, 0) unless
  // the size of a rotated image is not a multiple of the reduction: then what is beyond its last pixel comes first.
  struct Reduced {
    ImageSize size;
    double x, y;
  };
  Reduced reduced(int reduction) const;
  // A part of the image at 1 / reduction, once per open(). Valid until the next call.
  PixelView decode(int reduction, const PixelRect& rect);
  PixelView decode() { return decode(1, {0, 0, size_.width, size_.height}); }

 private:
  bool transposed() const { return header_.orientation >= 5; }
  bool flipped_x() const;  // of the stored image
  bool flipped_y() const;
  PixelView turn(const PixelView& stored, const PixelRect& rect);

  ImageFormat format_ = ImageFormat::unknown;
  ImageHeader header_;
  ImageSize size_;
  std::unique_ptr<JpegDecoder> jpeg_;
  std::unique_ptr<PngDecoder> png_;
  std::vector<uint8_t> turned_;
};

}  // namespace deft::data
