// Samples in memory: the rows of tensors.
#pragma once

#include <string>
#include <vector>

#include "core/state.h"
#include "data/dataset.h"
#include "data/image_set.h"

namespace deft::data {

class TensorDataset final : public Dataset {
 public:
  // Row i of every tensor is a field of sample i, under the tensor's name: host tensors with the same first size. Those
  // that are not contiguous are copied, the others shared. `origin` is where they come from, for messages.
  explicit TensorDataset(const NamedTensors& tensors, std::string origin = {});

  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  void get(int64_t index, SampleWriter& out) const override;
  std::string describe(int64_t index) const override;

 private:
  struct Column {
    Tensor tensor;
    const char* data;
    size_t row_bytes;
  };
  int64_t size_ = 0;
  std::vector<Field> fields_;
  std::vector<Column> columns_;
  std::string origin_;
};

// Fields "image" (u8) and "label" (i64) of a set as read_mnist(), read_cifar() or make_glyphs() give it.
TensorDataset image_dataset(const ImageSet& set, std::string origin = {});

}  // namespace deft::data
