// Modules made of others.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "nn/module.h"

namespace deft::nn {

// Children named "0", "1", ... in the order they were added.
class ModuleList : public Layer {
 public:
  ModuleList() = default;
  ModuleList(std::initializer_list<std::shared_ptr<Module>> modules);
  // Temporaries, or modules given up with std::move; those that others hold too come as std::shared_ptr.
  template <class... M>
  requires(sizeof...(M) > 0 && (std::derived_from<M, Module> && ...)) explicit ModuleList(M&&... modules) {
    (append(std::make_shared<M>(std::move(modules))), ...);
  }
  template <class M, class... Args>
  M& add(Args&&... args) {
    return Module::add<M>(std::to_string(size()), std::forward<Args>(args)...);
  }
  void append(std::shared_ptr<Module> module);
  size_t size() const { return child_count(); }
  Module& operator[](size_t i) const;
  // The i-th as the type it was added as; ValueError if it is another.
  template <class M>
  M& get(size_t i) const {
    M* module = dynamic_cast<M*>(&(*this)[i]);
    if (!module) wrong_type(i);
    return *module;
  }

 private:
  [[noreturn]] void wrong_type(size_t i) const;
};

// Calls one after the other:
//
//   nn::Sequential net(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
//
// or net.add<nn::Linear>(784, 128), one by one.
class Sequential : public ModuleList {
 public:
  using ModuleList::ModuleList;
  Tensor forward(const Tensor& x) override;
};

class Identity : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

// Dims [start, end] as one.
class Flatten : public Layer {
 public:
  explicit Flatten(int64_t start = 1, int64_t end = -1) : start_(start), end_(end) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int64_t start_, end_;
};

// One dim as several.
class Unflatten : public Layer {
 public:
  Unflatten(int64_t dim, IntList sizes) : dim_(dim), sizes_(sizes) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int64_t dim_;
  Shape sizes_;
};

}  // namespace deft::nn
