#include "data/jpeg.h"

#ifdef DEFT_HAS_JPEG
#include <csetjmp>
#include <cstdio>
//
#include <jerror.h>
#include <jpeglib.h>
#endif

#include <algorithm>
#include <cstring>
#include <vector>

#include "data/exif.h"
#include "data/image_error.h"
#include "kernels/cpu/image/image_color.h"

namespace deft::data {

#ifdef DEFT_HAS_JPEG

namespace {

constexpr int kMostScans = 500;  // a progressive file of a few kB can ask for any number of passes over all pixels

// Warnings of libjpeg mean lost pixels, except those about bytes between markers and odd versions.
bool means_damage(int code) {
  return code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM && code != JWRN_JFIF_MAJOR;
}

// The orientation of the EXIF block among the markers before the pixels.
int find_orientation(std::span<const uint8_t> bytes) {
  constexpr uint8_t kExif[] = {'E', 'x', 'i', 'f', 0, 0};
  constexpr uint8_t kApp1 = 0xE1, kScan = 0xDA;
  for (size_t at = 2; at + 4 <= bytes.size() && bytes[at] == 0xFF;) {
    uint8_t marker = bytes[at + 1];
    if (marker == 0xFF) {  // any number of these may stand before a marker
      ++at;
      continue;
    }
    size_t length = static_cast<size_t>(bytes[at + 2]) << 8 | bytes[at + 3];
    if (marker == kScan || length < 2 || at + 2 + length > bytes.size()) return 1;
    std::span<const uint8_t> body = bytes.subspan(at + 4, length - 2);
    if (marker == kApp1 && body.size() >= sizeof(kExif) && !std::memcmp(body.data(), kExif, sizeof(kExif)))
      return exif_orientation(body.subspan(sizeof(kExif)));
    at += 2 + length;
  }
  return 1;
}

bool has_end_marker(const uint8_t* p, size_t n) {
  for (const uint8_t* end = p + n; p != end; ++p) {
    p = static_cast<const uint8_t*>(std::memchr(p, 0xFF, static_cast<size_t>(end - p)));
    if (!p) return false;
    if (p + 1 < end && p[1] == JPEG_EOI) return true;
  }
  return false;
}

// As PIL reads CMYK files: values are stored inverted, so that ink times black is a colour.
void cmyk_to_rgb(const uint8_t* in, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i)
    for (int c = 0; c < 3; ++c) out[3 * i + c] = static_cast<uint8_t>((in[4 * i + c] * in[4 * i + 3] + 127) / 255);
}

}  // namespace

struct JpegDecoder::State {
  State() {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    errors.output_message = [](j_common_ptr) {};
    progress.progress_monitor = on_progress;
    info.client_data = this;
    if (!guarded([&] { jpeg_create_decompress(&info); })) DEFT_FAIL(UnsupportedError, "libjpeg: {}", message);
    info.progress = &progress;
  }
  ~State() { jpeg_destroy_decompress(&info); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Runs calls of libjpeg: false if one failed. Nothing in `calls` may have a destructor, since errors jump over it.
  template <class Calls>
  bool guarded(const Calls& calls) {
    if (setjmp(jump)) return false;
    calls();
    return true;
  }
  template <class Calls>
  void check(const char* field, const Calls& calls) {
    if (guarded(calls)) return;
    uint64_t at = offset();
    jpeg_abort_decompress(&info);
    fail(image, "jpeg", field, at, "{}", message);
  }
  // How far libjpeg has come; it does not say so when it meets the end.
  uint64_t offset() const {
    if (errors.msg_code == JWRN_JPEG_EOF) return image.bytes.size();
    return info.src && info.src->bytes_in_buffer <= image.bytes.size() ? image.bytes.size() - info.src->bytes_in_buffer
                                                                       : 0;
  }

  static State& of(j_common_ptr info) { return *static_cast<State*>(info->client_data); }
  [[noreturn]] static void on_error(j_common_ptr info) {
    State& s = of(info);
    info->err->format_message(info, s.message);
    std::longjmp(s.jump, 1);
  }
  static void on_message(j_common_ptr info, int level) {
    if (level < 0 && means_damage(info->err->msg_code) && !of(info).options.allow_damaged) on_error(info);
  }
  static void on_progress(j_common_ptr info) {
    State& s = of(info);
    if (s.info.input_scan_number <= kMostScans) return;
    std::snprintf(s.message, sizeof(s.message), "has more than %d scans", kMostScans);
    std::longjmp(s.jump, 1);
  }

  void start(int reduction);
  void keep_columns(const PixelRect& rect);
  void read_rows(const PixelRect& rect);
  void finish();

  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX]{};
  EncodedImage image;
  DecodeOptions options;
  JDIMENSION left = 0, columns = 0;  // what libjpeg decodes of each row
  std::vector<uint8_t> pixels, ink;
};

