#include "io/zip.h"

#include <algorithm>

#include "io/byte_reader.h"
#include "io/checked_math.h"
#include "io/crc32.h"
#include "io/tensor_names.h"

#ifdef DEFT_HAS_ZLIB
#include <zlib.h>
#endif

namespace deft::io {

// Note [What makes a zip]
// Readers that look for different things in the same file can be shown different contents. So there is one way to read:
// the file ends with exactly one end record, right before it (or before the zip64 records) ends the directory, and it
// lists every member once; each local header agrees with it, and no two members share a byte.

namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kEntry = 0x02014b50,
                   kLocal = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMax16 = 0xffff, kMax32 = 0xffffffff;
constexpr uint16_t kEncrypted = 1 | 1 << 6 | 1 << 13, kSizesFollow = 1 << 3;

// An end record whose comment reaches the end of the file, by offset. There must be one.
uint64_t find_end_record(const InputFile& file) {
  const Source& source = file.source();
  if (file.size() < kEndBytes) source.fail("end record", 0, "the file is too short to be a zip archive");
  uint64_t tail = std::min(file.size(), kEndBytes + kMax16), start = file.size() - tail;
  std::vector<std::byte> bytes = file.read(start, tail, "end record");
  std::vector<uint64_t> found;
  for (uint64_t i = 0; i + kEndBytes <= tail; ++i) {
    ByteReader in{std::span(bytes).subspan(i), source};
    if (bytes[i] != std::byte{'P'} || in.u32("end record") != kEnd) continue;
    in.bytes(16, "end record");
    if (in.u16("comment length") == tail - i - kEndBytes) found.push_back(start + i);
  }
  if (found.empty())
    source.fail("end record", start, "there is none: the file is no zip archive, or its end is missing");
  if (found.size() > 1) source.fail("end record", found[0], "there are {} of them", found.size());
  return found[0];
}

}  // namespace

const char* member_name_fault(std::string_view name, uint64_t max_bytes) {
  if (const char* wrong = name_fault(name, max_bytes)) return wrong;
  if (name[0] == '/') return "is an absolute path";
  if (name.find('\\') != name.npos) return "holds a backslash";
  for (size_t i = 0; i <= name.size();) {
    size_t end = std::min(name.find('/', i), name.size());
    std::string_view part = name.substr(i, end - i);
    if (part == "..") return "leads out of the archive";
    if (part == "." || (part.empty() && end != name.size())) return "has an empty part";
    i = end + 1;
  }
  return nullptr;
}

ZipArchive::ZipArchive(const InputFile& file) : file_(file) {
  const Source& source = file.source();
  Directory d = find_directory();
  if (d.entries > file.limits().zip_entries)
    source.fail("directory", d.offset, "{} members; the limit is {}", d.entries, file.limits().zip_entries);
  if (d.entries > d.bytes / kEntryBytes)
    source.fail("directory", d.offset, "{} members do not fit in its {} bytes", d.entries, d.bytes);
  directory_ = file.read(d.offset, d.bytes, "directory");
  Source here = source;
  here.base = d.offset;
  ByteReader in(directory_, here);
  entries_.reserve(d.entries);
  for (uint64_t i = 0; i < d.entries; ++i) read_entry(in);
  if (in.left()) here.fail("directory", in.offset(), "{} bytes follow the last of {} members", in.left(), d.entries);
  check_names();
  for (ZipEntry& e : entries_) check_local(e, d.offset);
  check_overlap();
  check_sizes();
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const Source& source = file_.source();
  uint64_t at = find_end_record(file_);
  std::vector<std::byte> bytes = file_.read(at, kEndBytes, "end record");
  Source here = source;
  here.base = at;
  ByteReader in(bytes, here);
  in.u32("end record");
  uint16_t disk = in.u16("disk"), directory_disk = in.u16("disk"), on_disk = in.u16("entries");
  Directory d{};
  d.entries = in.u16("entries");
  d.bytes = in.u32("directory size");
  d.offset = in.u32("directory offset");
  if ((disk && disk != kMax16) || (directory_disk && directory_disk != kMax16) || on_disk != d.entries)
    source.fail("end record", at, "archives in several parts cannot be read");
  uint64_t directory_end = at;
  if (at >= kLocatorBytes) {
    uint32_t signature = 0;
    file_.read(at - kLocatorBytes, &signature, 4, "zip64 locator");
    if (signature == kLocator64) {
      file_.read(at - kLocatorBytes + 8, &directory_end, 8, "zip64 locator");
      d = find_directory64(at, d);
    }
  }
  if (checked_add(d.offset, d.bytes) != directory_end)
    source.fail("directory offset", at,
                "the directory of {} bytes at {} does not end at {}, where the end record begins", d.bytes, d.offset,
                directory_end);
  return d;
}

