#include "ops/op_table.h"

#include "ops/all_ops.h"

namespace deft {

namespace {

// Ops composed of others have no definition of their own.
template <class Op>
constexpr const OpDef* definition() {
  constexpr bool has_vjp = requires(VjpContext & c) { Op::vjp(c); };
  constexpr bool has_no_grad = requires { Op::not_differentiable; };
  if constexpr (has_vjp != has_no_grad)
    return &op_def<Op>;
  else
    return nullptr;
}

}  // namespace

namespace {

constexpr const OpDef* kOps[] = {
#define DEFT_OP(Type) definition<Type>(),
#include "ops/all_ops.def"
#undef DEFT_OP
};

}  // namespace

const OpDef* find_op(std::string_view name) {
  // Mostly it is asked for an op's own text: nothing to compare, as in each gradient that a profile sees.
  for (const OpDef* def : kOps)
    if (def && def->info.name == name.data() && def->info.name[name.size()] == 0) return def;
  for (const OpDef* def : kOps)
    if (def && def->info.name == name) return def;
  return nullptr;
}

int op_index(const OpDef& def) {
  for (size_t i = 0; i < std::size(kOps); ++i)
    if (kOps[i] == &def) return static_cast<int>(i);
  return -1;
}
const OpDef* op_at(int index) {
  return index >= 0 && index < static_cast<int>(std::size(kOps)) ? kOps[index] : nullptr;
}

}  // namespace deft
