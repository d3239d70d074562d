// Zip archives put together by hand, right or wrong.
#pragma once

#include "io/crc32.h"
#include "io_util.h"

namespace deft::io {

struct ZipMember {
  std::string name, data;
  // What the headers say; tests change it. `packed` is what lies in the file.
  std::string packed = data;
  uint16_t method = 0, flags = 0;
  uint64_t size = data.size(), packed_size = packed.size();
  uint32_t crc = crc32(0, bytes_of(data));
  std::string local_name = name;
  uint16_t local_method = method;
  std::string local_extra = {}, extra = {};
  uint32_t local_crc = crc, local_packed = static_cast<uint32_t>(packed_size), local_size = static_cast<uint32_t>(size);
  int64_t offset = -1;  // of the local header, if not where it lies
};

struct ZipBuilder {
  std::vector<ZipMember> members;
  std::string comment = {}, before_directory = {}, after_directory = {};
  int count_error = 0;
  int64_t directory_shift = 0;
  std::vector<uint64_t> headers = {}, data_offsets = {};  // where they were put
  uint64_t directory = 0, end = 0;

  std::string build() {
    std::string out, entries;
    for (const ZipMember& m : members) {
      headers.push_back(out.size());
      out += little(uint32_t{0x04034b50}, uint16_t{20}, m.flags, m.local_method, uint32_t{0}, m.local_crc,
                    m.local_packed, m.local_size, static_cast<uint16_t>(m.local_name.size()),
                    static_cast<uint16_t>(m.local_extra.size())) +
             m.local_name + m.local_extra;
      data_offsets.push_back(out.size());
      out += m.packed;
      entries += little(uint32_t{0x02014b50}, uint16_t{20}, uint16_t{20}, m.flags, m.method, uint32_t{0}, m.crc,
                        static_cast<uint32_t>(m.packed_size), static_cast<uint32_t>(m.size),
                        static_cast<uint16_t>(m.name.size()), static_cast<uint16_t>(m.extra.size()), uint16_t{0},
                        uint16_t{0}, uint16_t{0}, uint32_t{0},
                        static_cast<uint32_t>(m.offset < 0 ? headers.back() : static_cast<uint64_t>(m.offset))) +
                 m.name + m.extra;
    }
    out += before_directory;
    directory = out.size();
    out += entries + after_directory;
    end = out.size();
    auto count = static_cast<uint16_t>(static_cast<int>(members.size()) + count_error);
    out += little(uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, count, count, static_cast<uint32_t>(entries.size()),
                  static_cast<uint32_t>(static_cast<int64_t>(directory) + directory_shift),
                  static_cast<uint16_t>(comment.size()));
    return out + comment;
  }
};

}  // namespace deft::io
