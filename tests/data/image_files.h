// Pictures and their files for the tests of the decoders, made with libjpeg and libpng.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>
//
#include <jpeglib.h>
#include <png.h>
#include <unistd.h>

#include "base/error.h"
#include "data/encoded_image.h"
#include "runtime/random.h"

namespace deft::data {

struct Picture {
  int64_t width, height, channels;
  std::vector<uint8_t> pixels;
  const uint8_t* at(int64_t x, int64_t y) const { return pixels.data() + (y * width + x) * channels; }
  PixelView view() const { return {pixels.data(), width, height, channels, width * channels}; }
  bool operator==(const Picture&) const = default;
};

// Gradients, a disc and noise: nothing repeats, so that a shift shows.
inline Picture make_picture(int64_t width, int64_t height, int64_t channels = 3, uint64_t seed = 1) {
  Picture p{width, height, channels, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      auto noise = philox({seed, 0}, static_cast<uint64_t>(y * width + x));
      double dx = static_cast<double>(x) - 0.4 * static_cast<double>(width),
             dy = static_cast<double>(y) - 0.6 * static_cast<double>(height);
      bool disc = dx * dx + dy * dy < 0.05 * static_cast<double>(width * height);
      for (int64_t c = 0; c < channels; ++c) {
        double v = 60 + 100 * std::sin(0.02 * static_cast<double>((c + 1) * x + (3 - c) * y)) + (disc ? 90 : 0) +
                   static_cast<double>(noise[static_cast<size_t>(c % 4)] >> 27);
        p.pixels.push_back(static_cast<uint8_t>(std::clamp(v, 0.0, 255.0)));
      }
    }
  }
  return p;
}

inline Picture copy_of(const PixelView& v) {
  Picture p{v.width, v.height, v.channels, {}};
  for (int64_t y = 0; y < v.height; ++y)
    p.pixels.insert(p.pixels.end(), v.data + y * v.stride, v.data + y * v.stride + v.width * v.channels);
  return p;
}
inline Picture part_of(const Picture& p, const PixelRect& r) {
  return copy_of({p.at(r.x, r.y), r.width, r.height, p.channels, p.width * p.channels});
}

struct JpegOptions {
  int horizontal = 2, vertical = 2;  // subsampling of the colours
  bool progressive = false, arithmetic = false;
  J_COLOR_SPACE space = JCS_YCbCr;  // of the file; JCS_YCCK and JCS_CMYK take pixels of 4 channels
  int quality = 90, restart_rows = 0, orientation = 0;
};

// An APP1 block with nothing but the orientation.
inline std::string exif_block(int orientation, bool big_endian = true) {
  auto number = [&](uint32_t v, int bytes) {
    std::string s;
    for (int i = 0; i < bytes; ++i) s += static_cast<char>(v >> 8 * (big_endian ? bytes - 1 - i : i));
    return s;
  };
  return std::string(big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) + number(0x0112, 2) +
         number(3, 2) + number(1, 4) + number(static_cast<uint32_t>(orientation), 2) + number(0, 2) + number(0, 4);
}

inline std::string write_jpeg(const Picture& p, const JpegOptions& o = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(p.width);
  info.image_height = static_cast<JDIMENSION>(p.height);
  info.input_components = static_cast<int>(p.channels);
  info.in_color_space = p.channels == 1 ? JCS_GRAYSCALE : p.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, p.channels == 1 ? JCS_GRAYSCALE : o.space);
  jpeg_set_quality(&info, o.quality, TRUE);
  info.comp_info[0].h_samp_factor = p.channels == 1 ? 1 : o.horizontal;
  info.comp_info[0].v_samp_factor = p.channels == 1 ? 1 : o.vertical;
  info.restart_in_rows = o.restart_rows;
  info.arith_code = o.arithmetic;
  if (o.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (o.orientation) {
    std::string block = std::string("Exif\0\0", 6) + exif_block(o.orientation);
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(block.data()),
                      static_cast<unsigned>(block.size()));
  }
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(p.at(0, info.next_scanline));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return out;
}

// The whole picture by nothing but libjpeg: what all parts are compared with.
inline Picture plain_decode(const std::string& file, int reduction = 1, J_COLOR_SPACE space = JCS_RGB) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);
  info.out_color_space = space;
  jpeg_start_decompress(&info);
  Picture p{info.output_width, info.output_height, info.output_components, {}};
  p.pixels.resize(static_cast<size_t>(p.width * p.height * p.channels));
  while (info.output_scanline < info.output_height) {
    auto* row = const_cast<uint8_t*>(p.at(0, info.output_scanline));
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return p;
}

struct PngOptions {
  int bits = 8;  // per value; 16: two bytes each, 1 to 4: values below 2^bits
  bool interlaced = false;
  std::vector<png_color> palette = {};  // of pictures with 1 channel
  std::vector<uint8_t> palette_alpha = {};
  int orientation = 0;
};

inline std::string write_png(const Picture& p, const PngOptions& o = {}) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp w, png_bytep data, size_t n) {
        static_cast<std::string*>(png_get_io_ptr(w))->append(reinterpret_cast<char*>(data), n);
      },
      nullptr);
  constexpr int kTypes[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA};
  int64_t channels = p.channels / (o.bits == 16 ? 2 : 1);
  png_set_IHDR(png, info, static_cast<png_uint_32>(p.width), static_cast<png_uint_32>(p.height), o.bits,
               o.palette.empty() ? kTypes[channels] : PNG_COLOR_TYPE_PALETTE,
               o.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (!o.palette.empty()) png_set_PLTE(png, info, o.palette.data(), static_cast<int>(o.palette.size()));
  if (!o.palette_alpha.empty())
    png_set_tRNS(png, info, o.palette_alpha.data(), static_cast<int>(o.palette_alpha.size()), nullptr);
  std::string exif = exif_block(o.orientation, false);
  if (o.orientation)
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), reinterpret_cast<png_bytep>(exif.data()));
  png_write_info(png, info);
  png_set_packing(png);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < p.height; ++y) rows.push_back(const_cast<uint8_t*>(p.at(0, y)));
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

inline EncodedImage encoded(const std::string& file, std::string_view name = "test") {
  return {{reinterpret_cast<const uint8_t*>(file.data()), file.size()}, name};
}

// The text of a LoadError, or what happened instead.
inline std::string load_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const LoadError& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("another error: ") + e.what();
  }
  return "no error";
}

// A folder that goes with the object.
struct ImageFiles {
  ImageFiles() {
    static int count = 0;
    root = std::filesystem::temp_directory_path() /
           ("deft_pictures_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(root);
  }
  ~ImageFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return root / name;
  }
  std::filesystem::path root;
};

}  // namespace deft::data