void JpegDecoder::State::start(int reduction) {
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);
  bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : options.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  check("data", [&] { jpeg_start_decompress(&info); });
}

// libjpeg keeps whole blocks. At the edges of what is kept, the colours of subsampled images are interpolated as at
// the edges of an image, hence the margin.
void JpegDecoder::State::keep_columns(const PixelRect& rect) {
  constexpr int64_t kMargin = 2;
  int64_t low = std::max<int64_t>(0, rect.x - kMargin);
  int64_t high = std::min<int64_t>(info.output_width, rect.x + rect.width + kMargin);
  left = static_cast<JDIMENSION>(low);
  columns = static_cast<JDIMENSION>(high - low);
  if (columns < info.output_width) check("data", [&] { jpeg_crop_scanline(&info, &left, &columns); });
}

void JpegDecoder::State::read_rows(const PixelRect& rect) {
  size_t stride = static_cast<size_t>(columns) * static_cast<size_t>(info.output_components);
  std::vector<uint8_t>& out = info.out_color_space == JCS_CMYK ? ink : pixels;
  out.resize(stride * static_cast<size_t>(rect.height));
  auto top = static_cast<JDIMENSION>(rect.y), end = static_cast<JDIMENSION>(rect.y + rect.height);
  uint8_t* first = out.data();
  check("data", [&] {
    constexpr JDIMENSION kRows = 8;
    if (top > 0) jpeg_skip_scanlines(&info, top);
    while (info.output_scanline < end) {
      JSAMPROW rows[kRows];
      JDIMENSION n = std::min(kRows, end - info.output_scanline);
      for (JDIMENSION i = 0; i < n; ++i) rows[i] = first + (info.output_scanline - top + i) * stride;
      if (jpeg_read_scanlines(&info, rows, n) == 0) ERREXIT(&info, JERR_CANT_SUSPEND);
    }
  });
}

// Rows below the part are not decoded, but they must be there.
void JpegDecoder::State::finish() {
  bool all = info.output_scanline == info.output_height;
  if (all) check("data", [&] { jpeg_finish_decompress(&info); });
  if (all) return;
  bool whole = options.allow_damaged || jpeg_input_complete(&info) || info.unread_marker == JPEG_EOI ||
               has_end_marker(info.src->next_input_byte, info.src->bytes_in_buffer);
  jpeg_abort_decompress(&info);
  if (!whole) fail(image, "jpeg", "data", image.bytes.size(), "ends without an end marker: the file is truncated");
}

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {}
JpegDecoder::~JpegDecoder() = default;

ImageHeader JpegDecoder::open(const EncodedImage& image, const DecodeOptions& options) {
  State& s = *state_;
  jpeg_abort_decompress(&s.info);
  s.image = image;
  s.options = options;
  s.check("header", [&] {
    jpeg_mem_src(&s.info, image.bytes.data(), image.bytes.size());
    jpeg_read_header(&s.info, TRUE);
  });
  ImageHeader header{{s.info.image_width, s.info.image_height}, 1};
  if (header.size.width * header.size.height > options.most_pixels)
    fail(image, "jpeg", "size", 0, "{} x {} are more than the {} pixels that are allowed (DecodeOptions::most_pixels)",
         header.size.width, header.size.height, options.most_pixels);
  if (options.orient) header.orientation = find_orientation(image.bytes);
  return header;
}

PixelView JpegDecoder::decode(int reduction, const PixelRect& rect) {
  State& s = *state_;
  s.start(reduction);
  DEFT_ASSERT(rect.x >= 0 && rect.y >= 0 && rect.width > 0 && rect.height > 0 &&
              rect.x + rect.width <= s.info.output_width && rect.y + rect.height <= s.info.output_height);
  s.keep_columns(rect);
  s.read_rows(rect);
  int64_t channels = s.options.channels, columns = s.columns, skipped = rect.x - s.left;
  if (s.info.out_color_space == JCS_CMYK) {
    s.pixels.resize(static_cast<size_t>(columns * rect.height * 3));
    cmyk_to_rgb(s.ink.data(), columns * rect.height, s.pixels.data());
    if (channels == 1) {
      s.ink.swap(s.pixels);
      cpu::to_gray(s.ink.data(), columns * rect.height, s.pixels.data());
    }
  }
  s.finish();
  return {s.pixels.data() + skipped * channels, rect.width, rect.height, channels, columns * channels};
}

#else

struct JpegDecoder::State {};
JpegDecoder::JpegDecoder() = default;
JpegDecoder::~JpegDecoder() = default;
ImageHeader JpegDecoder::open(const EncodedImage& image, const DecodeOptions&) {
  DEFT_FAIL(UnsupportedError, "{}: this build has no libjpeg-turbo; install libjpeg62-turbo-dev and build again",
            image.name);
}
PixelView JpegDecoder::decode(int, const PixelRect&) { DEFT_FAIL(InternalError, "jpeg: nothing is open"); }

#endif

}  // namespace deft::data
