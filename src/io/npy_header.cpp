#include "io/npy_header.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "io/byte_reader.h"
#include "io/checked_math.h"
#include "io/tensor_names.h"

namespace deft::io {

namespace {

struct TypeCode {
  std::string_view code;  // kind and bytes of an element
  DType dtype;
};
constexpr TypeCode kTypeCodes[] = {{"f4", DType::f32}, {"f8", DType::f64}, {"f2", DType::f16}, {"i1", DType::i8},
                                   {"u1", DType::u8},  {"i4", DType::i32}, {"i8", DType::i64}, {"b1", DType::boolean}};

class DictReader {
 public:
  DictReader(std::string_view text, uint64_t at, const Source& source, const LoadLimits& limits)
      : text_(text), base_(at), source_(source), limits_(limits) {}

  NpyHeader read() {
    NpyHeader h;
    uint32_t seen = 0;
    expect('{', "header");
    while (!take('}')) {
      uint64_t at = offset();
      std::string_view key = quoted("header");
      constexpr std::string_view keys[] = {"descr", "fortran_order", "shape"};
      auto which = static_cast<size_t>(std::find(std::begin(keys), std::end(keys), key) - std::begin(keys));
      if (which == std::size(keys)) source_.fail("header", at, "the key '{}' is unknown", printable(key));
      if (seen >> which & 1) source_.fail("header", at, "the key '{}' is there twice", key);
      seen |= 1u << which;
      expect(':', "header");
      if (which == 0) descr(h);
      if (which == 1) h.fortran = boolean();
      if (which == 2) shape();
      if (!take(',')) {
        expect('}', "header");
        break;
      }
    }
    if (seen != 7)
      source_.fail("header", offset(), "the key '{}' is missing",
                   !(seen & 1)   ? "descr"
                   : !(seen & 2) ? "fortran_order"
                                 : "shape");
    skip_space();
    if (at_ < text_.size()) fail_here("header", "nothing but spaces");
    for (uint64_t s : sizes_) h.sizes.push_back(static_cast<int64_t>(s));
    auto bits = checked_bits(sizes_, 8 * size_of(h.dtype));
    if (!bits) source_.fail("shape", shape_at_, "the number of elements overflows");
    h.bytes = *bits / 8;
    return h;
  }

 private:
  uint64_t offset() {
    skip_space();
    return base_ + at_;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail_here(Field field, const char* expected) {
    if (at_ >= text_.size()) source_.fail(field, base_ + at_, "the header ends here, expected {}", expected);
    source_.fail(field, base_ + at_, "found '{}', expected {}", printable(text_.substr(at_, 1)), expected);
  }
  void expect(char c, Field field) {
    const char expected[] = {'\'', c, '\'', 0};
    if (!take(c)) fail_here(field, expected);
  }
  std::string_view quoted(Field field) {
    skip_space();
    char quote = at_ < text_.size() ? text_[at_] : 0;
    if (quote != '\'' && quote != '"') fail_here(field, "a string");
    size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) source_.fail(field, base_ + at_, "the string does not end");
    std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
    if (content.find('\\') != content.npos) source_.fail(field, base_ + at_, "escapes are not part of the format");
    at_ = end + 1;
    return content;
  }
  bool boolean() {
    skip_space();
    for (std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    fail_here("fortran_order", "True or False");
  }

  void descr(NpyHeader& h) {
    uint64_t at = offset();
    if (at_ < text_.size() && text_[at_] == '[')
      source_.unsupported("descr", at, "arrays of records cannot be read; save each field as an array of its own");
    std::string_view d = quoted("descr");
    if (d.size() < 2 || std::string_view("<>|=").find(d[0]) == std::string_view::npos)
      source_.fail("descr", at, "'{}' is no type of the format", printable(d));
    std::string_view code = d.substr(1);
    auto type = std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes), [&](auto& t) { return t.code == code; });
    if (type == std::end(kTypeCodes)) fail_type(d, at);
    h.dtype = type->dtype;
    h.swapped = d[0] == '>' && size_of(h.dtype) > 1;
  }
  [[noreturn]] void fail_type(std::string_view d, uint64_t at) {
    if (d[1] == 'O')
      source_.unsupported("descr", at, "'{}' means pickled Python objects, which are never read; save plain arrays", d);
    if (d.size() < 3 || std::string_view("iufcSUVmMa").find(d[1]) == std::string_view::npos)
      source_.fail("descr", at, "'{}' is no type of the format", printable(d));
    source_.unsupported(
        "descr", at, "Deft has no type '{}'; convert the array to one of f4, f8, f2, i1, u1, i4, i8, b1", printable(d));
  }

