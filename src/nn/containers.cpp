#include "nn/containers.h"

#include "base/check.h"
#include "ops/view.h"

namespace deft::nn {

ModuleList::ModuleList(std::initializer_list<std::shared_ptr<Module>> modules) {
  for (const std::shared_ptr<Module>& m : modules) append(m);
}

void ModuleList::append(std::shared_ptr<Module> module) { add_child(std::to_string(size()), std::move(module)); }

Module& ModuleList::operator[](size_t i) const {
  DEFT_CHECK(i < size(), IndexError, "{}: there is no module {}, only {}", describe(), i, size());
  return child(i);
}

void ModuleList::wrong_type(size_t i) const {
  DEFT_FAIL(ValueError, "{}: module {} is a {}; ask for that", describe(), i, child(i).describe());
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (size_t i = 0; i < size(); ++i) y = child(i)(y);
  return y;
}

Tensor Flatten::forward(const Tensor& x) { return x.flatten(start_, end_); }
std::string Flatten::describe() const { return fmt::format("Flatten(start={}, end={})", start_, end_); }

Tensor Unflatten::forward(const Tensor& x) {
  int64_t dim = normalize_dim(dim_, x.dim(), "Unflatten");
  Shape sizes;
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (i != dim) {
      sizes.push_back(x.size(i));
      continue;
    }
    for (int64_t s : sizes_) sizes.push_back(s);
  }
  return x.reshape(sizes);
}
std::string Unflatten::describe() const {
  return fmt::format("Unflatten(dim={}, sizes={})", dim_, deft::to_string(sizes_));
}

}  // namespace deft::nn
