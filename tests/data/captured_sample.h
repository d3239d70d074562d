// A sample written to plain memory, for tests of data sets.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "core/shape.h"
#include "data/dataset.h"

namespace deft::data {

class CapturedSample final : public SampleWriter {
 public:
  explicit CapturedSample(const std::vector<Field>& fields, SampleRng rng = SampleRng(1, 0, 0))
      : fields_(fields), bytes_(fields.size()), shapes_(fields.size()), rng_(rng) {}
  SampleRng& rng() override { return rng_; }
  const Shape& shape(size_t field) const { return shapes_[field]; }
  std::string text(size_t field) const { return {bytes_[field].begin(), bytes_[field].end()}; }
  template <class T>
  std::vector<T> values(size_t field) const {
    std::vector<T> out(bytes_[field].size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes_[field].data(), out.size() * sizeof(T));
    return out;
  }

 protected:
  void* fixed_bytes(int field) override { return varying_bytes(field, fields_[static_cast<size_t>(field)].shape); }
  void* varying_bytes(int field, const Shape& shape) override {
    auto i = static_cast<size_t>(field);
    shapes_[i] = shape;
    bytes_[i].assign(static_cast<size_t>(checked_numel(shape, fields_[i].dtype)) * size_of(fields_[i].dtype), '?');
    return bytes_[i].data();
  }
  StageTimes& times() override { return times_; }

 private:
  std::vector<Field> fields_;
  std::vector<std::vector<char>> bytes_;
  std::vector<Shape> shapes_;
  SampleRng rng_;
  StageTimes times_;
};

inline CapturedSample capture(const Dataset& set, int64_t index, int64_t epoch = 0) {
  CapturedSample sample(set.fields(), SampleRng(1, epoch, index));
  set.get(index, sample);
  return sample;
}

}  // namespace deft::data
