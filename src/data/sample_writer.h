// Where a data set writes one sample, and the chance it may use.
#pragma once

#include <array>
#include <cstdint>

#include "core/shape.h"
#include "data/stage.h"
#include "runtime/random.h"

namespace deft::data {

// Random numbers of one sample: they depend only on (seed, epoch, index).
class SampleRng {
 public:
  SampleRng() = default;
  SampleRng(uint64_t seed, int64_t epoch, int64_t index);
  uint32_t bits();
  double uniform();                         // [0, 1)
  double uniform(double low, double high);  // [low, high)
  int64_t below(int64_t n);                 // 0 .. n - 1; n > 0

 private:
  PhiloxState draw_;
  uint64_t index_ = 0, block_ = 0;
  std::array<uint32_t, 4> words_{};
  int used_ = 4;
};

// One row of a batch, or of what becomes a batch.
class SampleWriter {
 public:
  virtual ~SampleWriter() = default;
  // The memory of a field whose shape is fixed: of its place in the batch, not cleared.
  template <class T>
  T* fixed(int field) {
    return static_cast<T*>(fixed_bytes(field));
  }
  // Memory for a field with this shape, which agrees with Field::shape where that is not -1. Not cleared.
  template <class T>
  T* varying(int field, const Shape& shape) {
    return static_cast<T*>(varying_bytes(field, shape));
  }
  virtual SampleRng& rng() = 0;
  // The time until the scope ends counts as this stage, not as an outer one.
  StageScope stage(Stage stage) { return StageScope(times(), stage); }

 protected:
  virtual void* fixed_bytes(int field) = 0;
  virtual void* varying_bytes(int field, const Shape& shape) = 0;
  virtual StageTimes& times() = 0;
};

}  // namespace deft::data
