#include "data/order.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "runtime/random.h"

namespace deft::data {

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch) {
  DEFT_CHECK(size >= 0 && epoch >= 0, ValueError, "epoch_order: size {} and epoch {} must not be negative", size,
             epoch);
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  PhiloxState draw{seed, static_cast<uint64_t>(epoch)};
  for (uint64_t i = order.size(); i > 1; --i) {
    auto words = philox(draw, i);
    uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
    // The high half of the 128-bit product: below i, and even to 2^-64 i.
    uint64_t j = static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * i >> 64);
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

}  // namespace deft::data
