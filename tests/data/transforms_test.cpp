#if defined(DEFT_HAS_PNG) && defined(DEFT_HAS_JPEG)
#include "data/transforms.h"

#include <array>
#include <cmath>
#include <set>
#include <thread>

#include "image_files.h"
#include "io/safetensors.h"
#include "kernels/cpu/image/image_color.h"
#include "kernels/cpu/image/image_resample.h"
#include "ops/all_ops.h"
#include "source_dir.h"

namespace deft::data {
namespace {

ImageOptions bytes_of(int64_t height, int64_t width, Cut cut, Filter filter = Filter::bilinear) {
  ImageOptions o;
  o.height = height;
  o.width = width;
  o.cut = cut;
  o.filter = filter;
  o.dtype = DType::u8;
  return o;
}

template <class T = uint8_t>
std::vector<T> run(const Picture& p, const ImageOptions& o, SampleRng rng = {1, 0, 0}) {
  ImageOptions options = o;
  options.decode.channels = static_cast<int>(p.channels);
  ImageTransform transform(options);
  ImageWorkspace work;
  std::vector<T> out(static_cast<size_t>(o.height * o.width * p.channels));
  transform.use(p.view(), rng, work);
  transform.write(work, out.data());
  return out;
}
template <class T = uint8_t>
std::vector<T> run_file(const std::string& file, const ImageOptions& o, SampleRng rng = {1, 0, 0}) {
  ImageTransform transform(o);
  ImageWorkspace work;
  std::vector<T> out(static_cast<size_t>(o.height * o.width * o.decode.channels));
  transform.decode(encoded(file), rng, work);
  transform.write(work, out.data());
  return out;
}

// One picture, sample after sample: cut, flipped and coloured in another way each time.
TEST(Transforms, EverySampleIsChangedInItsOwnWay) {
  Picture p = make_picture(40, 50);
  ImageOptions o = bytes_of(16, 16, Cut::random);
  o.flip = 0.5;
  o.jitter = {0.4, 0.4, 0.4, 0.1};
  std::set<std::vector<uint8_t>> made;
  for (int64_t sample = 0; sample < 20; ++sample) made.insert(run(p, o, SampleRng(1, 0, sample)));
  EXPECT_EQ(made.size(), 20u);
  EXPECT_EQ(run(p, o, SampleRng(1, 0, 3)), run(p, o, SampleRng(1, 0, 3)));
}

// ---- Resizing against exact arithmetic

double filter_value(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}
struct Tap {
  int64_t at;
  double weight;
};
std::vector<Tap> exact_taps(Filter filter, int64_t in, int64_t out, int64_t i) {
  double step = static_cast<double>(in) / static_cast<double>(out), scale = std::max(1.0, step), sum = 0;
  double center = (static_cast<double>(i) + 0.5) * step;
  std::vector<Tap> taps;
  for (int64_t k = 0; k < in; ++k) {
    double w = filter_value(filter, (static_cast<double>(k) + 0.5 - center) / scale);
    if (w != 0) taps.push_back({k, w});
    sum += w;
  }
  for (Tap& t : taps) t.weight /= sum;
  return taps;
}
double exact_value(const Picture& p, const std::vector<Tap>& ys, const std::vector<Tap>& xs, int64_t c) {
  double sum = 0;
  for (const Tap& y : ys)
    for (const Tap& x : xs) sum += y.weight * x.weight * p.at(x.at, y.at)[c];
  return std::clamp(sum, 0.0, 255.0);
}

TEST(Transforms, ResizeIsWithinTheBoundOfExactArithmetic) {
  for (Filter filter : {Filter::bilinear, Filter::bicubic}) {
    for (int64_t channels : {1, 3}) {
      for (auto [w, h, out_w, out_h] : std::vector<std::array<int64_t, 4>>{{37, 29, 16, 11},
                                                                           {37, 29, 37, 29},
                                                                           {20, 31, 53, 64},
                                                                           {1, 1, 5, 4},
                                                                           {1, 40, 7, 3},
                                                                           {40, 1, 3, 7},
                                                                           {200, 150, 9, 2},
                                                                           {64, 48, 23, 23},
                                                                           {300, 5, 1, 1},
                                                                           {45, 45, 28, 30}}) {
        Picture p = make_picture(w, h, channels);
        std::vector<uint8_t> out = run(p, bytes_of(out_h, out_w, Cut::none, filter));
        for (int64_t y = 0; y < out_h; ++y) {
          std::vector<Tap> ys = exact_taps(filter, h, out_h, y);
          for (int64_t x = 0; x < out_w; ++x) {
            std::vector<Tap> xs = exact_taps(filter, w, out_w, x);
            double bound = 0.5 + 0x1p-7 * (1 + static_cast<double>(xs.size() + ys.size()));
            if (filter == Filter::bicubic) bound = 0.5 + 1.5 * (bound - 0.5);
            for (int64_t c = 0; c < channels; ++c) {
              int found = out[static_cast<size_t>((y * out_w + x) * channels + c)];
              ASSERT_NEAR(found, exact_value(p, ys, xs, c), bound)
                  << w << " x " << h << " to " << out_w << " x " << out_h << " at " << x << " " << y;
            }
          }
        }
      }
    }
  }
}

// Extremes stay extremes: weights sum to exactly 1.
TEST(Transforms, FlatPicturesStayFlat) {
  for (int value : {0, 1, 127, 254, 255}) {
    Picture p{300, 200, 3, std::vector<uint8_t>(300 * 200 * 3, static_cast<uint8_t>(value))};
    for (Filter filter : {Filter::bilinear, Filter::bicubic})
      for (int64_t size : {1, 3, 50, 224, 500})
        for (uint8_t v : run(p, bytes_of(size, size + 1, Cut::random, filter))) ASSERT_EQ(v, value);
  }
}

NamedTensors fixture() {
  return io::load_safetensors(deft::test::source_dir() + "/tests/fixtures/images.safetensors").tensors;
}
Tensor find(const NamedTensors& all, const std::string& name) {
  for (const NamedTensor& t : all)
    if (t.name == name) return t.tensor;
  ADD_FAILURE() << name;
  return {};
}
Picture picture_of(const Tensor& t) {
  const uint8_t* p = t.data<uint8_t>();
  return {t.size(1), t.size(0), t.size(2), {p, p + t.numel()}};
}
int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  return largest;
}

// PIL rounds to bytes between the two directions, and cuts off there what a cubic overshoots.
TEST(Transforms, ResizeLikePil) {
  NamedTensors all = fixture();
  Picture p = picture_of(find(all, "picture"));
  for (auto [h, w] : std::vector<std::array<int64_t, 2>>{{20, 24}, {47, 61}, {7, 90}, {100, 33}, {1, 1}, {94, 122}}) {
    std::string size = std::to_string(h) + "x" + std::to_string(w);
    EXPECT_LE(largest_difference(run(p, bytes_of(h, w, Cut::none)), picture_of(find(all, "bilinear_" + size)).pixels),
              1);
    EXPECT_LE(largest_difference(run(p, bytes_of(h, w, Cut::none, Filter::bicubic)),
                                 picture_of(find(all, "bicubic_" + size)).pixels),
              6);
  }
  ImageOptions center = bytes_of(32, 36, Cut::center);
  center.resize = 40;
  EXPECT_LE(largest_difference(run(p, center), picture_of(find(all, "center")).pixels), 1);
}

TEST(Transforms, FilesLikePil) {
  NamedTensors all = fixture();
  for (const auto& entry : std::filesystem::directory_iterator(deft::test::source_dir() + "/tests/fixtures/images")) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::string file{std::istreambuf_iterator<char>(in), {}}, name = entry.path().filename();
    Picture expected = picture_of(find(all, name));
    std::vector<uint8_t> out = run_file(file, bytes_of(expected.height, expected.width, Cut::none));
    EXPECT_LE(largest_difference(out, expected.pixels), name == "ink.jpg" ? 1 : 0) << name;
  }
}

