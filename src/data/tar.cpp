#include "data/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "data/tar_source.h"
#include "io/checked_math.h"
#include "io/source.h"
#include "io/tensor_names.h"
#include "io/zip.h"

namespace deft::data {

namespace {

constexpr size_t kBlock = 512;
constexpr size_t kPiece = 16 << 20;  // of a large member: a size is believed as far as there are bytes

// What a field of a header holds up to its first NUL.
std::string_view text_of(std::string_view field) { return field.substr(0, field.find('\0')); }

// Octal digits between spaces and NULs; or, after a byte of 0x80, a big-endian binary number.
uint64_t number_of(std::string_view field, const io::Source& place, const char* name, uint64_t at) {
  auto first = static_cast<uint8_t>(field[0]);
  uint64_t value = 0;
  if (first & 0x80) {
    if (first & 0x40) place.fail(name, at, "the number is negative");
    value = first & 0x3f;
    for (char c : field.substr(1)) {
      if (value >> 56) place.fail(name, at, "the number has more than 64 bits");
      value = value << 8 | static_cast<uint8_t>(c);
    }
    return value;
  }
  size_t begin = std::min(field.find_first_not_of(' '), field.size());
  size_t end = std::min(field.find_first_of(std::string_view(" \0", 2), begin), field.size());
  auto [stop, error] = std::from_chars(field.data() + begin, field.data() + end, value, 8);
  if (begin == end || error != std::errc() || stop != field.data() + end ||
      field.find_first_not_of(std::string_view(" \0", 2), end) != field.npos)
    place.fail(name, at, "'{}' is not an octal number", io::printable(text_of(field)));
  return value;
}

std::string_view without_dots(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return name;
}

}  // namespace

struct TarReader::Header {
  char block[kBlock];
  uint64_t at = 0;
  std::string_view field(size_t begin, size_t bytes) const { return {block + begin, bytes}; }
  char type() const { return block[156]; }
  uint64_t size(const io::Source& place) const { return number_of(field(124, 12), place, "size", at + 124); }
  bool zero() const {
    return std::all_of(block, block + kBlock, [](char c) { return c == 0; });
  }
  // Only POSIX has a prefix; GNU keeps times in its place.
  std::string name() const {
    std::string_view prefix, last = text_of(field(0, 100));
    if (field(257, 6) == std::string_view("ustar\0", 6)) prefix = text_of(field(345, 155));
    return prefix.empty() ? std::string(last) : fmt::format("{}/{}", prefix, last);
  }
  void check_sum(const io::Source& place) const {
    uint64_t stored = number_of(field(148, 8), place, "checksum", at + 148);
    int64_t bytes = 8 * ' ', chars = 8 * ' ';  // old programs add up signed chars
    for (size_t i = 0; i < kBlock; ++i) {
      if (i >= 148 && i < 156) continue;
      bytes += static_cast<uint8_t>(block[i]);
      chars += static_cast<signed char>(block[i]);
    }
    if (stored != static_cast<uint64_t>(bytes) && stored != static_cast<uint64_t>(chars))
      place.fail("checksum", at + 148, "the header has the sum {}, but says {}; the file is broken or no tar archive",
                 bytes, stored);
  }
};

// What the headers before a member say about it.
struct TarReader::Extended {
  std::optional<std::string> name = {};
  std::optional<uint64_t> size = {};
};

TarReader::TarReader(const std::string& path, const TarLimits& limits)
    : path_(path), limits_(limits), source_(open_tar(path)) {}
TarReader::TarReader(std::span<const std::byte> bytes, const std::string& name, const TarLimits& limits)
    : path_(name), limits_(limits), source_(open_tar(bytes)) {}
TarReader::~TarReader() = default;

bool TarReader::gzipped() const { return source_->gzipped(); }

io::Source TarReader::place() const { return {"tar", path_}; }

// Two blocks of zeros end an archive. They may be missing; and others may follow where archives were joined.
bool TarReader::read_header(Header& h) {
  for (;; next_header_ += kBlock) {
    size_t n = source_->read(next_header_, h.block, kBlock);
    if (n == 0 && !source_->may_reach(data_ + size_))
      place().fail("data", data_, "the archive ends inside a member of {} bytes", size_);
    std::fill(h.block + n, h.block + kBlock, '\0');
    if (!h.zero()) {
      if (n < kBlock) place().fail("header", next_header_, "the archive ends after {} of its {} bytes", n, kBlock);
      break;
    }
    if (n < kBlock) return false;
  }
  h.at = next_header_;
  h.check_sum(place());
  next_header_ += kBlock;
  data_ = next_header_, size_ = 0;
  return true;
}

// What follows the header is data of this size.
void TarReader::enter(const Header& h, uint64_t size, const char* field, uint64_t limit) {
  if (size > limit) place().fail(field, h.at + 124, "{} bytes; the limit is {}", size, limit);
  auto end = io::checked_add(data_, size);
  auto next = end ? io::checked_add(*end, kBlock - 1) : end;
  if (!next || *next > INT64_MAX) place().fail(field, h.at + 124, "{} bytes from byte {} overflow", size, data_);
  size_ = size;
  next_header_ = *next / kBlock * kBlock;
}

std::string_view TarReader::read_extended(const Header& h, uint64_t limit, const char* field) {
  enter(h, h.size(place()), field, limit);
  read(extended_);
  return {extended_.data(), extended_.size()};
}

// Lines "LENGTH KEY=VALUE\n"; the length is that of the whole line.
void TarReader::read_pax(const Header& h, Extended& extended) {
  std::string_view rest = read_extended(h, limits_.pax_bytes, "pax header");
  const char* start = rest.data();
  while (!rest.empty()) {
    uint64_t length = 0, at = h.at + kBlock + static_cast<uint64_t>(rest.data() - start);
    auto [space, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    auto digits = static_cast<size_t>(space - rest.data());
    if (error != std::errc() || length > rest.size() || length < digits + 4 || rest[digits] != ' ' ||
        rest[length - 1] != '\n')
      place().fail("pax header", at, "no line of the form 'LENGTH KEY=VALUE'");
    std::string_view line = rest.substr(digits + 1, length - digits - 2);
    size_t equals = line.find('=');
    if (equals == line.npos) place().fail("pax header", at, "a line has no '='");
    std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    rest.remove_prefix(length);
    if (key.starts_with("GNU.sparse."))
      place().unsupported("pax header", at, "sparse files cannot be read; pack them whole");
    if (key == "path") extended.name = value;
    if (key != "size") continue;
    uint64_t size = 0;
    auto [stop, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (wrong != std::errc() || value.empty() || stop != value.data() + value.size())
      place().fail("pax header", at, "the size '{}' is not a number of bytes", io::printable(value));
    extended.size = size;
  }
}

bool TarReader::next(TarMember& member) {
  Extended extended, global;
  for (Header h; read_header(h);) {
    switch (h.type()) {
      case 'x':
        read_pax(h, extended);
        continue;
      case 'g':
        read_pax(h, global);
        if (global.name || global.size) place().fail("pax header", h.at, "one path or size for all members cannot be");
        continue;
      case 'L':
        extended.name = text_of(read_extended(h, limits_.name_bytes + 1, "long name"));
        continue;
      case 'K':  // of the target of a link
        enter(h, h.size(place()), "long link", limits_.pax_bytes);
        continue;
      case '3':
      case '4':
      case '5':
      case '6':
      case 'V':  // devices, directories, pipes, the label of a volume: nothing follows their headers
        extended = {};
        continue;
      case '1':
      case '2':
        place().fail("type", h.at + 156,
                     "'{}' is a link; pack the files themselves (tar --dereference --hard-dereference)",
                     io::printable(h.name()));
      case '\0':
      case '0':
      case '7':
        break;
      default:
        place().unsupported("type", h.at + 156, "'{}' is of the type '{}', which cannot be read",
                            io::printable(h.name()), io::printable(h.field(156, 1)));
    }
    std::string name = extended.name ? *extended.name : h.name();
    enter(h, extended.size ? *extended.size : h.size(place()), "size", limits_.member_bytes);
    extended = {};
    if (h.type() == '\0' && name.ends_with('/')) continue;  // how directories were written before ustar
    member.name = without_dots(name);
    if (const char* wrong = io::member_name_fault(member.name, limits_.name_bytes))
      place().fail("name", h.at, "the member name '{}' {}", io::printable(name), wrong);
    member.size = size_;
    member.data = data_;
    return true;
  }
  if (extended.name || extended.size)
    place().fail("header", next_header_, "the archive ends before the member it announced");
  return false;
}

void TarReader::read(std::vector<char>& bytes) {
  if (size_ == 0) bytes.clear();
  if (!source_->may_reach(data_ + size_))
    place().fail("data", data_, "the archive ends inside a member of {} bytes", size_);
  for (uint64_t done = 0; done < size_;) {
    auto piece = static_cast<size_t>(std::min<uint64_t>(size_ - done, kPiece));
    bytes.resize(done + piece);
    if (source_->read(data_ + done, bytes.data() + done, piece) != piece)
      place().fail("data", data_, "the archive ends inside a member of {} bytes", size_);
    done += piece;
  }
}

}  // namespace deft::data
