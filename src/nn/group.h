// A module that only holds others, for names with one more part: "attention.self.query".
#pragma once

#include "nn/module.h"

namespace deft::nn {

class Group : public Layer {
 public:
  using Module::add;
  using Module::buffer;
  using Module::parameter;
};

}  // namespace deft::nn
