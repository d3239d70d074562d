#include "bench/builtin_models.h"

#include <cmath>
#include <memory>

#include "deft/deft.h"

namespace deft::bench {

namespace {

constexpr uint64_t kSeed = 2024;
constexpr int64_t kClasses = 10;

// The same numbers on every machine and for every number of threads.
class Maker {
 public:
  Tensor uniform(IntList sizes, double bound) {
    Tensor t = empty(sizes);
    return uniform_(t, -bound, bound);
  }
  Tensor parameter(Tensor value) {
    value.requires_grad_();
    value.set_memory_category(MemoryCategory::parameter);
    parameters_.push_back(value);
    return value;
  }
  // Uniform with variance 2 / fan_in, which keeps the size of activations through relu.
  Tensor weight(IntList sizes, int64_t fan_in) {
    return parameter(uniform(sizes, std::sqrt(6.0 / static_cast<double>(fan_in))));
  }
  static Tensor targets(int64_t batch) {
    std::vector<int64_t> classes(static_cast<size_t>(batch));
    for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int64_t>(i) % kClasses;
    return tensor(classes);
  }
  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  RngScope rng_{PhiloxState{.seed = kSeed}};
  std::vector<Tensor> parameters_;
};

BuiltinModel make_mlp(int64_t batch) {
  constexpr int64_t width = 256, depth = 6;
  struct Layer {
    Tensor weight, bias;
  };
  Maker make;
  std::vector<Layer> layers;
  for (int64_t i = 0; i < depth; ++i) {
    int64_t out = i + 1 < depth ? width : kClasses;
    layers.push_back({make.weight({out, width}, width), make.parameter(zeros({out}))});
  }
  Tensor input = make.uniform({batch, width}, 1);
  auto forward = [layers, input](bool) {
    Tensor x = input;
    for (size_t i = 0; i + 1 < layers.size(); ++i) x = relu(linear(x, layers[i].weight, layers[i].bias));
    return linear(x, layers.back().weight, layers.back().bias);
  };
  return {"mlp", make.parameters(), input, Maker::targets(batch), forward};
}

BuiltinModel make_cnn(int64_t batch) {
  constexpr int64_t channels[] = {3, 32, 64, 64}, side = 32;
  struct Layer {
    Tensor weight, gamma, beta, running_mean, running_var;
  };
  Maker make;
  std::vector<Layer> layers;
  for (int i = 0; i < 3; ++i) {
    int64_t in = channels[i], out = channels[i + 1];
    layers.push_back({make.weight({out, in, 3, 3}, in * 9), make.parameter(ones({out})), make.parameter(zeros({out})),
                      zeros({out}), ones({out})});
  }
  Tensor head = make.weight({kClasses, channels[3]}, channels[3]), head_bias = make.parameter(zeros({kClasses}));
  Tensor input = make.uniform({batch, channels[0], side, side}, 1);
  auto forward = [=](bool training) {
    Tensor x = input;
    for (const Layer& layer : layers) {
      x = conv2d(x, layer.weight, {}, {1}, {1});
      Tensor mean = layer.running_mean, var = layer.running_var;
      x = relu(batch_norm(x, mean, var, layer.gamma, layer.beta, training));
      x = max_pool2d(x, {2});
    }
    return linear(x.mean({2, 3}), head, head_bias);
  };
  return {"cnn", make.parameters(), input, Maker::targets(batch), forward};
}

}  // namespace

const std::vector<BuiltinModelInfo>& builtin_models() {
  static const std::vector<BuiltinModelInfo> models = {
      {"mlp", "6 linear layers of width 256 with relu between", 64, make_mlp},
      {"cnn", "3 times conv 3x3, batch norm, relu, max pool on 3x32x32; linear", 16, make_cnn},
  };
  return models;
}

}  // namespace deft::bench