  void shape() {
    shape_at_ = offset();
    expect('(', "shape");
    bool comma = true;
    while (!take(')')) {
      if (!comma) fail_here("shape", "',' or ')'");
      uint64_t at = offset(), size = 0;
      const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
      auto [stop, error] = std::from_chars(begin, end, size);
      if (error == std::errc::result_out_of_range || (error == std::errc() && size > limits_.dim))
        source_.fail("shape", at, "a size is larger than {}, the limit", limits_.dim);
      if (error != std::errc()) fail_here("shape", "a whole number that is not negative");
      at_ += static_cast<size_t>(stop - begin);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
      sizes_.push_back(size);
      uint64_t most = std::min<uint64_t>(limits_.rank, kMaxDims);
      if (sizes_.size() > most) source_.fail("shape", at, "more than {} dimensions", most);
      comma = take(',');
    }
    if (sizes_.size() == 1 && !comma) source_.fail("shape", shape_at_, "a number in brackets, expected a tuple");
  }

  std::string_view text_;
  uint64_t base_;
  const Source& source_;
  const LoadLimits& limits_;
  size_t at_ = 0;
  std::vector<uint64_t> sizes_;
  uint64_t shape_at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> start, uint64_t file_bytes, const Source& source,
                           const LoadLimits& limits) {
  ByteReader in(start, source);
  if (in.text(6, "magic") != "\x93NUMPY") source.fail("magic", 0, "the file does not begin with \\x93NUMPY");
  uint8_t major = in.u8("version"), minor = in.u8("version");
  if (major < 1 || major > 3 || minor != 0)
    source.fail("version", 6, "version {}.{}; versions 1.0, 2.0 and 3.0 are known", major, minor);
  uint64_t bytes = major == 1 ? in.u16("header length") : in.u32("header length");
  if (bytes > limits.npy_header_bytes)
    source.fail("header length", 8, "the header has {} bytes; the limit is {}", bytes, limits.npy_header_bytes);
  if (bytes > file_bytes - in.offset())
    source.fail("header length", 8, "the header has {} bytes, but the file ends at byte {}", bytes, file_bytes);
  uint64_t at = in.offset();
  NpyHeader h = DictReader(in.text(bytes, "header"), at, source, limits).read();
  h.data = at + bytes;
  if (h.bytes != file_bytes - h.data)
    source.fail("data", h.data, "{} bytes of data, but the array of shape {} needs {}", file_bytes - h.data,
                to_string(h.sizes), h.bytes);
  return h;
}

std::string npy_header_text(DType dtype, const Shape& sizes) {
  auto type = std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes), [&](auto& t) { return t.dtype == dtype; });
  std::string text =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", size_of(dtype) == 1 ? '|' : '<',
                  type->code, fmt::join(sizes.begin(), sizes.end(), ", "), sizes.size() == 1 ? "," : "");
  size_t total = (10 + text.size() + 1 + 63) / 64 * 64;
  text.resize(total - 10 - 1, ' ');
  text += '\n';
  auto length = static_cast<uint16_t>(text.size());
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(length & 0xff);
  start += static_cast<char>(length >> 8);
  return start + text;
}

}  // namespace deft::io
