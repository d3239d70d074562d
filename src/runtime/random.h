// Philox4x32-10 counters: the i-th number of a draw depends only on (seed, offset, i), never on threads or device.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace deft {

struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;  // draws made so far; each draw of any size takes one
  bool operator==(const PhiloxState&) const = default;
};

// Four 32-bit words for block `index` of draw `state`.
constexpr std::array<uint32_t, 4> philox(PhiloxState state, uint64_t index) {
  uint32_t c[4] = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                   static_cast<uint32_t>(state.offset), static_cast<uint32_t>(state.offset >> 32)};
  uint32_t k0 = static_cast<uint32_t>(state.seed), k1 = static_cast<uint32_t>(state.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[1] = static_cast<uint32_t>(p1);
    c[3] = static_cast<uint32_t>(p0);
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c[0], c[1], c[2], c[3]};
}

// [0, 1) with 24 bits.
constexpr float uniform_from_bits(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
// [0, 1) with 53 bits, from two words.
constexpr double uniform_from_bits(uint32_t high, uint32_t low) {
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

// A stream of draws. Taking one is atomic, so threads may share a generator.
class Generator {
 public:
  explicit constexpr Generator(PhiloxState state) : seed_(state.seed), offset_(state.offset) {}
  PhiloxState state() const { return {seed_.load(std::memory_order_relaxed), offset_.load(std::memory_order_relaxed)}; }
  void set_state(PhiloxState state) {
    seed_.store(state.seed, std::memory_order_relaxed);
    offset_.store(state.offset, std::memory_order_relaxed);
  }
  PhiloxState next_draw() {
    return {seed_.load(std::memory_order_relaxed), offset_.fetch_add(1, std::memory_order_relaxed)};
  }

 private:
  std::atomic<uint64_t> seed_, offset_;
};

// The process-wide generator, or the one a RngScope put in its place on this thread (and on pool threads it uses).
Generator& generator();
void manual_seed(uint64_t seed);  // restarts the current generator
PhiloxState rng_state();
void set_rng_state(PhiloxState state);

// Draws inside the scope come from a generator of its own; the outer one does not move.
class RngScope {
 public:
  explicit RngScope(PhiloxState state);
  ~RngScope();
  RngScope(const RngScope&) = delete;
  RngScope& operator=(const RngScope&) = delete;

 private:
  Generator own_;
  Generator* outer_;
};

}  // namespace deft
