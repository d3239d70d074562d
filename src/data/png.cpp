#include "data/png.h"

#ifdef DEFT_HAS_PNG
#include <png.h>

#include <csetjmp>
#include <cstdio>
#endif

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/exif.h"
#include "data/image_error.h"
#include "io/crc32.h"
#include "kernels/cpu/image/image_color.h"

namespace deft::data {

#ifdef DEFT_HAS_PNG

namespace {

constexpr uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr size_t kChunkHead = 8, kChunkTail = 4, kHeaderBytes = 13;
constexpr png_uint_32 kMostChunks = 1000;              // of the kinds libpng keeps
constexpr png_alloc_size_t kMostChunkBytes = 8 << 20;  // unpacked

uint32_t png_word(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 | static_cast<uint32_t>(p[2]) << 8 |
         p[3];
}

// Pixels of 1 to 4 channels (gray, gray and alpha, RGB, RGBA).
struct PngRow {
  const uint8_t* pixels;
  int channels;
};

uint8_t mix(int value, int alpha, int background) {
  return static_cast<uint8_t>((value * alpha + background * (255 - alpha) + 127) / 255);
}

void to_rgb(const PngRow& row, int64_t count, const DecodeOptions& o, uint8_t* out) {
  bool color = row.channels >= 3, mixed = row.channels % 2 == 0 && o.composite_alpha;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* p = row.pixels + i * row.channels;
    for (int c = 0; c < 3; ++c) {
      int v = p[color ? c : 0];
      out[3 * i + c] =
          mixed ? mix(v, p[row.channels - 1], o.background[static_cast<size_t>(c)]) : static_cast<uint8_t>(v);
    }
  }
}

}  // namespace

struct PngDecoder::State {
  State() = default;
  ~State() { close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Runs calls of libpng: false if one failed. Nothing in `calls` may have a destructor, since errors jump over it.
  template <class Calls>
  bool guarded(const Calls& calls) {
    if (setjmp(jump)) return false;
    calls();
    return true;
  }
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    State& s = *static_cast<State*>(png_get_error_ptr(png));
    std::snprintf(s.message, sizeof(s.message), "%s", text);
    std::longjmp(s.jump, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, size_t n) {
    State& s = *static_cast<State*>(png_get_io_ptr(png));
    if (n > s.image.bytes.size() - s.at) png_error(png, "the file is truncated");
    std::memcpy(to, s.image.bytes.data() + s.at, n);
    s.at += n;
  }

  void walk_chunks(ImageHeader& header);
  void start(const PixelRect& rect);
  bool read_rows(const PixelRect& rect);
  void keep(const uint8_t* row, int64_t y, const PixelRect& rect);
  void close() { png_destroy_read_struct(&png, &info, nullptr); }

  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  char message[128]{};
  EncodedImage image;
  DecodeOptions options;
  size_t at = 0;  // in the file
  int channels = 0, passes = 0;
  std::vector<uint8_t> rows, pixels, line;  // as libpng gives them; as wanted; one row of colours
};

// Every chunk must be in the file as it was written, up to the end marker. libpng checks only what it decodes.
void PngDecoder::State::walk_chunks(ImageHeader& header) {
  std::span<const uint8_t> bytes = image.bytes;
  for (size_t p = sizeof(kSignature); !options.allow_damaged || p + kChunkHead <= bytes.size();) {
    if (p + kChunkHead > bytes.size())
      fail(image, "png", "chunks", bytes.size(), "ends without an end chunk: the file is truncated");
    uint64_t length = png_word(bytes.data() + p), left = bytes.size() - p - kChunkHead;
    const uint8_t* type = bytes.data() + p + 4;
    if (length + kChunkTail > left) {
      if (options.allow_damaged) return;
      fail(image, "png", "chunks", p, "a chunk of {} bytes has only {}: the file is truncated", length, left);
    }
    if (options.orient && !std::memcmp(type, "eXIf", 4))
      header.orientation = exif_orientation(bytes.subspan(p + kChunkHead, length));
    const uint32_t expected = png_word(type + 4 + length),
                   found = io::crc32(0, std::as_bytes(bytes.subspan(p + 4, 4 + length)));
    if (found != expected && !options.allow_damaged)
      fail(image, "png", "chunks", p, "the CRC of a chunk is {:08x}, expected {:08x}: the file is damaged", found,
           expected);
    if (!std::memcmp(type, "IEND", 4)) return;
    p += kChunkHead + length + kChunkTail;
  }
}

void PngDecoder::State::start(const PixelRect& rect) {
  at = 0;
  close();
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
  DEFT_CHECK(png, UnsupportedError, "{}: libpng is of another version than its headers, or out of memory", image.name);
  if (guarded([&] {
        info = png_create_info_struct(png);
        if (!info) png_error(png, "out of memory");
        png_set_read_fn(png, this, on_read);
        png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the pixels were counted by open()
        png_set_chunk_cache_max(png, kMostChunks);
        png_set_chunk_malloc_max(png, kMostChunkBytes);
        if (options.allow_damaged) {
          png_set_compression_buffer_size(png, 64);  // libpng gives up what it reads in one go
          png_set_crc_action(png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
        }
        png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // profiles and texts are not used
        png_read_info(png, info);
        png_set_expand(png);
        png_set_scale_16(png);
        passes = png_set_interlace_handling(png);
        png_read_update_info(png, info);
      })) {
    channels = png_get_channels(png, info);
    int64_t kept = passes > 1 ? static_cast<int64_t>(png_get_image_height(png, info)) : 1;
    rows.resize(png_get_rowbytes(png, info) * static_cast<size_t>(kept));
    pixels.assign(static_cast<size_t>(rect.width * rect.height * options.channels), 0);
    return;
  }
  close();
  fail(image, "png", "chunks", at, "{}", message);
}

bool PngDecoder::State::read_rows(const PixelRect& rect) {
  size_t stride = passes > 1 ? png_get_rowbytes(png, info) : 0;
  int64_t end = passes > 1 ? static_cast<int64_t>(png_get_image_height(png, info)) : rect.y + rect.height;
  if (passes > 1) std::fill(rows.begin(), rows.end(), uint8_t{0});
  bool read = guarded([&] {
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t y = 0; y < end; ++y) {
        png_read_row(png, rows.data() + static_cast<size_t>(y) * stride, nullptr);
        if (passes == 1 && y >= rect.y) keep(rows.data(), y, rect);
      }
    }
  });
  if (passes > 1)
    for (int64_t y = rect.y; y < rect.y + rect.height; ++y)
      keep(rows.data() + static_cast<size_t>(y) * stride, y, rect);
  return read;
}

