// Small models with fixed weights and inputs, so that the first number needs no file and no download.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace deft::bench {

struct BuiltinModel {
  std::string name;
  std::vector<Tensor> parameters;  // all require grad
  Tensor input;
  Tensor target;  // class numbers
  // Logits of the input. `training` is what model.train() sets: batch norm uses and updates batch statistics.
  std::function<Tensor(bool training)> forward;
};

struct BuiltinModelInfo {
  const char* name;
  const char* summary;
  int64_t default_batch;
  BuiltinModel (*make)(int64_t batch);
};
const std::vector<BuiltinModelInfo>& builtin_models();

}  // namespace deft::bench
