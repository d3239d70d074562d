// Scratch memory of one kernel call, given back on scope exit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/memory.h"

namespace deft::cpu {

template <class T>
class Workspace {
 public:
  explicit Workspace(int64_t count)
      : bytes_(static_cast<size_t>(count) * sizeof(T)),
        data_(count > 0 ? static_cast<T*>(allocate_buffer(bytes_)) : nullptr) {}
  ~Workspace() {
    if (data_) free_buffer(data_, bytes_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  size_t bytes_;
  T* data_;
};

}  // namespace deft::cpu
