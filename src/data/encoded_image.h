// An image as it is in its file, which part of it is wanted, and what it becomes: rows of interleaved bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace deft::data {

// The bytes and the name must live as long as they are decoded.
struct EncodedImage {
  std::span<const uint8_t> bytes;
  std::string_view name;  // of the file, for messages
};

struct DecodeOptions {
  int channels = 3;  // 3: RGB; 1: gray. Whatever is in the file becomes that.
  // Images with more pixels are refused by their header, before anything is decoded.
  int64_t most_pixels = 100'000'000;
  int64_t most_file_bytes = int64_t{1} << 30;
  // Truncated or damaged data is an error, also outside of the part that is decoded. Allowed, pixels that cannot be
  // decoded are gray (JPEG) or black (PNG).
  bool allow_damaged = false;
  // Rotate images as their EXIF orientation says, as viewers do. PyTorch's ImageFolder does not.
  bool orient = true;
  // PNG: pixels that are partly transparent are drawn on the background; else their colour counts and alpha is dropped,
  // as PIL's convert("RGB") does.
  bool composite_alpha = false;
  std::array<uint8_t, 3> background = {255, 255, 255};
};

struct ImageSize {
  int64_t width = 0, height = 0;
  bool operator==(const ImageSize&) const = default;
};
struct PixelRect {
  int64_t x = 0, y = 0, width = 0, height = 0;
};
struct PixelView {
  const uint8_t* data = nullptr;
  int64_t width = 0, height = 0, channels = 0;
  int64_t stride = 0;  // bytes from row to row
};

// What a header says: as stored, before the orientation (1 to 8, EXIF's numbers).
struct ImageHeader {
  ImageSize size;
  int orientation = 1;
};

// A side in an image decoded at 1 / reduction.
inline int64_t reduced_side(int64_t side, int reduction) { return (side + reduction - 1) / reduction; }

}  // namespace deft::data
