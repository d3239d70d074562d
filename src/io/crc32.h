// The CRC-32 of zip, PNG and gzip (polynomial 0xedb88320, reflected).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace deft::io {

// `crc` is that of the bytes before, 0 at the start.
uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes);

namespace detail {
uint32_t crc32_portable(uint32_t crc, std::span<const std::byte> bytes);
}  // namespace detail

}  // namespace deft::io