// The zip64 record replaces fields of the end record that hold their largest value, and repeats the others.
ZipArchive::Directory ZipArchive::find_directory64(uint64_t end_record, const Directory& plain) const {
  const Source& source = file_.source();
  uint64_t locator_at = end_record - kLocatorBytes, at = 0;
  file_.read(locator_at + 8, &at, 8, "zip64 locator");
  if (at > locator_at || locator_at - at < kEnd64Bytes)
    source.fail("zip64 locator", locator_at, "it names byte {}, where no zip64 end record can be", at);
  std::vector<std::byte> bytes = file_.read(at, kEnd64Bytes, "zip64 end record");
  Source here = source;
  here.base = at;
  ByteReader in(bytes, here);
  if (in.u32("zip64 end record") != kEnd64) here.fail("zip64 end record", 0, "it does not begin with its signature");
  uint64_t record_bytes = in.u64("zip64 end record");
  if (record_bytes != locator_at - at - 12)
    here.fail("zip64 end record", 4, "its size is {}, expected {}", record_bytes, locator_at - at - 12);
  in.bytes(4, "versions");
  if (in.u32("disk") || in.u32("disk")) here.fail("zip64 end record", 16, "archives in several parts cannot be read");
  uint64_t on_disk = in.u64("entries");
  Directory d{};
  d.entries = in.u64("entries");
  d.bytes = in.u64("directory size");
  d.offset = in.u64("directory offset");
  bool agree = on_disk == d.entries && (plain.entries == kMax16 || plain.entries == d.entries) &&
               (plain.bytes == kMax32 || plain.bytes == d.bytes) &&
               (plain.offset == kMax32 || plain.offset == d.offset);
  if (!agree) here.fail("zip64 end record", 24, "it disagrees with the end record at {}", end_record);
  return d;
}

void ZipArchive::read_entry(ByteReader& in) {
  const Source& source = file_.source();
  uint64_t at = in.offset();
  Source here = source;
  here.base = in.base();
  if (in.u32("entry") != kEntry) here.fail("directory", at, "no entry begins here: the count of members is wrong");
  in.bytes(4, "versions");
  uint16_t flags = in.u16("flags"), method = in.u16("method");
  in.bytes(4, "time");
  ZipEntry e;
  e.crc = in.u32("crc");
  e.packed = in.u32("packed size");
  e.size = in.u32("size");
  uint16_t name_bytes = in.u16("name length"), extra_bytes = in.u16("extra length");
  uint16_t comment_bytes = in.u16("comment length"), disk = in.u16("disk");
  in.bytes(6, "attributes");
  e.header = in.u32("offset");
  e.name = in.text(name_bytes, "name");
  uint64_t extra_at = here.base + in.offset();
  read_zip64(e, in.bytes(extra_bytes, "extra"), extra_at);
  in.bytes(comment_bytes, "comment");
  if (const char* wrong = member_name_fault(e.name, file_.limits().name_bytes))
    here.fail("name", at + kEntryBytes, "the member name '{}' {}", printable(e.name), wrong);
  if (disk && disk != kMax16) here.fail({"disk", e.name}, at, "archives in several parts cannot be read");
  if (flags & kEncrypted) here.fail({"flags", e.name}, at + 8, "the member is encrypted");
  if (method != 0 && method != 8)
    here.unsupported({"method", e.name}, at + 10, "packed by method {}; only stored (0) and deflated (8) can be read",
                     method);
  e.deflated = method == 8;
  if (!e.deflated && e.packed != e.size)
    here.fail({"size", e.name}, at + 20, "stored in {} bytes, but {} bytes long", e.packed, e.size);
  entries_.push_back(e);
}

void ZipArchive::read_zip64(ZipEntry& e, std::span<const std::byte> extra, uint64_t at) const {
  Source here = file_.source();
  here.base = at;
  ByteReader in(extra, here);
  bool seen = false;
  while (in.left() >= 4) {
    uint16_t id = in.u16("extra"), bytes = in.u16("extra");
    if (bytes > in.left()) here.fail({"extra", e.name}, in.offset(), "{} bytes, but {} are left", bytes, in.left());
    ByteReader part(in.bytes(bytes, "extra"), here);
    if (id != 1) continue;
    if (seen) here.fail({"extra", e.name}, in.offset(), "the zip64 sizes are there twice");
    seen = true;
    for (uint64_t* field : {&e.size, &e.packed, &e.header})
      if (*field == kMax32) *field = part.u64({"zip64 extra", e.name});
  }
  if (!seen && (e.size == kMax32 || e.packed == kMax32 || e.header == kMax32))
    here.fail({"extra", e.name}, 0, "the zip64 sizes are missing");
}

