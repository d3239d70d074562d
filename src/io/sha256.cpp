#include "io/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

#if defined(__aarch64__) && !defined(__clang__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace deft::io {

namespace {

// Fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const std::byte* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return __builtin_bswap32(v);
}

#if defined(__aarch64__) && !defined(__clang__)
[[gnu::target("+crypto")]] void blocks_by_instructions(uint32_t* state, const std::byte* p, size_t count) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; count; --count, p += 64) {
    uint32x4_t w[4], a = abcd, e = efgh;
    for (int i = 0; i < 4; ++i)
      w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p) + 16 * i)));
    for (int i = 0; i < 16; ++i) {
      uint32x4_t &now = w[i % 4], wk = vaddq_u32(now, vld1q_u32(kRound + 4 * i)), before = abcd;
      now = vsha256su1q_u32(vsha256su0q_u32(now, w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
      abcd = vsha256hq_u32(abcd, efgh, wk);
      efgh = vsha256h2q_u32(efgh, before, wk);
    }
    abcd = vaddq_u32(abcd, a);
    efgh = vaddq_u32(efgh, e);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}
#endif

}  // namespace

void detail::sha256_blocks_portable(uint32_t* state, const std::byte* p, size_t count) {
  using std::rotr;
  for (; count; --count, p += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = big_endian(p + 4 * i);
    for (int i = 16; i < 64; ++i) {
      uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
             h = state[7];
    for (int i = 0; i < 64; ++i) {
      uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += sum[i];
  }
}

void Sha256::blocks(const std::byte* p, size_t count) {
#if defined(__aarch64__) && !defined(__clang__)
  static const bool instructions = getauxval(AT_HWCAP) & HWCAP_SHA2;
  if (instructions) return blocks_by_instructions(state_.data(), p, count);
#endif
  detail::sha256_blocks_portable(state_.data(), p, count);
}

void Sha256::add(std::span<const std::byte> bytes) {
  size_t used = total_ % 64;
  total_ += bytes.size();
  if (used) {
    size_t n = std::min(64 - used, bytes.size());
    std::copy_n(bytes.begin(), n, pending_.begin() + static_cast<std::ptrdiff_t>(used));
    if (used + n < 64) return;
    blocks(pending_.data(), 1);
    bytes = bytes.subspan(n);
  }
  size_t whole = bytes.size() / 64;
  blocks(bytes.data(), whole);
  bytes = bytes.subspan(whole * 64);
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

std::string Sha256::hex() {
  uint64_t bits = __builtin_bswap64(total_ * 8);
  std::array<std::byte, 72> end{std::byte{0x80}};
  size_t zeros = (119 - total_ % 64) % 64;  // so that the eight bytes of the length end a block
  std::memcpy(end.data() + 1 + zeros, &bits, 8);
  add(std::span(end).first(1 + zeros + 8));
  std::string text;
  for (uint32_t s : state_) text += fmt::format("{:08x}", s);
  return text;
}

}  // namespace deft::io
