#include "data/image_decode.h"

#include <cstring>

#include "data/image_error.h"

namespace deft::data {

ImageFormat image_format(std::span<const uint8_t> bytes) {
  constexpr uint8_t kJpeg[] = {0xFF, 0xD8, 0xFF}, kPng[] = {0x89, 'P', 'N', 'G'};
  auto starts = [&](std::span<const uint8_t> with) {
    return bytes.size() >= with.size() && std::memcmp(bytes.data(), with.data(), with.size()) == 0;
  };
  return starts(kJpeg) ? ImageFormat::jpeg : starts(kPng) ? ImageFormat::png : ImageFormat::unknown;
}

ImageSize ImageDecoder::open(const EncodedImage& image, const DecodeOptions& options) {
  DEFT_CHECK(options.channels == 1 || options.channels == 3, ValueError,
             "decoding: channels must be 1 (gray) or 3 (RGB), found {}", options.channels);
  if (image.bytes.empty()) fail(image, "image", "file", 0, "is empty");
  format_ = image_format(image.bytes);
  if (format_ == ImageFormat::unknown)
    fail(image, "image", "first bytes", 0, "are those of neither a JPEG nor a PNG file");
  if (format_ == ImageFormat::jpeg) {
    if (!jpeg_) jpeg_ = std::make_unique<JpegDecoder>();
    header_ = jpeg_->open(image, options);
  } else {
    if (!png_) png_ = std::make_unique<PngDecoder>();
    header_ = png_->open(image, options);
  }
  size_ = transposed() ? ImageSize{header_.size.height, header_.size.width} : header_.size;
  return size_;
}

int ImageDecoder::best_reduction(double width, double height, ImageSize least) const {
  if (format_ != ImageFormat::jpeg) return 1;
  for (int r : {8, 4, 2})
    if (width >= static_cast<double>(least.width * r) && height >= static_cast<double>(least.height * r)) return r;
  return 1;
}

// EXIF: 2 mirrors, 3 turns by 180 degrees, 4 does both, 5 to 8 are the same after an exchange of the axes.
bool ImageDecoder::flipped_x() const {
  int o = header_.orientation;
  return o == 2 || o == 3 || o == 7 || o == 8;
}
bool ImageDecoder::flipped_y() const {
  int o = header_.orientation;
  return o == 3 || o == 4 || o == 6 || o == 7;
}

ImageDecoder::Reduced ImageDecoder::reduced(int reduction) const {
  ImageSize size{reduced_side(size_.width, reduction), reduced_side(size_.height, reduction)};
  auto excess = [&](int64_t full, int64_t part) {
    return static_cast<double>(part) - static_cast<double>(full) / reduction;
  };
  bool flip_x = transposed() ? flipped_y() : flipped_x(), flip_y = transposed() ? flipped_x() : flipped_y();
  return {size, flip_x ? excess(size_.width, size.width) : 0, flip_y ? excess(size_.height, size.height) : 0};
}

PixelView ImageDecoder::decode(int reduction, const PixelRect& rect) {
  PixelRect stored = transposed() ? PixelRect{rect.y, rect.x, rect.height, rect.width} : rect;
  if (flipped_x()) stored.x = reduced_side(header_.size.width, reduction) - stored.x - stored.width;
  if (flipped_y()) stored.y = reduced_side(header_.size.height, reduction) - stored.y - stored.height;
  PixelView pixels = format_ == ImageFormat::jpeg ? jpeg_->decode(reduction, stored) : png_->decode(stored);
  return header_.orientation == 1 ? pixels : turn(pixels, rect);
}

PixelView ImageDecoder::turn(const PixelView& stored, const PixelRect& rect) {
  int64_t channels = stored.channels, stride = rect.width * channels;
  turned_.resize(static_cast<size_t>(stride * rect.height));
  int64_t step_x = flipped_x() ? -channels : channels, step_y = flipped_y() ? -stored.stride : stored.stride;
  const uint8_t* corner = stored.data + (flipped_x() ? (stored.width - 1) * channels : 0) +
                          (flipped_y() ? (stored.height - 1) * stored.stride : 0);
  if (transposed()) std::swap(step_x, step_y);
  uint8_t* out = turned_.data();
  for (int64_t y = 0; y < rect.height; ++y) {
    const uint8_t* p = corner + y * step_y;
    for (int64_t x = 0; x < rect.width; ++x, p += step_x, out += channels)
      for (int64_t c = 0; c < channels; ++c) out[c] = p[c];
  }
  return {turned_.data(), rect.width, rect.height, channels, stride};
}

}  // namespace deft::data
