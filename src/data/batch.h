// Samples put together: one tensor per field, the samples along the first dimension.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "data/sample_writer.h"

namespace deft::data {

inline constexpr int kMaxFields = 16;

class Batch {
 public:
  int64_t index = 0;  // of the batch in its epoch
  int64_t epoch = 0;
  uint64_t seed = 0;
  Tensor indices;  // i64 [rows] on the CPU: which samples these are

  int64_t rows() const { return indices.defined() ? indices.numel() : 0; }
  int size() const { return count_; }  // fields
  const Tensor& operator[](int field) const;
  const Tensor& operator[](std::string_view name) const;  // ValueError, with the names there are
  const std::string& name(int field) const;
  bool has(std::string_view name) const { return find(name) >= 0; }
  // i64 [rows]: how large each sample is along the first varying dimension of a field. Undefined for fixed fields.
  const Tensor& lengths(int field) const;
  const Tensor& lengths(std::string_view name) const;
  // Replaces a field, or adds one: for LoaderOptions::collate.
  void set(std::string_view name, Tensor values, Tensor lengths = {});
  void remove(std::string_view name);
  // Chance that depends only on (seed, epoch, index).
  SampleRng rng() const;
  size_t bytes() const;
  // All tensors but `indices` on the device.
  void to(Device device);

 private:
  friend class BatchBuilder;
  using Names = std::vector<std::string>;
  int find(std::string_view name) const;      // -1: there is none
  int position(std::string_view name) const;  // ValueError: there is none
  void check(int field) const;

  std::shared_ptr<const Names> names_;  // shared by all batches of a loader
  std::array<Tensor, kMaxFields> fields_, lengths_;
  int count_ = 0;
};

}  // namespace deft::data