// A local header may leave crc and sizes to a record after the data (flag bit 3). What it says must be what the
// directory says.
void ZipArchive::check_local(ZipEntry& e, uint64_t directory) const {
  const Source& source = file_.source();
  if (e.header > directory || directory - e.header < kLocalBytes)
    source.fail({"offset", e.name}, e.header, "the member begins past the members' part of the file, {} bytes",
                directory);
  std::byte fixed[kLocalBytes];
  file_.read(e.header, fixed, kLocalBytes, {"local header", e.name});
  Source here = source;
  here.base = e.header;
  ByteReader in(fixed, here);
  if (in.u32("local header") != kLocal) here.fail({"offset", e.name}, 0, "no member begins here");
  in.u16("version");
  uint16_t flags = in.u16("flags"), method = in.u16("method");
  in.u32("time");
  uint32_t crc = in.u32("crc");
  ZipEntry local = e;
  local.packed = in.u32("packed size");
  local.size = in.u32("size");
  local.header = 0;
  uint64_t name_bytes = in.u16("name length"), extra_bytes = in.u16("extra length");
  e.data = e.header + kLocalBytes + name_bytes + extra_bytes;
  if (e.data > directory || e.packed > directory - e.data)
    here.fail({"size", e.name}, 0, "{} bytes of data from {} on run into the directory at {}", e.packed, e.data,
              directory);
  std::vector<std::byte> rest = file_.read(e.header + kLocalBytes, name_bytes + extra_bytes, {"local header", e.name});
  std::string_view name(reinterpret_cast<const char*>(rest.data()), name_bytes);
  if (name != e.name) here.fail({"name", e.name}, kLocalBytes, "the local header says '{}'", printable(name));
  if (method != (e.deflated ? 8 : 0)) here.fail({"method", e.name}, 8, "the local header says {}", method);
  if (flags & kEncrypted) here.fail({"flags", e.name}, 6, "the member is encrypted");
  if (local.size == kMax32 || local.packed == kMax32)
    read_zip64(local, std::span(rest).subspan(name_bytes), e.header + kLocalBytes + name_bytes);
  bool follow = flags & kSizesFollow;
  auto agrees = [&](uint64_t here_says, uint64_t directory_says) {
    return here_says == directory_says || (follow && here_says == 0);
  };
  if (!agrees(local.packed, e.packed) || !agrees(local.size, e.size) || !agrees(crc, e.crc))
    here.fail({"size", e.name}, 14,
              "the local header says {} bytes, {} unpacked, CRC {:08x}; the directory {}, {}, {:08x}", local.packed,
              local.size, crc, e.packed, e.size, e.crc);
}

void ZipArchive::check_names() {
  by_name_.reserve(entries_.size());
  for (const ZipEntry& e : entries_) by_name_.push_back(&e);
  std::sort(by_name_.begin(), by_name_.end(), [](auto* a, auto* b) { return a->name < b->name; });
  auto twice =
      std::adjacent_find(by_name_.begin(), by_name_.end(), [](auto* a, auto* b) { return a->name == b->name; });
  if (twice != by_name_.end())
    file_.source().fail("name", twice[1]->header, "there are two members '{}'", (*twice)->name);
}

void ZipArchive::check_overlap() const {
  std::vector<const ZipEntry*> by_place;
  for (const ZipEntry& e : entries_) by_place.push_back(&e);
  std::sort(by_place.begin(), by_place.end(), [](auto* a, auto* b) { return a->header < b->header; });
  for (size_t i = 1; i < by_place.size(); ++i)
    if (by_place[i - 1]->data + by_place[i - 1]->packed > by_place[i]->header)
      file_.source().fail({"offset", by_place[i]->name}, by_place[i]->header, "the member lies over '{}'",
                          by_place[i - 1]->name);
}

