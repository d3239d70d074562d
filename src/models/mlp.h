// A plain network of linear layers with relu between them.
#pragma once

#include <vector>

#include "nn/nn.h"

namespace deft::models {

class Mlp : public nn::Module {
 public:
  // widths: input, hidden..., output. Inputs of more dims are flattened.
  explicit Mlp(const std::vector<int64_t>& widths);
  Tensor forward(const Tensor& x) override;

 private:
  nn::ModuleList& layers_ = add<nn::ModuleList>("layers");
};

}  // namespace deft::models
