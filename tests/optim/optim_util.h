// What the tests of optim share.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/core_util.h"
#include "io/safetensors.h"
#include "optim/adagrad.h"
#include "optim/adam.h"
#include "optim/lamb.h"
#include "optim/rmsprop.h"
#include "optim/sgd.h"
#include "source_dir.h"

namespace deft::optim {

inline State fixture(const std::string& name) {
  State s;
  s.tensors = io::load_safetensors(deft::test::source_dir() + "/tests/fixtures/" + name + ".safetensors").tensors;
  return s;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

inline Tensor param(IntList sizes, uint64_t seed, DType dtype = f32) { return sample(sizes, seed, with_grad(dtype)); }
inline void give_grad(const Tensor& p, uint64_t seed) { p.set_grad(sample(p.sizes(), seed, {p.dtype()})); }

// Every kind of optimizer, with options that use all its states.
using Maker = std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)>;
inline std::vector<std::pair<std::string, Maker>> all_kinds(bool master = false) {
  auto make = [](auto options) -> Maker {
    return [options](const std::vector<Tensor>& p) {
      return std::make_unique<GroupedOptimizer<decltype(options)>>(p, options);
    };
  };
  return {
      {"sgd", make(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .master_weights = master})},
      {"adam", make(AdamOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true, .master_weights = master})},
      {"adamw", make(AdamWOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true, .master_weights = master})},
      {"rmsprop", make(RMSpropOptions{
                      .lr = 0.1, .weight_decay = 0.1, .momentum = 0.5, .centered = true, .master_weights = master})},
      {"adagrad", make(AdagradOptions{.lr = 0.1, .weight_decay = 0.1, .master_weights = master})},
      {"lamb", make(LAMBOptions{.lr = 0.1, .weight_decay = 0.1, .master_weights = master})},
  };
}

}  // namespace deft::optim
