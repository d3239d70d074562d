#include "models/cnn.h"

namespace deft::models {

namespace {

// relu(norm(conv(x))), the convolution of 3 x 3 without bias: the norm has one.
class ConvNormRelu : public nn::Module {
 public:
  ConvNormRelu(int64_t in, int64_t out)
      : conv_(add<nn::Conv2d>("conv", in, out, 3, nn::ConvOptions{.padding = 1, .bias = false})),
        norm_(add<nn::BatchNorm2d>("norm", out)) {}
  Tensor forward(const Tensor& x) override { return relu(norm_(conv_(x))); }

 private:
  nn::Conv2d& conv_;
  nn::BatchNorm2d& norm_;
};

class Residual : public nn::Module {
 public:
  explicit Residual(int64_t channels)
      : first_(add<ConvNormRelu>("first", channels, channels)),
        second_(add<ConvNormRelu>("second", channels, channels)) {}
  Tensor forward(const Tensor& x) override { return x + second_(first_(x)); }

 private:
  ConvNormRelu &first_, &second_;
};

}  // namespace

Cnn::Cnn(const CnnOptions& o)
    : stem_(add<ConvNormRelu>("stem", o.channels, o.width)),
      body_(add<nn::Sequential>("body")),
      dropout_(add<nn::Dropout>("dropout", o.dropout)),
      classifier_(add<nn::Linear>("classifier", 4 * o.width, o.classes)) {
  body_.add<nn::MaxPool2d>(2);
  body_.add<ConvNormRelu>(o.width, 2 * o.width);
  body_.add<nn::MaxPool2d>(2);
  body_.add<Residual>(2 * o.width);
  body_.add<ConvNormRelu>(2 * o.width, 4 * o.width);
  body_.add<nn::MaxPool2d>(2);
  body_.add<Residual>(4 * o.width);
}

Tensor Cnn::forward(const Tensor& x) {
  // Images of one channel have no memory order of their own, so the order is set after the first convolution.
  Tensor y = stem_(x.contiguous(MemoryFormat::channels_last)).contiguous(MemoryFormat::channels_last);
  y = body_(y);
  return classifier_(dropout_(y.amax({2, 3})));
}

}  // namespace deft::models
