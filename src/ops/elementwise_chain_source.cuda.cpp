#include "ops/elementwise_chain_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ops/elementwise.h"
#include "ops/elementwise_chain.h"
#include "ops/op_table.h"

namespace deft {

namespace {

static_assert(ElementwiseChain::kInputs == cuda::kChainInputs && ElementwiseChain::kSteps == cuda::kChainSteps &&
              ElementwiseChain::kParamBytes == cuda::kChainParamBytes);

// In the order of op_index().
constexpr const char* kTypeNames[] = {
#define DEFT_OP(Type) #Type,
#include "ops/all_ops.def"
#undef DEFT_OP
};

const char* cpp_type(DType t) {
  static constexpr const char* names[kDTypeCount] = {"float",   "double",  "BFloat16", "Half", "int8_t",
                                                     "uint8_t", "int32_t", "int64_t",  "bool"};
  return names[static_cast<int>(t)];
}

std::string input_type(const ChainForm& f, int i) {
  const ChainForm::Input& in = f.input[i];
  switch (in.access) {
    case ChainAccess::full:
      return fmt::format("Full<{}>", cpp_type(in.dtype));
    case ChainAccess::repeated:
      return fmt::format("Repeated<{}, {}>", cpp_type(in.dtype), in.period);
    case ChainAccess::single:
      return fmt::format("Single<{}>", cpp_type(in.dtype));
    default:
      return fmt::format("Passed<{}>", i);
  }
}

// "Add::fwd(operand<float>(x0), operand<float>(s0))"
std::string formula(const ChainForm& f, int s) {
  const ChainForm::Step& step = f.step[s];
  const bool gradient = step.op < 0;
  const int op = gradient ? ~step.op : step.op;
  std::string text = fmt::format("{}::{}(", kTypeNames[op], gradient ? "grad" : "fwd");
  for (int i = 0; i < step.inputs; ++i) {
    const bool input = step.in[i] < cuda::kChainInputs;
    text += fmt::format("{}operand<{}>({}{})", i ? ", " : "", cpp_type(step.compute), input ? 'x' : 's',
                        input ? step.in[i] : step.in[i] - cuda::kChainInputs);
  }
  if (op_at(op)->params_bytes) text += fmt::format(", params<{}::Params>(a, {})", kTypeNames[op], s);
  return text + ")";
}

std::string step_text(const ChainForm& f, int s) {
  const ChainForm::Step& step = f.step[s];
  const bool boolean = step.op >= 0 && op_at(step.op)->elementwise->result == ResultType::boolean;
  const char* result = boolean ? "bool" : cpp_type(step.compute);
  const bool last = s + 1 == f.steps;
  return fmt::format("    {} {}<{}>(static_cast<{}>({}){});\n", last ? "return" : fmt::format("auto s{} =", s),
                     last ? "convert" : "stored", cpp_type(step.stored), result, formula(f, s), last ? "" : ", a");
}

int count(const ChainForm& f, ChainAccess access) {
  return static_cast<int>(
      std::count_if(f.input, f.input + f.inputs, [&](const ChainForm::Input& in) { return in.access == access; }));
}

}  // namespace

int ChainForm::width() const {
  size_t widest = size_of(step[steps - 1].stored);
  for (int i = 0; i < inputs; ++i)
    if (input[i].access == ChainAccess::full) widest = std::max(widest, size_of(input[i].dtype));
  return static_cast<int>(16 / std::max<size_t>(widest, 2));
}
int ChainForm::packs() const {
  const int streams = count(*this, ChainAccess::full);
  const int loads = width() == 8 ? (streams > 2 ? 1 : 2) : streams <= 1 ? 4 : streams <= 3 ? 2 : 1;
  // Every formula is there once for each element a thread has.
  const int copies = steps <= 4 ? 4 : steps <= 8 ? 2 : 1;
  return std::min(loads, copies);
}

std::string chain_source(const ChainForm& f) {
  std::string inputs, parameters;
  for (int i = 0; i < f.inputs; ++i) {
    inputs += (i ? ", " : "") + input_type(f, i);
    const bool passed = f.input[i].access == ChainAccess::passed;
    parameters += fmt::format(", [[maybe_unused]] {} x{}", passed ? "ChainNumber" : cpp_type(f.input[i].dtype), i);
  }
  std::string steps;
  for (int s = 0; s < f.steps; ++s) steps += step_text(f, s);
  const char* out = cpp_type(f.step[f.steps - 1].stored);
  return fmt::format(
      "#include \"kernels/cuda/elementwise/chain.cuh\"\n"
      "#include \"ops/binary.h\"\n"
      "#include \"ops/ternary.h\"\n"
      "#include \"ops/unary.h\"\n"
      "namespace deft::cuda {{\n"
      "struct Steps {{\n"
      "  __device__ __forceinline__ static {0} call(const ChainArgs& a{1}) {{\n"
      "{2}"
      "  }}\n"
      "}};\n"
      "extern \"C\" __global__ void __launch_bounds__(kChainThreads) {3}(const __grid_constant__ ChainArgs args) {{\n"
      "  Chain<Steps, {0}, Inputs<{4}>, {5}, {6}>::run(args);\n"
      "}}\n"
      "}}\n",
      out, parameters, steps, kChainKernel, inputs, f.width(), f.packs());
}

}  // namespace deft