void ZipArchive::check_sizes() const {
  const LoadLimits& limits = file_.limits();
  const auto by_file = checked_mul(file_.size(), limits.zip_unpacked_per_byte);
  const uint64_t by_size = by_file ? std::max(*by_file, kFreelyUnpacked) : limits.zip_unpacked_bytes;
  const uint64_t allowed = std::min(limits.zip_unpacked_bytes, by_size);
  uint64_t total = 0;
  for (const ZipEntry& e : entries_) {
    if (!e.deflated) continue;
    auto most = checked_mul(e.packed, limits.zip_ratio);
    if (most && e.size > *most)
      file_.source().fail({"size", e.name}, e.header, "{} bytes unpacked from {}; the limit is {} times as many",
                          e.size, e.packed, limits.zip_ratio);
    auto sum = checked_add(total, e.size);
    if (!sum || *sum > allowed)
      file_.source().fail({"size", e.name}, e.header,
                          "the members unpack to more than {} bytes, the limit for an archive of {}; trust it with "
                          "LoadLimits::zip_unpacked_bytes and zip_unpacked_per_byte, or save it without compression",
                          allowed, file_.size());
    total = *sum;
  }
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  auto e = std::lower_bound(by_name_.begin(), by_name_.end(), name, [](auto* a, auto& b) { return a->name < b; });
  return e != by_name_.end() && (*e)->name == name ? *e : nullptr;
}

void ZipArchive::check_crc(const ZipEntry& e, uint32_t found) const {
  if (found != e.crc)
    file_.source().fail({"data", e.name}, e.data, "the CRC is {:08x}, expected {:08x}: the file is damaged", found,
                        e.crc);
}

void ZipArchive::read(const ZipEntry& e, void* to) const {
  constexpr uint64_t kPiece = 1 << 18;  // still in the cache when its CRC is computed
  auto* p = static_cast<std::byte*>(to);
  if (e.deflated) inflate(e, p);
  uint32_t crc = 0;
  for (uint64_t at = 0; at < e.size; at += kPiece) {
    auto piece = std::span(p + at, std::min(kPiece, e.size - at));
    if (!e.deflated) file_.read(e.data + at, piece.data(), piece.size(), {"data", e.name});
    crc = crc32(crc, piece);
  }
  check_crc(e, crc);
}

Source ZipArchive::source_of(const ZipEntry& e, const char* format) const {
  // Offsets in an unpacked member are from its own start: it has no place in the file.
  return {format, fmt::format("{}/{}", file_.source().file, e.name), e.deflated ? 0 : e.data};
}

#ifdef DEFT_HAS_ZLIB
void ZipArchive::inflate(const ZipEntry& e, std::byte* to) const {
  const Source& source = file_.source();
  constexpr uint64_t kChunk = 1 << 17, kMost = 1 << 30;
  std::vector<std::byte> packed(std::min(kChunk, e.packed));
  z_stream stream{};
  DEFT_CHECK(inflateInit2(&stream, -MAX_WBITS) == Z_OK, OutOfMemoryError, "zip: no memory to unpack '{}'", e.name);
  struct End {
    z_stream* s;
    ~End() { inflateEnd(s); }
  } end{&stream};
  uint64_t in = 0, out = 0;
  std::byte none{};  // zlib wants an address even for an empty member
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (stream.avail_in == 0 && in < e.packed) {
      uint64_t n = std::min<uint64_t>(packed.size(), e.packed - in);
      file_.read(e.data + in, packed.data(), n, {"data", e.name});
      in += n;
      stream.next_in = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_in = static_cast<uInt>(n);
    }
    uint64_t room = std::min(kMost, e.size - out);
    stream.next_out = reinterpret_cast<Bytef*>(room ? to + out : &none);
    stream.avail_out = static_cast<uInt>(room);
    uint64_t given = stream.avail_in;
    status = ::inflate(&stream, Z_NO_FLUSH);
    uint64_t made = room - stream.avail_out;
    out += made;
    if (status != Z_OK && status != Z_STREAM_END)
      source.fail({"data", e.name}, e.data + in - stream.avail_in, "the packed data is damaged, truncated or too long");
    if (status == Z_OK && made == 0 && given == stream.avail_in)
      source.fail({"data", e.name}, e.data + in - stream.avail_in, "the packed data does not end where it should");
  }
  if (out != e.size || in != e.packed || stream.avail_in)
    source.fail({"data", e.name}, e.data, "{} bytes unpacked from {}, expected {} from {}", out, in - stream.avail_in,
                e.size, e.packed);
}
#else
void ZipArchive::inflate(const ZipEntry& e, std::byte*) const {
  file_.source().unsupported({"method", e.name}, e.header, "Deft was built without zlib; store the members unpacked");
}
#endif

}  // namespace deft::io
