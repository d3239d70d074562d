#include "kernels/cuda/index/index_sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace deft::cuda {

void sort_pairs(const Encoder& e, int64_t count, int bits, const uint64_t* keys, uint64_t* sorted_keys,
                const int64_t* values, int64_t* sorted_values) {
  size_t bytes = 0;
  auto run = [&](void* temp) {
    check(cub::DeviceRadixSort::SortPairs(temp, bytes, keys, sorted_keys, values, sorted_values, count, 0, bits,
                                          e.stream()),
          e.op(), "a sort");
  };
  run(nullptr);
  Workspace temp(e, bytes);
  run(temp.as<void>());
}

}  // namespace deft::cuda
