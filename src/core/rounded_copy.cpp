#include "core/rounded_copy.h"

#include "core/derived_cache.h"

namespace deft {

namespace {

constexpr DerivedForm kForm{DerivedKind::rounded_copy, {}};

using Kept = std::weak_ptr<const Tensor>;
std::shared_ptr<const Kept> find(const Tensor& of, bool outdated) {
  return std::static_pointer_cast<const Kept>(kept_derived(of, kForm, outdated));
}

}  // namespace

std::shared_ptr<const Tensor> find_rounded_copy(const Tensor& of) {
  const auto kept = find(of, false);
  return kept ? kept->lock() : nullptr;
}

void keep_rounded_copy(const Tensor& of, const std::shared_ptr<const Tensor>& copy) {
  auto kept = find(of, true);
  if (!kept || kept->lock() != copy) kept = std::make_shared<const Kept>(copy);
  keep_derived(of, kForm, {kept, 0});
}

}  // namespace deft
