// A setting of a layer with spatial dimensions: one number for all of them, or one each.
#pragma once

#include <concepts>
#include <initializer_list>

#include "core/shape.h"

namespace deft::nn {

class Sizes {
 public:
  template <std::integral T>
  Sizes(T all) : list_{static_cast<int64_t>(all)} {}
  Sizes(std::initializer_list<int64_t> each) : list_(each) {}
  operator IntList() const { return list_; }
  int size() const { return list_.size(); }
  bool empty() const { return list_.empty(); }
  // The i-th, or the only one.
  int64_t operator[](int i) const { return list_[list_.size() == 1 ? 0 : i]; }
  // "3", or "[3, 5]".
  std::string to_string() const { return list_.size() == 1 ? std::to_string(list_[0]) : deft::to_string(list_); }

 private:
  Shape list_;
};

}  // namespace deft::nn