// ---- Cuts

TEST(Transforms, PartOfAFileIsThatOfTheWholePicture) {
  std::string file = write_jpeg(make_picture(150, 110));
  Picture whole = plain_decode(file);
  for (Cut cut : {Cut::random, Cut::center, Cut::none}) {
    ImageOptions o = bytes_of(40, 48, cut);
    o.resize = 64;
    o.flip = 0.5;
    o.reduce = false;
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(run_file(file, o, {3, 1, i}), run(whole, o, {3, 1, i})) << i;
  }
}

// A reduced decode is a box filter before the triangle: close to the full one on smooth pictures, and in the same
// place.
TEST(Transforms, ReducedDecodeIsClose) {
  Picture p{403, 301, 3, {}};
  for (int64_t y = 0; y < p.height; ++y)
    for (int64_t x = 0; x < p.width; ++x)
      for (int c = 0; c < 3; ++c)
        p.pixels.push_back(static_cast<uint8_t>(128 + 60 * std::sin(0.03 * static_cast<double>(x) + c) +
                                                60 * std::cos(0.04 * static_cast<double>(y))));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    std::string file = write_jpeg(p, {.horizontal = 1, .vertical = 1, .quality = 98, .orientation = orientation});
    for (int64_t size : {31, 48, 100}) {
      ImageOptions o = bytes_of(size, size, Cut::none), full = o;
      full.reduce = false;
      EXPECT_LE(largest_difference(run_file(file, o), run_file(file, full)), 4) << orientation << " " << size;
    }
  }
}

