// A lock for a few instructions at a time. Works with std::lock_guard.
#pragma once

#include <atomic>
#include <thread>

namespace deft {

class SpinLock {
 public:
  void lock() noexcept {
    while (flag_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

}  // namespace deft
