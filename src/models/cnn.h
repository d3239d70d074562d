// A medium convolutional net for small images (Fashion-MNIST, glyphs, CIFAR): three stages of convolution, batch norm
// and relu, each at half the size and twice the channels of the one before; the last two with a residual block.
#pragma once

#include "nn/nn.h"

namespace deft::models {

struct CnnOptions {
  int64_t channels = 1;  // of the images
  int64_t classes = 10;
  int64_t width = 32;    // channels of the first stage
  double dropout = 0.1;  // before the classifier
};

class Cnn : public nn::Module {
 public:
  explicit Cnn(const CnnOptions& options = {});
  Tensor forward(const Tensor& x) override;  // [n, channels, height, width] -> [n, classes]

 private:
  nn::Module& stem_;
  nn::Sequential& body_;
  nn::Dropout& dropout_;
  nn::Linear& classifier_;
};

}  // namespace deft::models
