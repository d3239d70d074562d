// Scratch memory of one kernel call, given back on scope exit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/scratch.h"

namespace deft::cpu {

template <class T>
class Workspace {
 public:
  explicit Workspace(int64_t count) : block_(take_scratch(count > 0 ? static_cast<size_t>(count) * sizeof(T) : 0)) {}
  ~Workspace() { give_scratch(block_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  T* data() const { return static_cast<T*>(block_.data); }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  ScratchBlock block_;
};

}  // namespace deft::cpu
