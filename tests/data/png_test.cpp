#if defined(DEFT_HAS_PNG) && defined(DEFT_HAS_JPEG)
#include "data/png.h"

#include "data/image_decode.h"
#include "image_files.h"

namespace deft::data {
namespace {

Picture decode_all(const std::string& file, const DecodeOptions& options = {}) {
  ImageDecoder decoder;
  decoder.open(encoded(file), options);
  return copy_of(decoder.decode());
}
Picture decode_part(const std::string& file, const PixelRect& rect) {
  PngDecoder decoder;
  decoder.open(encoded(file), {});
  return copy_of(decoder.decode(rect));
}
// Each pixel of `p` by a formula.
template <class Formula>
Picture map(const Picture& p, int64_t channels, Formula formula) {
  Picture out{p.width, p.height, channels, {}};
  for (int64_t i = 0; i < p.width * p.height; ++i)
    for (int64_t c = 0; c < channels; ++c)
      out.pixels.push_back(static_cast<uint8_t>(formula(p.pixels.data() + i * p.channels, c)));
  return out;
}

TEST(Png, EveryColourType) {
  for (bool interlaced : {false, true}) {
    PngOptions o{.interlaced = interlaced};
    Picture rgb = make_picture(21, 13), gray = make_picture(21, 13, 1), both = make_picture(21, 13, 2),
            rgba = make_picture(21, 13, 4);
    EXPECT_EQ(decode_all(write_png(rgb, o)), rgb);
    EXPECT_EQ(decode_all(write_png(gray, o)), map(gray, 3, [](auto* p, int64_t) { return p[0]; }));
    EXPECT_EQ(decode_all(write_png(both, o)), map(both, 3, [](auto* p, int64_t) { return p[0]; }));
    EXPECT_EQ(decode_all(write_png(rgba, o)), map(rgba, 3, [](auto* p, int64_t c) { return p[c]; }));
    EXPECT_EQ(decode_all(write_png(gray, o), {.channels = 1}), gray);
    EXPECT_EQ(decode_all(write_png(rgb, o), {.channels = 1}),
              map(rgb, 1, [](auto* p, int64_t) { return (77 * p[0] + 150 * p[1] + 29 * p[2] + 128) >> 8; }));
  }
}

TEST(Png, FewAndManyBits) {
  Picture small = map(make_picture(19, 7, 1), 1, [](auto* p, int64_t) { return p[0] >> 4; });
  EXPECT_EQ(decode_all(write_png(small, {.bits = 4})), map(small, 3, [](auto* p, int64_t) { return p[0] * 17; }));
  Picture bits = map(make_picture(19, 7, 1), 1, [](auto* p, int64_t) { return p[0] >> 7; });
  EXPECT_EQ(decode_all(write_png(bits, {.bits = 1})), map(bits, 3, [](auto* p, int64_t) { return p[0] * 255; }));
  Picture wide = make_picture(19, 7, 6);  // two bytes per value, the high one first
  EXPECT_EQ(decode_all(write_png(wide, {.bits = 16})),
            map(wide, 3, [](auto* p, int64_t c) { return std::lround((p[2 * c] * 256 + p[2 * c + 1]) / 257.0); }));
}

TEST(Png, Palettes) {
  Picture index = map(make_picture(19, 7, 1), 1, [](auto* p, int64_t) { return p[0] % 3; });
  PngOptions o{.palette = {{10, 20, 30}, {200, 100, 0}, {255, 255, 255}}, .palette_alpha = {255, 51}};
  auto color = [&](const uint8_t* p, int64_t c) {
    const png_color& k = o.palette[p[0]];
    return c == 0 ? k.red : c == 1 ? k.green : k.blue;
  };
  EXPECT_EQ(decode_all(write_png(index, o)), map(index, 3, color));
  DecodeOptions on_black{.composite_alpha = true, .background = {0, 0, 0}};
  EXPECT_EQ(decode_all(write_png(index, o), on_black),
            map(index, 3, [&](const uint8_t* p, int64_t c) { return p[0] == 1 ? color(p, c) / 5 : int{color(p, c)}; }));
}

TEST(Png, AlphaOnABackground) {
  Picture rgba = make_picture(21, 13, 4);
  DecodeOptions o{.composite_alpha = true, .background = {250, 0, 120}};
  EXPECT_EQ(decode_all(write_png(rgba), o), map(rgba, 3, [&](auto* p, int64_t c) {
              double a = p[3] / 255.0;
              return std::lround(a * p[c] + (1 - a) * o.background[static_cast<size_t>(c)]);
            }));
}

TEST(Png, PartsAreThoseOfTheWholePicture) {
  for (bool interlaced : {false, true}) {
    for (int64_t channels : {1, 3, 4}) {
      std::string file = write_png(make_picture(31, 17, channels), {.interlaced = interlaced});
      Picture whole = decode_all(file);
      for (PixelRect r :
           {PixelRect{0, 0, 31, 17}, PixelRect{30, 16, 1, 1}, PixelRect{3, 5, 20, 7}, PixelRect{0, 9, 31, 1}})
        EXPECT_EQ(decode_part(file, r), part_of(whole, r));
    }
  }
}

TEST(Png, SmallestPictures) {
  for (ImageSize s : {ImageSize{1, 1}, ImageSize{1, 9}, ImageSize{9, 1}}) {
    Picture p = make_picture(s.width, s.height);
    EXPECT_EQ(decode_all(write_png(p)), p);
    EXPECT_EQ(decode_all(write_png(p, {.interlaced = true})), p);
  }
}

TEST(Png, Orientation) {
  Picture p = make_picture(5, 3), out = decode_all(write_png(p, {.orientation = 6}));
  ASSERT_EQ(out.width, 3);
  for (int64_t y = 0; y < 5; ++y)
    for (int64_t x = 0; x < 3; ++x) EXPECT_EQ(std::memcmp(out.at(x, y), p.at(y, 2 - x), 3), 0);
}

TEST(Png, TruncatedFilesAreErrors) {
  std::string file = write_png(make_picture(60, 50));
  for (size_t size = 0; size < file.size(); size += size < 100 ? 1 : 61) {
    std::string error = load_error([&] { decode_all(file.substr(0, size)); });
    EXPECT_NE(error.find("test"), error.npos) << size << error;
    EXPECT_NE(error.find(" at byte "), error.npos) << error;
    // The first row is complete in most of these, and an error all the same.
    EXPECT_NE(load_error([&] { decode_part(file.substr(0, size), {0, 0, 60, 1}); }), "no error");
  }
  Picture whole = decode_all(file), damaged = decode_all(file.substr(0, file.size() / 2), {.allow_damaged = true});
  PixelRect top{0, 0, 60, 10};
  EXPECT_EQ(part_of(damaged, top), part_of(whole, top));
  EXPECT_EQ(damaged.pixels.back(), 0);
}

TEST(Png, DamagedDataIsAnError) {
  std::string file = write_png(make_picture(60, 50));
  size_t data = file.find("IDAT") + 40;
  file[data] = static_cast<char>(file[data] ^ 0x55);
  EXPECT_NE(load_error([&] { decode_all(file); }).find("png: test: chunks at byte"), std::string::npos);
}

// Also outside of what is decoded, and in chunks that libpng does not look at.
TEST(Png, OneFlippedBitIsAnError) {
  const std::string file = write_png(make_picture(12, 9));
  for (size_t bit = 0; bit < 8 * file.size(); bit += 3) {
    std::string bad = file;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(load_error([&] { decode_part(bad, {0, 0, 12, 1}); }), "no error") << "bit " << bit;
  }
}

TEST(Png, PixelCapIsCheckedByTheHeader) {
  std::string file = write_png(make_picture(100, 50));
  EXPECT_NO_THROW(decode_all(file, {.most_pixels = 5000}));
  EXPECT_EQ(load_error([&] { decode_all(file, {.most_pixels = 4999}); }),
            "png: test: size at byte 16: 100 x 50 are more than the 4999 pixels that are allowed "
            "(DecodeOptions::most_pixels)");
  file.replace(16, 8, "\x7F\xFF\xFF\xFF\x7F\xFF\xFF\xFF");
  EXPECT_NE(load_error([&] { decode_all(file); }).find("2147483647 x 2147483647 are more"), std::string::npos);
  file.replace(16, 4, std::string(4, '\0'));
  EXPECT_NE(load_error([&] { decode_all(file); }).find("0 x 2147483647 is not a valid image size"), std::string::npos);
}

TEST(Png, NeitherFormat) {
  EXPECT_EQ(load_error([] { decode_all("GIF89a"); }),
            "image: test: first bytes at byte 0: are those of neither a JPEG nor a PNG file");
  EXPECT_EQ(load_error([] { decode_all(""); }), "image: test: file at byte 0: is empty");
  const std::pair<std::string, ImageFormat> starts[] = {{"\xFF\xD8\xFF", ImageFormat::jpeg},
                                                        {"\xFF\xD8", ImageFormat::unknown},
                                                        {"\xFF\xD8\xFE\xFF", ImageFormat::unknown},
                                                        {"\x89PNG", ImageFormat::png},
                                                        {"\x89PN", ImageFormat::unknown},
                                                        {"\x89PNg\r\n", ImageFormat::unknown},
                                                        {"", ImageFormat::unknown}};
  for (const auto& [bytes, format] : starts)
    EXPECT_EQ(image_format({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}), format) << bytes;
  EXPECT_THROW(decode_all(write_png(make_picture(2, 2)), {.channels = 2}), ValueError);
}

}  // namespace
}  // namespace deft::data
#endif
