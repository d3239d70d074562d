// Plans of library calls by problem: how a GEMM or convolution of given sizes is computed. Bounded; the plan used
// least recently goes first.
#pragma once

#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace deft::cuda {

// Largest power of two up to 16 that divides the address; 256 where `wide` is set and it does.
inline int alignment_of(const void* p, bool wide = false) {
  auto address = reinterpret_cast<uintptr_t>(p);
  if (wide && address % 256 == 0) return 256;
  int bytes = 16;
  while (address % static_cast<uintptr_t>(bytes) != 0) bytes /= 2;
  return bytes;
}

// Thread safe. Keys are compared as bytes.
template <class Key, class Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t limit) : limit_(limit) {}

  std::shared_ptr<const Plan> find(const Key& key) {
    std::lock_guard guard(mutex_);
    auto it = index_.find(key);
    if (it == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return it->second->plan;
  }
  // Keeps the plan that is there already, if another thread was faster.
  void add(const Key& key, std::shared_ptr<const Plan> plan) {
    Entries gone;  // destroyed after the lock is released
    std::lock_guard guard(mutex_);
    if (index_.contains(key)) return;
    order_.push_front({key, std::move(plan)});
    index_.emplace(key, order_.begin());
    if (order_.size() <= limit_) return;
    index_.erase(order_.back().key);
    gone.splice(gone.begin(), order_, std::prev(order_.end()));
  }

 private:
  static_assert(std::has_unique_object_representations_v<Key>, "padding would make equal keys differ");
  struct Entry {
    Key key;
    std::shared_ptr<const Plan> plan;
  };
  using Entries = std::list<Entry>;
  struct Hash {
    size_t operator()(const Key& k) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&k), sizeof(k)});
    }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const { return std::memcmp(&a, &b, sizeof(a)) == 0; }
  };

  size_t limit_;
  std::mutex mutex_;
  Entries order_;  // the one used last in front
  std::unordered_map<Key, typename Entries::iterator, Hash, Equal> index_;
};

}  // namespace deft::cuda
