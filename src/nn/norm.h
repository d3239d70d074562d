// Normalisation layers.
#pragma once

#include <optional>

#include "nn/module.h"
#include "nn/sizes.h"

namespace deft::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: running statistics are the average over all batches so far
  bool affine = true;
  bool track_running_stats = true;
};

// Statistics per channel. Training normalises by the batch's and moves the running ones, also under no_grad; eval mode
// normalises by the running ones, and by the batch's if there are none.
class BatchNorm : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor &weight, &bias;               // [channels]; undefined if not affine
  Tensor &running_mean, &running_var;  // [channels]; undefined if not tracked
  Tensor& num_batches_tracked;         // i64

 protected:
  BatchNorm(int spatial, int64_t channels, const BatchNormOptions& options);

 private:
  int spatial_;
  int64_t channels_;
  BatchNormOptions options_;
};

class BatchNorm1d : public BatchNorm {  // N,C or N,C,L
 public:
  explicit BatchNorm1d(int64_t channels, const BatchNormOptions& options = {}) : BatchNorm(1, channels, options) {}
};
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t channels, const BatchNormOptions& options = {}) : BatchNorm(2, channels, options) {}
};
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(int64_t channels, const BatchNormOptions& options = {}) : BatchNorm(3, channels, options) {}
};

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
};

// Statistics per channel of each image. Inputs without the batch dimension are accepted.
class InstanceNorm : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor &weight, &bias;               // [channels]; undefined if not affine
  Tensor &running_mean, &running_var;  // [channels]; undefined if not tracked
  Tensor& num_batches_tracked;         // there for PyTorch's state; stays 0

 protected:
  InstanceNorm(int spatial, int64_t channels, const InstanceNormOptions& options);

 private:
  int spatial_;
  int64_t channels_;
  InstanceNormOptions options_;
};

class InstanceNorm1d : public InstanceNorm {
 public:
  explicit InstanceNorm1d(int64_t channels, const InstanceNormOptions& options = {})
      : InstanceNorm(1, channels, options) {}
};
class InstanceNorm2d : public InstanceNorm {
 public:
  explicit InstanceNorm2d(int64_t channels, const InstanceNormOptions& options = {})
      : InstanceNorm(2, channels, options) {}
};
class InstanceNorm3d : public InstanceNorm {
 public:
  explicit InstanceNorm3d(int64_t channels, const InstanceNormOptions& options = {})
      : InstanceNorm(3, channels, options) {}
};

// Over the last dims, whose sizes are given.
class LayerNorm : public Layer {
 public:
  explicit LayerNorm(Sizes normalized_shape, double eps = 1e-5, bool affine = true, bool bias = true);
  LayerNorm(std::initializer_list<int64_t> normalized_shape, double eps = 1e-5, bool affine = true, bool bias = true);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor& weight;  // of the shape given; undefined if not affine
  Tensor& bias;

 private:
  Sizes sizes_;
  double eps_;
};

class RMSNorm : public Layer {
 public:
  // Without eps it is that of the input's type.
  explicit RMSNorm(Sizes normalized_shape, std::optional<double> eps = {}, bool affine = true);
  RMSNorm(std::initializer_list<int64_t> normalized_shape, std::optional<double> eps = {}, bool affine = true);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor& weight;  // of the shape given; undefined if not affine

 private:
  Sizes sizes_;
  std::optional<double> eps_;
};

class GroupNorm : public Layer {
 public:
  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor &weight, &bias;  // [channels]; undefined if not affine

 private:
  int64_t groups_, channels_;
  double eps_;
};

}  // namespace deft::nn
