#include "data/sample_writer.h"

namespace deft::data {

// The high bit keeps these draws apart from those of epoch_order().
SampleRng::SampleRng(uint64_t seed, int64_t epoch, int64_t index)
    : draw_{seed, static_cast<uint64_t>(epoch) | uint64_t{1} << 63}, index_(static_cast<uint64_t>(index)) {}

// Block `block_` of sample `index_`: samples are 2^20 blocks apart, more than any sample draws.
uint32_t SampleRng::bits() {
  if (used_ == 4) {
    words_ = philox(draw_, index_ << 20 | block_++);
    used_ = 0;
  }
  return words_[static_cast<size_t>(used_++)];
}

double SampleRng::uniform() {
  uint32_t high = bits();
  return uniform_from_bits(high, bits());
}

double SampleRng::uniform(double low, double high) { return low + (high - low) * uniform(); }

int64_t SampleRng::below(int64_t n) {
  uint32_t high = bits();
  uint64_t word = static_cast<uint64_t>(high) << 32 | bits();
  // The high half of the 128-bit product: below n, and even to 2^-64 n.
  return static_cast<int64_t>(static_cast<unsigned __int128>(word) * static_cast<uint64_t>(n) >> 64);
}

}  // namespace deft::data
