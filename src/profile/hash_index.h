// Open addressing over the places of a vector: finds the entry of a key without a call or an allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deft::profile {

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

class HashIndex {
 public:
  // The entry for which same(entry) holds, or -1. Only entries with this hash are compared.
  template <class Same>
  int32_t find(uint64_t hash, Same same) const {
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.entry < 0) return -1;
      if (slot.hash == hash && same(slot.entry)) return slot.entry;
    }
  }
  void add(uint64_t hash, int32_t entry) {
    if (++used_ * 2 > slots_.size()) grow();
    place({hash, entry});
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    int32_t entry = -1;
  };
  size_t mask() const { return slots_.size() - 1; }
  void place(const Slot& slot) {
    size_t at = slot.hash & mask();
    while (slots_[at].entry >= 0) at = (at + 1) & mask();
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.entry >= 0) place(slot);
  }
  std::vector<Slot> slots_ = std::vector<Slot>(512);
  size_t used_ = 0;
};

}  // namespace deft::profile
