// Pooling over 1 to 3 spatial dimensions. Inputs without the batch dimension are accepted.
#pragma once

#include <array>
#include <optional>

#include "nn/module.h"
#include "nn/sizes.h"

namespace deft::nn {

struct MaxPoolOptions {
  std::optional<Sizes> stride = {};  // none: the kernel
  Sizes padding = 0, dilation = 1;
  bool ceil_mode = false;
};

class MaxPool : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  // Also returns the flat spatial positions (i64) of the values.
  std::array<Tensor, 2> forward_with_indices(const Tensor& x, Site site = Site::current());
  std::string describe() const override;

 protected:
  MaxPool(int spatial, Sizes kernel, const MaxPoolOptions& options)
      : spatial_(spatial), kernel_(kernel), options_(options) {}

 private:
  int spatial_;
  Sizes kernel_;
  MaxPoolOptions options_;
};

struct AvgPoolOptions {
  std::optional<Sizes> stride = {};  // none: the kernel
  Sizes padding = 0;
  bool ceil_mode = false, count_include_pad = true;
  int64_t divisor_override = 0;  // 0: the number of elements
};

class AvgPool : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 protected:
  AvgPool(int spatial, Sizes kernel, const AvgPoolOptions& options)
      : spatial_(spatial), kernel_(kernel), options_(options) {}

 private:
  int spatial_;
  Sizes kernel_;
  AvgPoolOptions options_;
};

// To a given output size.
class AdaptiveAvgPool : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 protected:
  AdaptiveAvgPool(int spatial, Sizes output) : spatial_(spatial), output_(output) {}

 private:
  int spatial_;
  Sizes output_;
};

class AdaptiveMaxPool : public Layer {
 public:
  Tensor forward(const Tensor& x) override;
  std::array<Tensor, 2> forward_with_indices(const Tensor& x, Site site = Site::current());
  std::string describe() const override;

 protected:
  AdaptiveMaxPool(int spatial, Sizes output) : spatial_(spatial), output_(output) {}

 private:
  int spatial_;
  Sizes output_;
};

#define DEFT_POOL(n)                                                                                          \
  class MaxPool##n##d : public MaxPool {                                                                      \
   public:                                                                                                    \
    explicit MaxPool##n##d(Sizes kernel, const MaxPoolOptions& options = {}) : MaxPool(n, kernel, options) {} \
  };                                                                                                          \
  class AvgPool##n##d : public AvgPool {                                                                      \
   public:                                                                                                    \
    explicit AvgPool##n##d(Sizes kernel, const AvgPoolOptions& options = {}) : AvgPool(n, kernel, options) {} \
  };                                                                                                          \
  class AdaptiveAvgPool##n##d : public AdaptiveAvgPool {                                                      \
   public:                                                                                                    \
    explicit AdaptiveAvgPool##n##d(Sizes output) : AdaptiveAvgPool(n, output) {}                              \
  };                                                                                                          \
  class AdaptiveMaxPool##n##d : public AdaptiveMaxPool {                                                      \
   public:                                                                                                    \
    explicit AdaptiveMaxPool##n##d(Sizes output) : AdaptiveMaxPool(n, output) {}                              \
  };
DEFT_POOL(1)
DEFT_POOL(2)
DEFT_POOL(3)
#undef DEFT_POOL

}  // namespace deft::nn