TEST(Transforms, BestReduction) {
  ImageDecoder decoder;
  std::string jpeg = write_jpeg(make_picture(64, 64)), png = write_png(make_picture(64, 64));
  decoder.open(encoded(jpeg), {});
  EXPECT_EQ(decoder.best_reduction(448, 448, {224, 224}), 2);
  EXPECT_EQ(decoder.best_reduction(447.9, 448, {224, 224}), 1);
  EXPECT_EQ(decoder.best_reduction(896, 5000, {224, 224}), 4);
  EXPECT_EQ(decoder.best_reduction(4000, 4000, {224, 224}), 8);
  decoder.open(encoded(png), {});
  EXPECT_EQ(decoder.best_reduction(4000, 4000, {224, 224}), 1);
}

// Pixels hold their place, so that the part can be read off the result.
struct Part {
  int64_t x, y, width, height;
};
Part part_drawn(int64_t w, int64_t h, const ImageOptions& options, int64_t index) {
  Picture p{w, h, 3, {}};
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      p.pixels.insert(p.pixels.end(), {static_cast<uint8_t>(x), static_cast<uint8_t>(y), 0});
  ImageOptions o = options;
  o.height = o.width = 512;  // the corners are the first and last pixel of the part
  std::vector<uint8_t> out = run(p, o, {5, 0, index});
  int64_t x = out[0], y = out[1], last = static_cast<int64_t>(out.size());
  return {x, y, out[static_cast<size_t>(last - 3)] - x + 1, out[static_cast<size_t>(last - 2)] - y + 1};
}

TEST(Transforms, RandomParts) {
  ImageOptions o = bytes_of(1, 1, Cut::random);
  double area = 0, left = 0, right = 0;
  constexpr int kCount = 400;
  for (int64_t i = 0; i < kCount; ++i) {
    Part p = part_drawn(200, 150, o, i);
    double a = static_cast<double>(p.width * p.height) / (200 * 150),
           r = static_cast<double>(p.width) / static_cast<double>(p.height);
    ASSERT_GT(a, 0.07);
    ASSERT_LE(a, 1);
    ASSERT_GT(r, 0.72);
    ASSERT_LT(r, 1.38);
    area += a / kCount;
    left += static_cast<double>(p.x) / kCount;
    right += static_cast<double>(200 - p.x - p.width) / kCount;
  }
  EXPECT_NEAR(area, 0.434, 0.03);  // torchvision's mean of 20,000: large ones do not fit in every shape
  EXPECT_NEAR(left, right, 8);
  o.scale = {1, 1};  // fits in no shape but its own: the middle with the nearest ratio
  Part wide = part_drawn(200, 20, o, 0), high = part_drawn(20, 200, o, 0), same = part_drawn(100, 100, o, 0);
  EXPECT_EQ(std::tuple(wide.x, wide.y, wide.width, wide.height), std::tuple(86, 0, 27, 20));
  EXPECT_EQ(std::tuple(high.x, high.y, high.width, high.height), std::tuple(0, 86, 20, 27));
  EXPECT_EQ(std::tuple(same.x, same.y, same.width, same.height), std::tuple(0, 0, 100, 100));
}

TEST(Transforms, Flip) {
  Picture p = make_picture(30, 20);
  ImageOptions o = bytes_of(20, 30, Cut::none);
  EXPECT_EQ(run(p, o), p.pixels);
  o.flip = 1;
  std::vector<uint8_t> out = run(p, o);
  for (int64_t y = 0; y < 20; ++y)
    for (int64_t x = 0; x < 30; ++x) ASSERT_EQ(std::memcmp(out.data() + (y * 30 + x) * 3, p.at(29 - x, y), 3), 0);
  o.flip = 0.25;
  int flipped = 0;
  for (int64_t i = 0; i < 1000; ++i) flipped += run(p, o, {1, 0, i}) == out;
  EXPECT_NEAR(flipped, 250, 45);
}

