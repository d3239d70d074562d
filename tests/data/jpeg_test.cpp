#ifdef DEFT_HAS_JPEG
#include "data/jpeg.h"

#include <fmt/format.h>

#include "data/image_decode.h"
#include "image_files.h"

namespace deft::data {
namespace {

Picture decode_part(JpegDecoder& decoder, const std::string& file, int reduction, const PixelRect& rect,
                    const DecodeOptions& options = {}) {
  decoder.open(encoded(file), options);
  return copy_of(decoder.decode(reduction, rect));
}
Picture decode_all(const std::string& file, const DecodeOptions& options = {}) {
  ImageDecoder decoder;
  decoder.open(encoded(file), options);
  return copy_of(decoder.decode());
}
double mean_difference(const Picture& a, const Picture& b) {
  double sum = 0;
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(int{a.pixels[i]} - int{b.pixels[i]});
  return sum / static_cast<double>(a.pixels.size());
}

struct Kind {
  const char* name;
  JpegOptions options;
};
const Kind kKinds[] = {
    {"4:2:0", {}},
    {"4:4:4", {.horizontal = 1, .vertical = 1}},
    {"4:2:2", {.horizontal = 2, .vertical = 1}},
    {"4:4:0", {.horizontal = 1, .vertical = 2}},
    {"4:1:1", {.horizontal = 4, .vertical = 1}},
    {"progressive", {.progressive = true}},
    {"progressive 4:4:4", {.horizontal = 1, .vertical = 1, .progressive = true}},
    {"RGB", {.horizontal = 1, .vertical = 1, .space = JCS_RGB}},
    {"restarts", {.restart_rows = 1}},
    {"arithmetic", {.arithmetic = true}},
};

// Every part of every kind, at every reduction: the pixels of the whole picture, bit by bit.
TEST(Jpeg, PartsAreThoseOfTheWholePicture) {
  JpegDecoder decoder;
  for (ImageSize size : {ImageSize{131, 97}, ImageSize{64, 48}, ImageSize{33, 200}, ImageSize{17, 5}}) {
    Picture picture = make_picture(size.width, size.height);
    for (const Kind& kind : kKinds) {
      std::string file = write_jpeg(picture, kind.options);
      for (int reduction : {1, 2, 4, 8}) {
        Picture whole = plain_decode(file, reduction);
        ASSERT_EQ(whole.width, reduced_side(size.width, reduction));
        if (reduction == 1) {
          EXPECT_LT(mean_difference(whole, picture), 12) << kind.name;
        }
        for (uint64_t i = 0; i < 40; ++i) {
          auto random = philox({7, i}, static_cast<uint64_t>(reduction));
          auto below = [&](int word, int64_t n) {
            return static_cast<int64_t>(random[static_cast<size_t>(word)] % static_cast<uint64_t>(n));
          };
          PixelRect r{below(0, whole.width), below(1, whole.height), 0, 0};
          r.width = 1 + below(2, whole.width - r.x);
          r.height = 1 + below(3, whole.height - r.y);
          if (i == 0) r = {0, 0, whole.width, whole.height};
          ASSERT_EQ(decode_part(decoder, file, reduction, r), part_of(whole, r))
              << kind.name << " 1/" << reduction << " of " << size.width << " x " << size.height << ": " << r.x << " "
              << r.y << " " << r.width << " " << r.height;
        }
      }
    }
  }
}

TEST(Jpeg, SmallestPictures) {
  for (ImageSize size : {ImageSize{1, 1}, ImageSize{1, 40}, ImageSize{40, 1}, ImageSize{8, 8}, ImageSize{9, 7}}) {
    std::string file = write_jpeg(make_picture(size.width, size.height));
    EXPECT_EQ(decode_all(file), plain_decode(file)) << size.width << " x " << size.height;
  }
}

TEST(Jpeg, GrayBothWays) {
  Picture gray = make_picture(50, 40, 1);
  std::string file = write_jpeg(gray);
  EXPECT_EQ(decode_all(file, {.channels = 1}), plain_decode(file, 1, JCS_GRAYSCALE));
  EXPECT_EQ(decode_all(file), plain_decode(file, 1, JCS_RGB));
  std::string color = write_jpeg(make_picture(50, 40));
  EXPECT_EQ(decode_all(color, {.channels = 1}), plain_decode(color, 1, JCS_GRAYSCALE));
}

TEST(Jpeg, InkBecomesColour) {
  for (J_COLOR_SPACE space : {JCS_CMYK, JCS_YCCK}) {
    Picture ink = make_picture(40, 30, 4);
    std::string file = write_jpeg(ink, {.horizontal = 1, .vertical = 1, .space = space, .quality = 98});
    Picture stored = plain_decode(file, 1, JCS_CMYK), out = decode_all(file), gray = decode_all(file, {.channels = 1});
    ASSERT_EQ(out.channels, 3);
    for (int64_t i = 0; i < 40 * 30; ++i) {
      double c[3];
      for (size_t k = 0; k < 3; ++k) {
        size_t at = static_cast<size_t>(4 * i);
        c[k] = stored.pixels[at + k] / 255.0 * stored.pixels[at + 3];
        EXPECT_NEAR(out.pixels[static_cast<size_t>(3 * i) + k], c[k], 0.51);
      }
      EXPECT_NEAR(gray.pixels[static_cast<size_t>(i)], 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2], 2);
    }
  }
}

// Shown pixel (x, y) of the picture stored under orientation 1 to 8.
TEST(Jpeg, Orientation) {
  Picture picture = make_picture(37, 22);
  for (int o = 1; o <= 8; ++o) {
    std::string file = write_jpeg(picture, {.orientation = o});
    Picture stored = plain_decode(file), out = decode_all(file);
    EXPECT_EQ(decode_all(file, {.orient = false}), stored);
    int64_t w = stored.width, h = stored.height;
    ASSERT_EQ(out.width, o < 5 ? w : h);
    for (int64_t y = 0; y < out.height; ++y) {
      for (int64_t x = 0; x < out.width; ++x) {
        const int64_t places[8][2] = {{x, y}, {w - 1 - x, y}, {w - 1 - x, h - 1 - y}, {x, h - 1 - y},
                                      {y, x}, {y, h - 1 - x}, {w - 1 - y, h - 1 - x}, {w - 1 - y, x}};
        ASSERT_EQ(std::memcmp(out.at(x, y), stored.at(places[o - 1][0], places[o - 1][1]), 3), 0) << o;
      }
    }
    // A part of the turned picture, also a reduced one.
    for (int reduction : {1, 2}) {
      ImageDecoder decoder;
      decoder.open(encoded(file), {});
      Picture all = copy_of(decoder.decode(
          reduction, {0, 0, decoder.reduced(reduction).size.width, decoder.reduced(reduction).size.height}));
      decoder.open(encoded(file), {});
      PixelRect r{2, 3, 5, 4};
      EXPECT_EQ(copy_of(decoder.decode(reduction, r)), part_of(all, r));
    }
  }
}

// Where the corner of a turned picture lies when it is no multiple of the reduction.
TEST(Jpeg, CornerOfReducedPictures) {
  ImageDecoder decoder;
  for (int o = 1; o <= 8; ++o) {
    std::string file = write_jpeg(make_picture(37, 22), {.orientation = o});
    decoder.open(encoded(file), {});
    ImageDecoder::Reduced r = decoder.reduced(8);
    double x = 5 - 37 / 8.0, y = 3 - 22 / 8.0;  // what is beyond the stored picture
    bool turned = o >= 5, last_x = o == 2 || o == 3 || o == 7 || o == 8, last_y = o == 3 || o == 4 || o == 6 || o == 7;
    EXPECT_EQ(r.size, (turned ? ImageSize{3, 5} : ImageSize{5, 3})) << o;
    EXPECT_EQ(turned ? r.y : r.x, last_x ? x : 0) << o;
    EXPECT_EQ(turned ? r.x : r.y, last_y ? y : 0) << o;
  }
}

TEST(Jpeg, OrientationAfterFillBytes) {
  const std::string file = write_jpeg(make_picture(16, 8), {.orientation = 6});
  const size_t app1 = file.find("\xFF\xE1");
  ASSERT_NE(app1, file.npos);
  for (size_t count : {1, 2, 5}) {
    std::string filled = file;
    filled.insert(app1, count, '\xFF');
    EXPECT_EQ(decode_all(filled), decode_all(file)) << count;
  }
}

TEST(Jpeg, BrokenExifCountsAsNone) {
  std::string file = write_jpeg(make_picture(16, 8), {.orientation = 6});
  size_t at = file.find("Exif");
  for (size_t i = at; i < at + 32; ++i) {
    std::string broken = file;
    broken[i] = static_cast<char>(broken[i] ^ 0xFF);
    Picture out = decode_all(broken);
    EXPECT_TRUE(out.width == 16 || out.width == 8);
  }
}

TEST(Jpeg, TruncatedFilesAreErrors) {
  Picture picture = make_picture(90, 70);
  for (const Kind& kind : {kKinds[0], kKinds[5]}) {
    std::string whole_file = write_jpeg(picture, kind.options);
    for (size_t size = 0; size < whole_file.size(); size += size < 700 ? 7 : 97) {
      std::string part = whole_file.substr(0, size);
      std::string error = load_error([&] { decode_all(part); });
      EXPECT_NE(error.find("test"), error.npos) << error;
      EXPECT_NE(error.find(" at byte "), error.npos) << error;
      // A part at the top, which is complete in most of these, is an error too.
      JpegDecoder decoder;
      EXPECT_NE(load_error([&] { decode_part(decoder, part, 1, {0, 0, 20, 10}); }), "no error") << size;
    }
  }
  std::string file = write_jpeg(picture), cut = file.substr(0, file.size() * 3 / 4);
  EXPECT_EQ(load_error([&] { decode_all(cut); }),
            fmt::format("jpeg: test: data at byte {}: Premature end of JPEG file", cut.size()));
  Picture damaged = decode_all(cut, {.allow_damaged = true}), whole = plain_decode(write_jpeg(picture));
  PixelRect top{0, 0, 90, 16};
  EXPECT_EQ(part_of(damaged, top), part_of(whole, top));
}

TEST(Jpeg, DamagedDataIsAnError) {
  std::string file = write_jpeg(make_picture(90, 70));
  size_t scan = file.find("\xFF\xDA");
  file.replace(scan + 200, 2, "\xFF\xD3");  // a marker amid the data
  EXPECT_NE(load_error([&] { decode_all(file); }), "no error");
  EXPECT_NO_THROW(decode_all(file, {.allow_damaged = true}));
}

TEST(Jpeg, PixelCapIsCheckedByTheHeader) {
  std::string file = write_jpeg(make_picture(100, 50));
  EXPECT_NO_THROW(decode_all(file, {.most_pixels = 5000}));
  EXPECT_EQ(load_error([&] { decode_all(file, {.most_pixels = 4999}); }),
            "jpeg: test: size at byte 0: 100 x 50 are more than the 4999 pixels that are allowed "
            "(DecodeOptions::most_pixels)");
  size_t frame = file.find("\xFF\xC0");  // says it is 65000 x 65000: no memory is taken for it
  file.replace(frame + 5, 4, "\xFD\xE8\xFD\xE8");
  EXPECT_NE(load_error([&] { decode_all(file); }).find("65000 x 65000 are more"), std::string::npos);
}

TEST(Jpeg, OneDecoderSurvivesErrors) {
  JpegDecoder decoder;
  std::string nothing = "\xFF\xD8\xFF nothing", good = write_jpeg(make_picture(60, 60)),
              bad = good.substr(0, good.size() / 2);
  Picture whole = plain_decode(good);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THROW(decode_part(decoder, bad, 1, {0, 0, 60, 60}), LoadError);
    EXPECT_THROW(decoder.open(encoded(nothing), {}), LoadError);
    decoder.open(encoded(good), {});  // opened, never decoded
    EXPECT_EQ(decode_part(decoder, good, 1, {0, 0, 60, 60}), whole);
  }
}

TEST(Jpeg, EndlessScansAreRefused) {
  std::string file = write_jpeg(make_picture(16, 16), {.progressive = true});
  size_t scan = file.rfind("\xFF\xDA");
  std::string last = file.substr(scan, file.size() - 2 - scan), many = file.substr(0, file.size() - 2);
  for (int i = 0; i < 600; ++i) many += last;
  std::string error = load_error([&] { decode_all(many + "\xFF\xD9", {.allow_damaged = true}); });
  EXPECT_NE(error.find("more than 500 scans"), error.npos) << error;
}

}  // namespace
}  // namespace deft::data
#endif
