#include "models/resnet.h"

namespace deft::models {

namespace {

nn::ConvOptions conv_options(int64_t stride, int64_t padding) {
  return {.stride = stride, .padding = padding, .bias = false};  // the norm after it has one
}

// In place after the norm, and with no expression that keeps its parts alive: the largest tensors decide the peak of
// memory.
Tensor norm_relu(nn::BatchNorm2d& norm, Tensor x) {
  x = norm(x);
  return x.relu_();
}
Tensor add_relu(nn::BatchNorm2d& norm, Tensor x, const Tensor& other) {
  x = norm(x);
  x += other;
  return x.relu_();
}

// What a block adds to its result: its input, brought to the new shape where that differs.
class Shortcut {
 public:
  void build(nn::Sequential& to, int64_t in, int64_t out, int64_t stride) {
    to.add<nn::Conv2d>(in, out, 1, conv_options(stride, 0));
    to.add<nn::BatchNorm2d>(out);
    downsample_ = &to;
  }
  Tensor operator()(const Tensor& x) const { return downsample_ ? (*downsample_)(x) : x; }

 private:
  nn::Sequential* downsample_ = nullptr;
};

class Block : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;
  Block(int64_t in, int64_t width, int64_t stride)
      : conv1_(add<nn::Conv2d>("conv1", in, width, 3, conv_options(stride, 1))),
        bn1_(add<nn::BatchNorm2d>("bn1", width)),
        conv2_(add<nn::Conv2d>("conv2", width, width, 3, conv_options(1, 1))),
        bn2_(add<nn::BatchNorm2d>("bn2", width)) {
    if (stride != 1 || in != width) shortcut_.build(add<nn::Sequential>("downsample"), in, width, stride);
  }
  Tensor forward(const Tensor& x) override {
    Tensor other = shortcut_(x), y = norm_relu(bn1_, conv1_(x));
    return add_relu(bn2_, conv2_(y), other);
  }

 private:
  nn::Conv2d& conv1_;
  nn::BatchNorm2d& bn1_;
  nn::Conv2d& conv2_;
  nn::BatchNorm2d& bn2_;
  Shortcut shortcut_;
};

class Bottleneck : public nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;
  Bottleneck(int64_t in, int64_t width, int64_t stride)
      : conv1_(add<nn::Conv2d>("conv1", in, width, 1, conv_options(1, 0))),
        bn1_(add<nn::BatchNorm2d>("bn1", width)),
        conv2_(add<nn::Conv2d>("conv2", width, width, 3, conv_options(stride, 1))),
        bn2_(add<nn::BatchNorm2d>("bn2", width)),
        conv3_(add<nn::Conv2d>("conv3", width, width * kExpansion, 1, conv_options(1, 0))),
        bn3_(add<nn::BatchNorm2d>("bn3", width * kExpansion)) {
    if (stride != 1 || in != width * kExpansion)
      shortcut_.build(add<nn::Sequential>("downsample"), in, width * kExpansion, stride);
  }
  Tensor forward(const Tensor& x) override {
    Tensor other = shortcut_(x), y = norm_relu(bn1_, conv1_(x));
    y = norm_relu(bn2_, conv2_(y));
    return add_relu(bn3_, conv3_(y), other);
  }

 private:
  nn::Conv2d& conv1_;
  nn::BatchNorm2d& bn1_;
  nn::Conv2d& conv2_;
  nn::BatchNorm2d& bn2_;
  nn::Conv2d& conv3_;
  nn::BatchNorm2d& bn3_;
  Shortcut shortcut_;
};

}  // namespace

ResNet::ResNet(const ResNetOptions& o)
    : options_(o),
      in_(o.width),
      conv1_(add<nn::Conv2d>("conv1", o.channels, o.width, o.small_input ? 3 : 7,
                             conv_options(o.small_input ? 1 : 2, o.small_input ? 1 : 3))),
      bn1_(add<nn::BatchNorm2d>("bn1", o.width)) {
  for (size_t i = 0; i < o.blocks.size(); ++i)
    add_stage("layer" + std::to_string(i + 1), o.width << i, o.blocks[i], i == 0 ? 1 : 2);
  fc_ = &add<nn::Linear>("fc", in_, o.classes);
  apply([](nn::Module& m) {
    if (auto* conv = dynamic_cast<nn::Conv2d*>(&m))
      nn::init::kaiming_normal_(conv->weight,
                                {.mode = nn::init::FanMode::out, .nonlinearity = nn::init::Nonlinearity::relu});
  });
}

void ResNet::add_stage(const std::string& name, int64_t width, int64_t blocks, int64_t stride) {
  nn::Sequential& stage = add<nn::Sequential>(name);
  for (int64_t i = 0; i < blocks; ++i) {
    if (options_.bottleneck)
      stage.add<Bottleneck>(in_, width, i == 0 ? stride : 1);
    else
      stage.add<Block>(in_, width, i == 0 ? stride : 1);
    in_ = width * (options_.bottleneck ? Bottleneck::kExpansion : Block::kExpansion);
  }
  stages_.push_back(&stage);
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = norm_relu(bn1_, conv1_(x.contiguous(MemoryFormat::channels_last)));
  if (!options_.small_input) y = max_pool2d(y, {3}, {2}, {1});
  for (nn::Sequential* stage : stages_) y = (*stage)(y);
  return (*fc_)(y.mean({2, 3}));
}

}  // namespace deft::models
