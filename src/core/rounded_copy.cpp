#include "core/rounded_copy.h"

#include "core/derived_cache.h"

namespace deft {

namespace {

constexpr DerivedForm kForm{DerivedKind::rounded_copy, {}};

}  // namespace

std::shared_ptr<const Tensor> find_rounded_copy(const Tensor& of) {
  return std::static_pointer_cast<const Tensor>(kept_derived(of, kForm));
}

void keep_rounded_copy(const Tensor& of, const std::shared_ptr<const Tensor>& copy) {
  keep_derived(of, kForm, {copy, 0});  // its bytes are counted where they were allocated
}

}  // namespace deft