void PngDecoder::State::keep(const uint8_t* row, int64_t y, const PixelRect& rect) {
  uint8_t* out = pixels.data() + (y - rect.y) * rect.width * options.channels;
  PngRow from{row + rect.x * channels, channels};
  if (options.channels == 3 && channels == 3) {
    std::memcpy(out, from.pixels, static_cast<size_t>(rect.width * 3));
  } else if (options.channels == 3) {
    to_rgb(from, rect.width, options, out);
  } else {
    line.resize(static_cast<size_t>(rect.width * 3));
    to_rgb(from, rect.width, options, line.data());
    cpu::to_gray(line.data(), rect.width, out);
  }
}

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

ImageHeader PngDecoder::open(const EncodedImage& image, const DecodeOptions& options) {
  State& s = *state_;
  s.image = image;
  s.options = options;
  std::span<const uint8_t> b = image.bytes;
  if (b.size() < sizeof(kSignature) || std::memcmp(b.data(), kSignature, sizeof(kSignature)) != 0)
    fail(image, "png", "signature", 0, "is not a PNG signature");
  constexpr size_t kHeader = sizeof(kSignature) + kChunkHead;
  if (b.size() < kHeader + kHeaderBytes + kChunkTail ||
      std::memcmp(b.data() + sizeof(kSignature) + 4, "IHDR", 4) != 0 ||
      png_word(b.data() + sizeof(kSignature)) != kHeaderBytes)
    fail(image, "png", "header", sizeof(kSignature), "expected a whole header chunk (IHDR)");
  ImageHeader header{{png_word(b.data() + kHeader), png_word(b.data() + kHeader + 4)}, 1};
  auto [width, height] = header.size;
  if (width < 1 || height < 1 || width > PNG_UINT_31_MAX || height > PNG_UINT_31_MAX)
    fail(image, "png", "size", kHeader, "{} x {} is not a valid image size", width, height);
  if (width > options.most_pixels / height)
    fail(image, "png", "size", kHeader,
         "{} x {} are more than the {} pixels that are allowed (DecodeOptions::most_pixels)", width, height,
         options.most_pixels);
  s.walk_chunks(header);
  return header;
}

PixelView PngDecoder::decode(const PixelRect& rect) {
  State& s = *state_;
  s.start(rect);
  bool read = s.read_rows(rect);
  s.close();
  if (!read && !s.options.allow_damaged) fail(s.image, "png", "data", s.at, "{}", s.message);
  int64_t channels = s.options.channels;
  return {s.pixels.data(), rect.width, rect.height, channels, rect.width * channels};
}

#else

struct PngDecoder::State {};
PngDecoder::PngDecoder() = default;
PngDecoder::~PngDecoder() = default;
ImageHeader PngDecoder::open(const EncodedImage& image, const DecodeOptions&) {
  DEFT_FAIL(UnsupportedError, "{}: this build has no libpng; install libpng-dev and build again", image.name);
}
PixelView PngDecoder::decode(const PixelRect&) { DEFT_FAIL(InternalError, "png: nothing is open"); }

#endif

}  // namespace deft::data
