#include "io/zip_writer.h"

#include <algorithm>

#include "base/check.h"
#include "io/crc32.h"
#include "io/load_options.h"
#include "io/tensor_names.h"
#include "io/zip.h"

namespace deft::io {

namespace {

constexpr uint64_t kMost16 = 0xffff, kMost32 = 0xffffffff;
constexpr uint16_t kZip64Version = 45;  // the first with zip64
constexpr uint16_t kUtf8 = 1 << 11;
constexpr uint16_t kDate = 1 << 5 | 1;  // 1 January 1980: equal contents give equal files

template <class... T>
std::string packed(T... values) {
  std::string out;
  (out.append(reinterpret_cast<const char*>(&values), sizeof(T)), ...);
  return out;
}
uint16_t cut16(uint64_t v) { return static_cast<uint16_t>(std::min(v, kMost16)); }
uint32_t cut32(uint64_t v) { return static_cast<uint32_t>(std::min(v, kMost32)); }

// Sizes that do not fit in 32 bits, in the order of the format.
std::string zip64_extra(std::initializer_list<uint64_t> values) {
  std::string fields;
  for (uint64_t v : values)
    if (v >= kMost32) fields += packed(v);
  return fields.empty() ? fields : packed(uint16_t{1}, static_cast<uint16_t>(fields.size())) + fields;
}

}  // namespace

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes.data(), bytes.size());
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const std::span<const std::byte>> parts) {
  const char* wrong = member_name_fault(name, LoadLimits().name_bytes);
  DEFT_CHECK(!wrong, ValueError, "save: the member name '{}' {}", printable(name), wrong);
  Entry e{name, 0, 0, at_};
  for (auto part : parts) {
    e.crc = crc32(e.crc, part);
    e.size += part.size();
  }
  std::string extra = zip64_extra({e.size, e.size});
  write(packed(uint32_t{0x04034b50}, kZip64Version, kUtf8, uint16_t{0}, uint16_t{0}, kDate, e.crc, cut32(e.size),
               cut32(e.size), static_cast<uint16_t>(name.size()), static_cast<uint16_t>(extra.size())) +
        name + extra);
  for (auto part : parts) {
    file_.write(part.data(), part.size());
    at_ += part.size();
  }
  entries_.push_back(std::move(e));
}

void ZipWriter::commit() {
  uint64_t directory = at_, count = entries_.size();
  for (const Entry& e : entries_) {
    std::string extra = zip64_extra({e.size, e.size, e.header});
    write(packed(uint32_t{0x02014b50}, kZip64Version, kZip64Version, kUtf8, uint16_t{0}, uint16_t{0}, kDate, e.crc,
                 cut32(e.size), cut32(e.size), static_cast<uint16_t>(e.name.size()),
                 static_cast<uint16_t>(extra.size()), uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0},
                 cut32(e.header)) +
          e.name + extra);
  }
  uint64_t bytes = at_ - directory, end = at_;
  if (count >= kMost16 || bytes >= kMost32 || directory >= kMost32)
    write(packed(uint32_t{0x06064b50}, uint64_t{44}, kZip64Version, kZip64Version, uint32_t{0}, uint32_t{0}, count,
                 count, bytes, directory) +
          packed(uint32_t{0x07064b50}, uint32_t{0}, end, uint32_t{1}));
  write(packed(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, cut16(count), cut16(count), cut32(bytes),
               cut32(directory), uint16_t{0}));
  std::vector<std::string_view> names;
  for (const Entry& e : entries_) names.push_back(e.name);
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  DEFT_CHECK(twice == names.end(), ValueError, "save: there are two members '{}'", *twice);
  file_.commit();
}

}  // namespace deft::io
