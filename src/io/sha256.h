// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace deft::io {

class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  std::string hex();  // of everything added; ends the computation

 private:
  void blocks(const std::byte* p, size_t count);  // of 64 bytes

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t total_ = 0;  // bytes added
};

namespace detail {
// What everybody has; SHA-256 instructions are used where the CPU has them.
void sha256_blocks_portable(uint32_t* state, const std::byte* p, size_t count);
}  // namespace detail

}  // namespace deft::io
