// From an image to a row of a batch: cut, resize, flip, change colours, normalise, in one pass.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/image_decode.h"
#include "data/sample_writer.h"

namespace deft::data {

enum class Cut : uint8_t {
  random,  // a part of random area and shape: torchvision's RandomResizedCrop
  center,  // the shorter side to `resize`, then the middle: torchvision's Resize and CenterCrop
  none,    // the whole image, stretched
};
enum class Filter : uint8_t { bilinear, bicubic };  // both antialiased, as PIL's are

// Largest changes, as of torchvision's ColorJitter: factors from [max(0, 1 - x), 1 + x], hue shifted by up to `hue` of
// the circle (0.5 is any). In random order.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};

struct ImageOptions {
  int64_t height = 224, width = 224;
  Cut cut = Cut::random;
  std::array<double, 2> scale = {0.08, 1};           // area of a random part
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  // width to height of a random part
  int64_t resize = 256;                              // Cut::center
  Filter filter = Filter::bilinear;
  double flip = 0;  // chance to mirror left and right
  ColorJitter jitter;
  // f32, bf16, f16: (x / 255 - mean) / std. u8: as it is, so that the device can do that with a quarter of the bytes.
  DType dtype = DType::f32;
  bool channels_last = true;  // [height, width, channels]; else [channels, height, width]
  std::array<double, 3> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};  // ImageNet's
  // JPEG: decode at 1/2, 1/4 or 1/8 where the part is then still as large as the result. Faster, and not bit by bit
  // what a full decode gives.
  bool reduce = true;
  DecodeOptions decode;
};
// The usual ones: random parts, flipped half of the time; the middle.
ImageOptions training_images(int64_t size = 224);
ImageOptions evaluation_images(int64_t size = 224, int64_t resize = 256);

struct ImageDraw;  // what was decided about one image

// Decoder, planned axes and buffers of one thread; kept from image to image.
class ImageWorkspace {
 public:
  ImageWorkspace();
  ~ImageWorkspace();
  ImageWorkspace(const ImageWorkspace&) = delete;
  ImageWorkspace& operator=(const ImageWorkspace&) = delete;

 private:
  friend class ImageTransform;
  struct State;
  std::unique_ptr<State> state_;
};

// The result depends on the image, the options and the random numbers, and on nothing else: not on threads, not on
// the machine. Resizing is fixed-point arithmetic with a known bound (kernels/cpu/image/image_resample.h).
class ImageTransform {
 public:
  // ValueError for options that make no sense.
  explicit ImageTransform(const ImageOptions& options);
  const ImageOptions& options() const { return options_; }
  Field field(std::string name = "image") const;

  // Draws what is random and decodes the part of the image that is needed.
  void decode(const EncodedImage& image, SampleRng& rng, ImageWorkspace& work) const;
  // The same for pixels that are there already; they must outlive the call of write().
  void use(const PixelView& pixels, SampleRng& rng, ImageWorkspace& work) const;
  // Writes the result of either: a field() of a batch.
  void write(ImageWorkspace& work, void* out) const;

 private:
  ImageDraw draw(ImageSize size, SampleRng& rng) const;
  ImageDraw draw_part(ImageSize size, SampleRng& rng) const;
  void draw_jitter(SampleRng& rng, ImageDraw& draw) const;
  void plan(const ImageDraw& draw, const ImageDecoder::Reduced& reduced, int reduction,
            ImageWorkspace::State& work) const;
  void change_colors(const ImageDraw& draw, uint8_t* pixels) const;
  void write_row(const uint8_t* row, int64_t y, ImageWorkspace::State& work, void* out) const;

  ImageOptions options_;
  std::vector<float> mean_, scale_;  // of a row as it is written
};

}  // namespace deft::data