// ---- Types and layouts

TEST(Transforms, TypesAndLayouts) {
  Picture p = make_picture(50, 40);
  ImageOptions o = bytes_of(17, 19, Cut::random);
  o.flip = 0.5;
  for (int64_t i = 0; i < 4; ++i) {
    SampleRng rng(1, 2, i);
    std::vector<uint8_t> bytes = run(p, o, rng);
    ImageOptions f = o, low = o, planes = o, byte_planes = o;
    f.dtype = planes.dtype = DType::f32;
    low.dtype = DType::bf16;
    planes.channels_last = byte_planes.channels_last = false;
    std::vector<float> floats = run<float>(p, f, rng), first = run<float>(p, planes, rng);
    std::vector<BFloat16> halves = run<BFloat16>(p, low, rng);
    std::vector<uint8_t> bytes_first = run(p, byte_planes, rng);
    for (size_t k = 0; k < bytes.size(); ++k) {
      size_t c = k % 3, place = c * 17 * 19 + k / 3;
      float mean = static_cast<float>(o.mean[c] * 255), scale = static_cast<float>(1 / (o.std[c] * 255));
      float expected = (static_cast<float>(bytes[k]) - mean) * scale;
      ASSERT_EQ(floats[k], expected);
      ASSERT_NEAR(expected, (bytes[k] / 255.0 - o.mean[c]) / o.std[c], 1e-6);
      ASSERT_EQ(static_cast<float>(halves[k]), static_cast<float>(BFloat16(expected)));
      ASSERT_EQ(first[place], expected);
      ASSERT_EQ(bytes_first[place], bytes[k]);
    }
  }
  EXPECT_EQ(ImageTransform(o).field().shape, (Shape{17, 19, 3}));
  o.channels_last = false;
  EXPECT_EQ(ImageTransform(o).field().shape, (Shape{3, 17, 19}));
}

TEST(Transforms, WritesNothingBeyondItsPlace) {
  Picture p = make_picture(50, 40);
  for (int64_t width : {1, 2, 5, 16, 31}) {
    for (bool last : {false, true}) {
      ImageOptions o = bytes_of(3, width, Cut::none);
      o.channels_last = last;
      ImageTransform transform(o);
      ImageWorkspace work;
      SampleRng rng(1, 0, 0);
      std::vector<uint8_t> out(static_cast<size_t>(3 * width * 3 + 64), 0xAB);
      transform.use(p.view(), rng, work);
      transform.write(work, out.data());
      for (size_t k = out.size() - 64; k < out.size(); ++k) ASSERT_EQ(out[k], 0xAB);
    }
  }
}

// ---- Colours

TEST(Transforms, BlendsAndGrays) {
  Picture p = make_picture(23, 11), level = p, gray = p;
  int64_t count = 23 * 11;
  constexpr int32_t kFactor = 91750;  // 1.4
  double mean = 0;
  cpu::blend_with_level(level.pixels.data(), count, 100, kFactor);
  cpu::blend_with_gray(gray.pixels.data(), count, kFactor);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* v = p.pixels.data() + 3 * i;
    double g = 0.299 * v[0] + 0.587 * v[1] + 0.114 * v[2];
    mean += g / static_cast<double>(count);
    for (int64_t c = 0; c < 3; ++c) {
      auto at = static_cast<size_t>(3 * i + c);
      EXPECT_NEAR(level.pixels[at], std::clamp(100 + 1.4 * (v[c] - 100), 0.0, 255.0), 0.51);
      EXPECT_NEAR(gray.pixels[at], std::clamp(g + 1.4 * (v[c] - g), 0.0, 255.0), 1);
    }
  }
  EXPECT_NEAR(cpu::mean_gray(p.pixels.data(), count), mean, 1);
  std::vector<uint8_t> grays(static_cast<size_t>(count));
  cpu::blend_with_gray(p.pixels.data(), count, 0);
  cpu::to_gray(p.pixels.data(), count, grays.data());
  for (int64_t i = 0; i < count; ++i) EXPECT_EQ(grays[static_cast<size_t>(i)], p.pixels[static_cast<size_t>(3 * i)]);
}

