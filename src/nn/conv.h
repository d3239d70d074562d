// Convolutions and transposed convolutions over 1 to 3 spatial dimensions.
#pragma once

#include "nn/module.h"
#include "nn/sizes.h"
#include "ops/resize.h"

namespace deft::nn {

struct ConvOptions {
  Sizes stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::constant;  // constant: zeros
  bool same = false;                         // padding that keeps the spatial sizes; stride 1
};

class Conv : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

  Tensor& weight;  // [out, in / groups, kernel...]
  Tensor& bias;    // [out]; undefined without one

 protected:
  Conv(int spatial, int64_t in_channels, int64_t out_channels, const Sizes& kernel, const ConvOptions& options);

 private:
  int spatial_;
  ConvOptions options_;
  Shape amounts_;  // for pad(): the padding that the convolution itself cannot do
};

class Conv1d : public Conv {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, Sizes kernel, const ConvOptions& options = {})
      : Conv(1, in_channels, out_channels, kernel, options) {}
};
class Conv2d : public Conv {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Sizes kernel, const ConvOptions& options = {})
      : Conv(2, in_channels, out_channels, kernel, options) {}
};
class Conv3d : public Conv {
 public:
  Conv3d(int64_t in_channels, int64_t out_channels, Sizes kernel, const ConvOptions& options = {})
      : Conv(3, in_channels, out_channels, kernel, options) {}
};

struct ConvTransposeOptions {
  Sizes stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Sizes dilation = 1;
};

class ConvTranspose : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  // The result has these spatial sizes: output_padding is chosen for them.
  Tensor forward(const Tensor& x, IntList output_size, Site site = Site::current());
  std::string describe() const override;

  Tensor& weight;  // [in, out / groups, kernel...]
  Tensor& bias;    // [out]; undefined without one

 protected:
  ConvTranspose(int spatial, int64_t in_channels, int64_t out_channels, const Sizes& kernel,
                const ConvTransposeOptions& options);

 private:
  Tensor run(const Tensor& x, IntList output_padding) const;
  int spatial_;
  ConvTransposeOptions options_;
};

class ConvTranspose1d : public ConvTranspose {
 public:
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, Sizes kernel, const ConvTransposeOptions& options = {})
      : ConvTranspose(1, in_channels, out_channels, kernel, options) {}
};
class ConvTranspose2d : public ConvTranspose {
 public:
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, Sizes kernel, const ConvTransposeOptions& options = {})
      : ConvTranspose(2, in_channels, out_channels, kernel, options) {}
};
class ConvTranspose3d : public ConvTranspose {
 public:
  ConvTranspose3d(int64_t in_channels, int64_t out_channels, Sizes kernel, const ConvTransposeOptions& options = {})
      : ConvTranspose(3, in_channels, out_channels, kernel, options) {}
};

}  // namespace deft::nn
