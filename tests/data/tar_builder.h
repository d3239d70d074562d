// Tar archives put together by hand, right and wrong ones.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace deft::data {

struct TarEntry {
  std::string name, bytes;
  char type = '0';
  std::string size = {};    // the 12 bytes of the field; empty: what belongs there
  std::string prefix = {};  // ustar
  std::string magic = {};   // and version, 8 bytes; empty: ustar's
  bool good_checksum = true;
};

inline std::string octal(uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*llo", digits, static_cast<unsigned long long>(value));
  return text;
}

inline void put(std::string& block, size_t at, const std::string& s) { block.replace(at, s.size(), s); }

inline void set_checksum(std::string& block) {
  put(block, 148, std::string(8, ' '));
  uint64_t sum = 0;
  for (char c : block.substr(0, 512)) sum += static_cast<uint8_t>(c);
  put(block, 148, octal(sum, 6) + std::string("\0 ", 2));
}

inline std::string tar_header(const TarEntry& e) {
  std::string block(512, '\0');
  put(block, 0, e.name.substr(0, 100));
  put(block, 100, std::string("0000644\0", 8));
  put(block, 124, e.size.empty() ? octal(e.bytes.size(), 11) + std::string(1, '\0') : e.size);
  put(block, 136, octal(0, 11));
  block[156] = e.type;
  put(block, 257, e.magic.empty() ? std::string("ustar\00000", 8) : e.magic);
  put(block, 345, e.prefix);
  set_checksum(block);
  if (!e.good_checksum) block[0] ^= 1;
  return block;
}

inline std::string padded(std::string s) {
  s.resize((s.size() + 511) / 512 * 512);
  return s;
}

inline std::string tar_entry(const TarEntry& e) { return tar_header(e) + padded(e.bytes); }
inline std::string tar_end() { return std::string(1024, '\0'); }
inline std::string tar(std::initializer_list<TarEntry> entries) {
  std::string out;
  for (const TarEntry& e : entries) out += tar_entry(e);
  return out + tar_end();
}

inline std::string gnu_magic() { return std::string("ustar  \0", 8); }
inline std::string pax_line(const std::string& key, const std::string& value) {
  std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (length != rest.size() + std::to_string(length).size()) ++length;
  return std::to_string(length) + rest;
}

}  // namespace deft::data
