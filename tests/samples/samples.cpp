#include <algorithm>
#include <string_view>

#include "ops/all_ops.h"
#include "ops/sample.h"

namespace deft {

namespace {

template <class Op>
constexpr bool kHasFormula = requires {
  &Op::template fwd<double>;
};

// The samples of an op, or an empty list.
template <class Op>
OpSamples samples_of() {
  OpSamples s{.op = Op::info.name};
  if constexpr (requires { Op::samples(); }) {
    s = Op::samples();
  } else if constexpr (kHasFormula<Op> && Op::info.inputs == 1) {
    s = unary_samples<Op>();
  } else if constexpr (kHasFormula<Op> && Op::info.inputs == 2) {
    s = binary_samples<Op>();
  }
  s.op = Op::info.name;
  return s;
}

const std::vector<OpInfo>& all_infos() {
  static const std::vector<OpInfo> infos = {
#define DEFT_OP(Type) Type::info,
#include "ops/all_ops.def"
#undef DEFT_OP
  };
  return infos;
}

std::vector<OpSamples> samples_or_empty() {
  std::vector<OpSamples> all;
#define DEFT_OP(Type) all.push_back(samples_of<Type>());
#include "ops/all_ops.def"
#undef DEFT_OP
  return all;
}

}  // namespace

std::vector<OpSamples> all_samples() {
  std::vector<OpSamples> all = samples_or_empty();
  std::erase_if(all, [](const OpSamples& s) { return s.good.empty() && s.bad.empty(); });
  return all;
}

const OpInfo* find_op_info(std::string_view name) {
  for (const OpInfo& info : all_infos())
    if (name == info.name) return &info;
  return nullptr;
}

std::vector<Uncovered> ops_without_samples() {
  std::vector<OpSamples> all = samples_or_empty();
  auto sampled = [&](std::string_view name) {
    return std::any_of(all.begin(), all.end(), [&](const OpSamples& s) { return name == s.op && !s.good.empty(); });
  };
  std::vector<Uncovered> missing;
  for (const OpSamples& s : all) {
    if (!s.good.empty()) continue;
    // softmax_backward is covered by the gradient checks of softmax.
    std::string_view name = s.op;
    auto cut = name.rfind("_backward");
    std::string parent(cut == name.npos ? "" : name.substr(0, cut));
    if (name == "extreme_backward") parent = "amax";
    // tests/graph compares them with others
    bool of_plans = name == "elementwise_chain" || name == "elementwise_gradient" || name == "fused_convolution" ||
                    name == "fused_rows" || name == "fused_batch_norm" || name == "fused_batch_norm_backward";
    missing.push_back({s.op, of_plans ? "compile" : sampled(parent) ? parent : ""});
  }
  return missing;
}

}  // namespace deft
