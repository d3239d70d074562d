// The order of samples in an epoch: a pure function of (seed, epoch, size).
#pragma once

#include <cstdint>
#include <vector>

namespace deft::data {

std::vector<int64_t> epoch_order(int64_t size, uint64_t seed, int64_t epoch);

}  // namespace deft::data
