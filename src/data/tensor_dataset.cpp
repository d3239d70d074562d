#include "data/tensor_dataset.h"

#include <cstring>

#include "base/check.h"

namespace deft::data {

TensorDataset::TensorDataset(const NamedTensors& tensors, std::string origin) : origin_(std::move(origin)) {
  DEFT_CHECK(!tensors.empty(), ValueError, "TensorDataset: no tensors were given");
  for (const NamedTensor& t : tensors) {
    DEFT_CHECK(t.tensor.defined(), ValueError, "TensorDataset: the tensor '{}' is undefined", t.name);
    DEFT_CHECK(t.tensor.device() == kCPU, DeviceError, "TensorDataset: '{}' is on {}; move it with .cpu() first",
               t.name, to_string(t.tensor.device()));
    DEFT_CHECK(t.tensor.dim() > 0, ShapeError, "TensorDataset: '{}' is a single number and has no rows", t.name);
    Tensor x = t.tensor.detach().contiguous();
    Shape row = x.sizes();
    if (columns_.empty()) size_ = row[0];
    DEFT_CHECK(row[0] == size_, ShapeError, "TensorDataset: '{}' has {} rows, but '{}' has {}", t.name, row[0],
               tensors[0].name, size_);
    row.erase(0);
    size_t row_bytes = size_ ? static_cast<size_t>(x.numel() / size_) * x.element_size() : 0;
    columns_.push_back({x, static_cast<const char*>(x.data_ptr()), row_bytes});
    fields_.push_back({t.name, x.dtype(), row});
  }
}

// No stages are timed: reading the clock takes as long as copying a small row.
void TensorDataset::get(int64_t index, SampleWriter& out) const {
  DEFT_CHECK(index >= 0 && index < size_, IndexError, "TensorDataset: row {} of {}", index, size_);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& c = columns_[i];
    if (c.row_bytes)
      std::memcpy(out.fixed<char>(static_cast<int>(i)), c.data + static_cast<size_t>(index) * c.row_bytes, c.row_bytes);
  }
}

std::string TensorDataset::describe(int64_t index) const {
  if (!origin_.empty()) return fmt::format("{}, row {}", origin_, index);
  return fmt::format("row {} of '{}'", index, fields_[0].name);
}

TensorDataset image_dataset(const ImageSet& set, std::string origin) {
  return TensorDataset({{"image", set.images}, {"label", set.labels}}, std::move(origin));
}

}  // namespace deft::data
