// Shapes are small fixed arrays: copying one allocates nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/limits.h"

namespace deft {

class Shape;

// A list of integers passed to a function: `{2, 3}`, a vector or a Shape. Does not own its elements.
class IntList {
 public:
  constexpr IntList() = default;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
  IntList(std::initializer_list<int64_t> l) : p_(l.begin()), n_(l.size()) {}
#pragma GCC diagnostic pop
  IntList(const std::vector<int64_t>& v) : p_(v.data()), n_(v.size()) {}
  IntList(std::span<const int64_t> s) : p_(s.data()), n_(s.size()) {}
  inline IntList(const Shape& s);
  IntList(const int64_t* p, size_t n) : p_(p), n_(n) {}
  size_t size() const { return n_; }
  bool empty() const { return n_ == 0; }
  const int64_t* begin() const { return p_; }
  const int64_t* end() const { return p_ + n_; }
  int64_t operator[](size_t i) const { return p_[i]; }

 private:
  const int64_t* p_ = nullptr;
  size_t n_ = 0;
};

// Throws ShapeError beyond kMaxDims entries.
class Shape {
 public:
  constexpr Shape() = default;
  Shape(std::initializer_list<int64_t> l) : Shape(IntList(l)) {}
  explicit Shape(IntList l);
  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t operator[](int i) const { return d_[i]; }
  int64_t& operator[](int i) { return d_[i]; }
  int64_t back() const { return d_[n_ - 1]; }
  const int64_t* begin() const { return d_; }
  const int64_t* end() const { return d_ + n_; }
  const int64_t* data() const { return d_; }
  int64_t* data() { return d_; }
  void push_back(int64_t v);
  void insert(int at, int64_t v);
  void erase(int at);
  // Grows with `fill` or cuts off. The caller stays within kMaxDims.
  void resize(int n, int64_t fill = 0);
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.n_ != b.n_) return false;
    for (int i = 0; i < a.n_; ++i)
      if (a.d_[i] != b.d_[i]) return false;
    return true;
  }

 private:
  int32_t n_ = 0;
  int64_t d_[kMaxDims] = {};
};
inline IntList::IntList(const Shape& s) : p_(s.data()), n_(static_cast<size_t>(s.size())) {}

// "[2, 3]".
std::string to_string(const Shape& shape);
// Product of the sizes; ShapeError when a size is negative or the count (or its bytes) overflows.
int64_t checked_numel(const Shape& sizes, DType dtype);
// Row-major strides in elements.
Shape contiguous_strides(const Shape& sizes);
// Strides of an N,C,spatial... tensor whose memory order is N,spatial...,C (rank 3, 4 or 5).
Shape channels_last_strides(const Shape& sizes);
// Throws ShapeError naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);
// -1 means the last. IndexError when out of range. Rank 0 accepts -1 and 0.
int64_t normalize_dim(int64_t dim, int rank, const char* op);

// What is known of a tensor without its data. All an op needs to infer its result.
struct Meta {
  Shape sizes;
  Shape strides;  // in elements; entries of size-1 dims are arbitrary
  DType dtype = DType::f32;
  Device device;
  bool contiguous = true;
  bool defined = true;
  bool wrapped_number = false;  // made from a C++ scalar: does not take part in promotion within its kind
  int64_t numel = 1;

  int rank() const { return sizes.size(); }
  // Dense row-major meta; throws ShapeError on overflow.
  static Meta dense(const Shape& sizes, DType dtype, Device device);
  static Meta undefined() {
    Meta m;
    m.defined = false;
    return m;
  }
  // Sets strides and the contiguous flag.
  void set_strides(const Shape& s);
  // True if the memory order is N,spatial...,C (rank 3 to 5) and the tensor is dense in it.
  bool is_channels_last() const;
  // True if every element has its own place and there are no holes between them.
  bool is_dense() const;
  // True if two index tuples may reach the same element (expanded tensors).
  bool overlaps_itself() const;
  // Number of elements from the first to one past the last reachable one.
  int64_t span() const;
};

// Dtype of a result of a and b: bool < integers < floats; dimensioned tensors decide over 0-d ones within a kind,
// and those over C++ scalars.
DType result_type(const Meta& a, const Meta& b);

}  // namespace deft