std::array<double, 3> turned_hue(const uint8_t* p, double turn) {
  double high = std::max({p[0], p[1], p[2]}), low = std::min({p[0], p[1], p[2]}), d = high - low;
  if (d == 0) return {low, low, low};
  double h = high == p[0] ? (p[1] - p[2]) / d : high == p[1] ? 2 + (p[2] - p[0]) / d : 4 + (p[0] - p[1]) / d;
  h = std::fmod(h + 6 * turn + 12, 6);
  auto channel = [&](double n) {  // HSV to RGB
    double k = std::fmod(n + h, 6);
    return high - d * std::clamp(std::min(k, 4 - k), 0.0, 1.0);
  };
  return {channel(5), channel(3), channel(1)};
}

TEST(Transforms, HueIsTurned) {
  Picture p = make_picture(41, 13);
  for (double turn : {-0.5, -0.2, -0.01, 0.0, 0.1, 1.0 / 3, 0.5}) {
    Picture out = p;
    cpu::turn_hue(out.pixels.data(), 41 * 13, static_cast<int32_t>(std::lround(turn * 65536)));
    for (int64_t i = 0; i < 41 * 13; ++i) {
      auto expected = turned_hue(p.pixels.data() + 3 * i, turn);
      for (size_t c = 0; c < 3; ++c) ASSERT_NEAR(out.pixels[static_cast<size_t>(3 * i) + c], expected[c], 0.6) << turn;
    }
    if (turn == 0) {
      EXPECT_EQ(out, p);
    }
  }
}

TEST(Transforms, JitterDrawsWithinItsBounds) {
  Picture p{8, 8, 3, std::vector<uint8_t>(8 * 8 * 3, 100)};
  ImageOptions o = bytes_of(8, 8, Cut::none);
  o.jitter.brightness = 0.3;
  int low = 255, high = 0;
  for (int64_t i = 0; i < 300; ++i) {
    int v = run(p, o, {1, 0, i})[0];
    low = std::min(low, v);
    high = std::max(high, v);
  }
  EXPECT_NEAR(low, 70, 2);
  EXPECT_NEAR(high, 130, 2);
  o.jitter = {0, 0.5, 0.5, 0.5};  // a flat gray picture has nothing for these to change
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(run(p, o, {1, 0, i}), p.pixels);
  o.jitter = {0.4, 0.4, 0.4, 0.1};
  Picture colors = make_picture(8, 8);
  EXPECT_NE(run(colors, o, {1, 0, 0}), run(colors, o, {1, 0, 1}));
}

// ---- Chance

TEST(Transforms, SamePixelsForTheSameNumbers) {
  std::string file = write_jpeg(make_picture(120, 90));
  ImageOptions o = training_images(32);
  o.jitter = {0.4, 0.4, 0.4, 0.1};
  std::vector<std::vector<float>> one, four(24);
  for (int64_t i = 0; i < 24; ++i) one.push_back(run_file<float>(file, o, {9, 1, i}));
  EXPECT_NE(one[0], one[1]);
  EXPECT_NE(one[0], run_file<float>(file, o, {9, 2, 0}));
  EXPECT_NE(one[0], run_file<float>(file, o, {8, 1, 0}));
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 23 - t; i >= 0; i -= 4) four[static_cast<size_t>(i)] = run_file<float>(file, o, {9, 1, i});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(one, four);
}

// The same bits on every machine: integers, and floats by single operations.
TEST(Transforms, KnownBits) {
  ImageOptions o = training_images(24);
  o.jitter = {0.4, 0.4, 0.4, 0.1};
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < 8; ++i)
    for (float v : run<float>(make_picture(90, 70), o, {4, 0, i})) {
      uint32_t bits;
      std::memcpy(&bits, &v, 4);
      hash = (hash ^ bits) * 1099511628211u;
    }
  EXPECT_EQ(hash, 3204217847853128180u);
}

TEST(Transforms, WrongOptions) {
  auto make = [](auto change) {
    ImageOptions o;
    change(o);
    ImageTransform{o};
  };
  EXPECT_THROW(make([](ImageOptions& o) { o.height = 0; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.cut = Cut::center, o.resize = 100; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.scale = {0.5, 0.2}; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.ratio = {0, 1}; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.flip = 1.5; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.jitter.hue = 0.6; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.jitter.contrast = -1; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.decode.channels = 1, o.jitter.contrast = 1; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.decode.channels = 4; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.std[1] = 0; }), ValueError);
  EXPECT_THROW(make([](ImageOptions& o) { o.dtype = DType::i64; }), DTypeError);
  EXPECT_NO_THROW(make([](ImageOptions&) {}));
}

}  // namespace
}  // namespace deft::data
#endif
