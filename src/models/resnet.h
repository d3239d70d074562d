// ResNet as in torchvision (v1.5: the stride is in the 3 x 3 convolution), with torchvision's names: its weights load
// as they are.
#pragma once

#include <array>

#include "nn/nn.h"

namespace deft::models {

struct ResNetOptions {
  std::array<int64_t, 4> blocks{3, 4, 6, 3};
  bool bottleneck = true;
  int64_t channels = 3;  // of the images
  int64_t classes = 1000;
  int64_t width = 64;        // channels of the first stage
  bool small_input = false;  // for images of 32 x 32: a 3 x 3 first convolution and no pooling after it
};

class ResNet : public nn::Module {
 public:
  explicit ResNet(const ResNetOptions& options = {});
  Tensor forward(const Tensor& x) override;  // [n, channels, height, width] -> [n, classes]

 private:
  void add_stage(const std::string& name, int64_t width, int64_t blocks, int64_t stride);
  ResNetOptions options_;
  int64_t in_;  // channels so far, while building
  nn::Conv2d& conv1_;
  nn::BatchNorm2d& bn1_;
  std::vector<nn::Sequential*> stages_;
  nn::Linear* fc_;
};

inline ResNetOptions resnet18_options() { return {.blocks = {2, 2, 2, 2}, .bottleneck = false}; }
inline ResNetOptions resnet50_options() { return {}; }

}  // namespace deft::models
