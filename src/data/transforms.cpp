#include "data/transforms.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/image/image_color.h"
#include "kernels/cpu/image/image_resample.h"

namespace deft::data {

namespace {

enum class Change : uint8_t { brightness, contrast, saturation, hue };
constexpr int kChanges = 4;
constexpr double kUnit = 1 << 16;  // of factors

cpu::ResampleFilter kernel_filter(Filter filter) {
  return filter == Filter::bilinear ? cpu::ResampleFilter::bilinear : cpu::ResampleFilter::bicubic;
}

int64_t rounded(double x) { return static_cast<int64_t>(std::nearbyint(x)); }  // as Python's round

}  // namespace

// What was decided about one image, in pixels of the full image. Output x is around left + (x + 0.5) * step_x.
struct ImageDraw {
  PixelRect readable;  // pixels that may have a part in the result
  double left = 0, top = 0, step_x = 1, step_y = 1;
  bool flip = false;
  std::array<Change, kChanges> order = {Change::brightness, Change::contrast, Change::saturation, Change::hue};
  std::array<int32_t, kChanges> factors = {};  // by Change; nothing to do for those that are off
};

struct ImageWorkspace::State {
  ImageDecoder decoder;
  PixelView pixels;
  ImageDraw draw;
  cpu::ResampleAxis columns, rows;
  std::vector<uint8_t> image, planes;
  std::vector<int16_t> scratch;
  std::vector<float> floats;
};

ImageWorkspace::ImageWorkspace() : state_(std::make_unique<State>()) {}
ImageWorkspace::~ImageWorkspace() = default;

ImageOptions training_images(int64_t size) {
  ImageOptions o;
  o.height = o.width = size;
  o.flip = 0.5;
  return o;
}
ImageOptions evaluation_images(int64_t size, int64_t resize) {
  ImageOptions o;
  o.height = o.width = size;
  o.cut = Cut::center;
  o.resize = resize;
  return o;
}

namespace {

void check_options(const ImageOptions& o) {
  constexpr int64_t kLargest = 1 << 15;
  DEFT_CHECK(o.height >= 1 && o.width >= 1 && o.height <= kLargest && o.width <= kLargest, ValueError,
             "images: the size must be 1 x 1 to {} x {}, found {} x {}", kLargest, kLargest, o.height, o.width);
  DEFT_CHECK(o.cut != Cut::center || (o.resize >= std::max(o.height, o.width) && o.resize <= kLargest), ValueError,
             "images: resize must be from the size of the cut ({} x {}) to {}, found {}", o.height, o.width, kLargest,
             o.resize);
  DEFT_CHECK(o.scale[0] > 0 && o.scale[0] <= o.scale[1] && o.scale[1] <= 1, ValueError,
             "images: scale must be two rising numbers in (0, 1], found {} and {}", o.scale[0], o.scale[1]);
  DEFT_CHECK(o.ratio[0] > 0 && o.ratio[0] <= o.ratio[1] && std::isfinite(o.ratio[1]), ValueError,
             "images: ratio must be two rising positive numbers, found {} and {}", o.ratio[0], o.ratio[1]);
  DEFT_CHECK(o.flip >= 0 && o.flip <= 1, ValueError, "images: flip is a chance from 0 to 1, found {}", o.flip);
  const ColorJitter& j = o.jitter;
  for (double x : {j.brightness, j.contrast, j.saturation})
    DEFT_CHECK(x >= 0 && x <= 100, ValueError, "images: changes of colours must be from 0 to 100, found {}", x);
  DEFT_CHECK(j.hue >= 0 && j.hue <= 0.5, ValueError, "images: hue must be from 0 to 0.5, found {}", j.hue);
  bool jitters = j.brightness > 0 || j.contrast > 0 || j.saturation > 0 || j.hue > 0;
  DEFT_CHECK(!jitters || o.decode.channels == 3, ValueError,
             "images: changes of colours need 3 channels, found {}; set jitter = {{}}", o.decode.channels);
  DEFT_CHECK(o.decode.channels == 1 || o.decode.channels == 3, ValueError,
             "images: channels must be 1 (gray) or 3 (RGB), found {}", o.decode.channels);
  DEFT_CHECK(o.dtype == DType::u8 || o.dtype == DType::f32 || o.dtype == DType::bf16 || o.dtype == DType::f16,
             DTypeError, "images: found {}, expected u8, f32, bf16 or f16", name_of(o.dtype));
  for (double s : o.std) DEFT_CHECK(s > 0, ValueError, "images: std must be positive, found {}", s);
}

}  // namespace

ImageTransform::ImageTransform(const ImageOptions& options) : options_(options) {
  check_options(options);
  int64_t channels = options.decode.channels;
  for (int64_t i = 0; i < options.width * channels; ++i) {
    auto c = static_cast<size_t>(options.channels_last ? i % channels : i / options.width);
    mean_.push_back(static_cast<float>(options.mean[c] * 255));
    scale_.push_back(static_cast<float>(1 / (options.std[c] * 255)));
  }
}

Field ImageTransform::field(std::string name) const {
  int64_t c = options_.decode.channels, h = options_.height, w = options_.width;
  return {std::move(name), options_.dtype, options_.channels_last ? Shape{h, w, c} : Shape{c, h, w}, 0};
}

// torchvision's rule: ten tries for an area and a ratio that fit, else the largest middle part within the ratios.
ImageDraw ImageTransform::draw_part(ImageSize size, SampleRng& rng) const {
  constexpr int kTries = 10;
  const auto& [scale, ratio] = std::tie(options_.scale, options_.ratio);
  auto w = static_cast<double>(size.width), h = static_cast<double>(size.height);
  ImageDraw d;
  PixelRect& part = d.readable;
  for (int i = 0; i < kTries; ++i) {
    double area = w * h * rng.uniform(scale[0], scale[1]);
    double shape = std::exp(rng.uniform(std::log(ratio[0]), std::log(ratio[1])));
    part.width = rounded(std::sqrt(area * shape));
    part.height = rounded(std::sqrt(area / shape));
    if (part.width < 1 || part.height < 1 || part.width > size.width || part.height > size.height) continue;
    part.x = rng.below(size.width - part.width + 1);
    part.y = rng.below(size.height - part.height + 1);
    return d;
  }
  part = {0, 0, size.width, size.height};
  if (w / h < ratio[0]) part.height = std::clamp<int64_t>(rounded(w / ratio[0]), 1, size.height);
  if (w / h > ratio[1]) part.width = std::clamp<int64_t>(rounded(h * ratio[1]), 1, size.width);
  part.x = (size.width - part.width) / 2;
  part.y = (size.height - part.height) / 2;
  return d;
}

void ImageTransform::draw_jitter(SampleRng& rng, ImageDraw& d) const {
  const ColorJitter& j = options_.jitter;
  for (int i = kChanges - 1; i > 0; --i)
    std::swap(d.order[static_cast<size_t>(i)], d.order[static_cast<size_t>(rng.below(i + 1))]);
  double largest[] = {j.brightness, j.contrast, j.saturation};
  for (size_t i = 0; i < std::size(largest); ++i)
    d.factors[i] = static_cast<int32_t>(rounded(kUnit * rng.uniform(std::max(0.0, 1 - largest[i]), 1 + largest[i])));
  d.factors[3] = static_cast<int32_t>(rounded(kUnit * rng.uniform(-j.hue, j.hue)));
}

ImageDraw ImageTransform::draw(ImageSize size, SampleRng& rng) const {
  ImageDraw d;
  d.readable = {0, 0, size.width, size.height};
  auto w = static_cast<double>(size.width), h = static_cast<double>(size.height);
  if (options_.cut == Cut::random) d = draw_part(size, rng);
  if (options_.cut == Cut::center) {
    int64_t shorter = std::min(size.width, size.height);
    auto scaled = [&](int64_t side) {
      return static_cast<int64_t>(static_cast<double>(options_.resize) * static_cast<double>(side) /
                                  static_cast<double>(shorter));
    };
    int64_t columns = scaled(size.width), rows = scaled(size.height);
    d.step_x = w / static_cast<double>(columns);
    d.step_y = h / static_cast<double>(rows);
    d.left = static_cast<double>(rounded(static_cast<double>(columns - options_.width) / 2)) * d.step_x;
    d.top = static_cast<double>(rounded(static_cast<double>(rows - options_.height) / 2)) * d.step_y;
  } else {
    d.left = static_cast<double>(d.readable.x);
    d.top = static_cast<double>(d.readable.y);
    d.step_x = static_cast<double>(d.readable.width) / static_cast<double>(options_.width);
    d.step_y = static_cast<double>(d.readable.height) / static_cast<double>(options_.height);
  }
  d.flip = rng.uniform() < options_.flip;
  draw_jitter(rng, d);
  return d;
}

void ImageTransform::plan(const ImageDraw& d, const ImageDecoder::Reduced& reduced, int reduction,
                          ImageWorkspace::State& work) const {
  auto span = [&](int64_t low, int64_t size, double start, double step, double shift, int64_t end, int64_t count) {
    auto at = [&](double x) { return x / reduction + shift; };
    auto first = static_cast<int64_t>(std::floor(at(static_cast<double>(low))));
    auto last = static_cast<int64_t>(std::ceil(at(static_cast<double>(low + size))));
    return cpu::ResampleSpan{std::clamp<int64_t>(first, 0, end - 1),
                             std::clamp<int64_t>(last, 1, end),
                             at(start),
                             step / reduction,
                             count,
                             false};
  };
  cpu::ResampleSpan columns =
      span(d.readable.x, d.readable.width, d.left, d.step_x, reduced.x, reduced.size.width, options_.width);
  columns.reversed = d.flip;
  plan_resample(kernel_filter(options_.filter), columns, work.columns);
  plan_resample(kernel_filter(options_.filter),
                span(d.readable.y, d.readable.height, d.top, d.step_y, reduced.y, reduced.size.height, options_.height),
                work.rows);
}

void ImageTransform::decode(const EncodedImage& image, SampleRng& rng, ImageWorkspace& work) const {
  ImageWorkspace::State& w = *work.state_;
  ImageSize size = w.decoder.open(image, options_.decode);
  w.draw = draw(size, rng);
  int reduction = options_.reduce ? w.decoder.best_reduction(w.draw.step_x * static_cast<double>(options_.width),
                                                             w.draw.step_y * static_cast<double>(options_.height),
                                                             {options_.width, options_.height})
                                  : 1;
  plan(w.draw, w.decoder.reduced(reduction), reduction, w);
  PixelRect rect{w.columns.low, w.rows.low, w.columns.high - w.columns.low, w.rows.high - w.rows.low};
  w.pixels = w.decoder.decode(reduction, rect);
}

void ImageTransform::use(const PixelView& pixels, SampleRng& rng, ImageWorkspace& work) const {
  DEFT_CHECK(pixels.width > 0 && pixels.height > 0 && pixels.channels == options_.decode.channels, ShapeError,
             "images: found {} x {} pixels of {} channels, expected {} channels", pixels.height, pixels.width,
             pixels.channels, options_.decode.channels);
  ImageWorkspace::State& w = *work.state_;
  ImageSize size{pixels.width, pixels.height};
  w.draw = draw(size, rng);
  plan(w.draw, {size, 0, 0}, 1, w);
  w.pixels = {pixels.data + w.rows.low * pixels.stride + w.columns.low * pixels.channels,
              w.columns.high - w.columns.low, w.rows.high - w.rows.low, pixels.channels, pixels.stride};
}

void ImageTransform::change_colors(const ImageDraw& d, uint8_t* pixels) const {
  int64_t count = options_.height * options_.width;
  const ColorJitter& j = options_.jitter;
  for (Change change : d.order) {
    int32_t factor = d.factors[static_cast<size_t>(change)];
    if (change == Change::brightness && j.brightness > 0) cpu::blend_with_level(pixels, count, 0, factor);
    if (change == Change::contrast && j.contrast > 0)
      cpu::blend_with_level(pixels, count, cpu::mean_gray(pixels, count), factor);
    if (change == Change::saturation && j.saturation > 0) cpu::blend_with_gray(pixels, count, factor);
    if (change == Change::hue && j.hue > 0) cpu::turn_hue(pixels, count, factor);
  }
}

// One row of the result; with channels first, one row of each plane.
void ImageTransform::write_row(const uint8_t* row, int64_t y, ImageWorkspace::State& work, void* out) const {
  int64_t w = options_.width, channels = options_.decode.channels, n = w * channels;
  auto size = static_cast<int64_t>(size_of(options_.dtype));
  bool planes = !options_.channels_last && channels == 3;
  if (planes) {
    work.planes.resize(static_cast<size_t>(n));
    uint8_t* p = work.planes.data();
    cpu::split_channels(row, w, p, p + w, p + 2 * w);
    row = p;
  }
  int64_t parts = planes ? channels : 1, length = n / parts;
  for (int64_t c = 0; c < parts; ++c) {
    char* to = static_cast<char*>(out) + (c * options_.height + y) * length * size;
    const uint8_t* from = row + c * length;
    const float *mean = mean_.data() + c * length, *scale = scale_.data() + c * length;
    if (options_.dtype == DType::u8) {
      std::memcpy(to, from, static_cast<size_t>(length));
    } else if (options_.dtype == DType::f32) {
      cpu::normalize_bytes(from, length, mean, scale, reinterpret_cast<float*>(to));
    } else {
      work.floats.resize(static_cast<size_t>(length));
      cpu::normalize_bytes(from, length, mean, scale, work.floats.data());
      cpu::convert(work.floats.data(), DType::f32, to, options_.dtype, static_cast<size_t>(length));
    }
  }
}

void ImageTransform::write(ImageWorkspace& workspace, void* out) const {
  ImageWorkspace::State& w = *workspace.state_;
  const ColorJitter& j = options_.jitter;
  bool jitters = j.brightness > 0 || j.contrast > 0 || j.saturation > 0 || j.hue > 0;
  int64_t n = options_.width * options_.decode.channels, step = cpu::kResampleRows;
  cpu::ResampleCall call{w.pixels.data, w.pixels.stride, w.pixels.channels, &w.columns, &w.rows};
  w.scratch.resize(static_cast<size_t>(cpu::resample_scratch_words(call)));
  w.image.resize(static_cast<size_t>((jitters ? options_.height : step) * n));
  for (int64_t y = 0; y < options_.height; y += step) {
    uint8_t* rows = w.image.data() + (jitters ? y * n : 0);
    int64_t count = std::min(step, options_.height - y);
    cpu::resample_rows(call, y, count, w.scratch.data(), rows, n);
    for (int64_t r = 0; r < count && !jitters; ++r) write_row(rows + r * n, y + r, w, out);
  }
  if (!jitters) return;
  change_colors(w.draw, w.image.data());
  for (int64_t y = 0; y < options_.height; ++y) write_row(w.image.data() + y * n, y, w, out);
}

}  // namespace deft::data
