// Stands for core/tensor.h and ops/elementwise.h where NVRTC compiles the headers of elementwise ops: all but their
// formulas becomes empty.
#ifndef DEFT_FORMULA_DEVICE
#define DEFT_FORMULA_DEVICE

#include "base/math.h"
#include "core/scalar.h"

namespace deft {

struct Tensor {
  bool defined() const;
};
struct Site {
  static constexpr Site current() { return {}; }
};
struct VjpContext {};
struct KernelCall;
struct Meta;
struct OpSamples;
struct Domain {
  double low = -2, high = 2, away_from = 0, period = 0;
};
namespace domains {
inline constexpr Domain kReal{};
inline constexpr Domain kAwayFromZero{};
}  // namespace domains
enum class ResultType : uint8_t { same, floating, boolean };

// ---- What an op says about itself
struct OnnxName {
  const char* name = nullptr;
  int since_opset = 0;
};
enum class Autocast : uint8_t { none, low, fp32, promote };
constexpr uint16_t input(int) { return 0; }
constexpr uint16_t output(int = 0) { return 0; }
struct OpInfo {};
struct Uses {
  uint16_t bits[6];
};
constexpr OpInfo unary_info(const char*, DTypeSet, uint16_t, OnnxName = {}, Autocast = Autocast::promote) { return {}; }
constexpr OpInfo binary_info(const char*, DTypeSet, uint16_t, uint16_t, OnnxName = {}, Autocast = Autocast::promote) {
  return {};
}
constexpr OpInfo ternary_info(const char*, DTypeSet, Uses, OnnxName = {}) { return {}; }

// ---- Its entry in the tables
struct OpDef {};
template <class Op>
inline constexpr OpDef op_def{};
struct Ignored {
  constexpr Ignored() {}
  constexpr Ignored(const int*) {}
};
struct ElementwiseDef {
  uint16_t row;
  ResultType result;
  Ignored table, grad_table{};
  bool condition = false;
  Ignored cuda{};
};
#define DEFT_TABLE(name) inline constexpr int name = 0;
DEFT_TABLE(unary_table)
DEFT_TABLE(unary_grad_table)
DEFT_TABLE(activation_table)
DEFT_TABLE(activation_grad_table)
DEFT_TABLE(binary_table)
DEFT_TABLE(ternary_table)
DEFT_TABLE(unary_cuda)
DEFT_TABLE(activation_cuda)
DEFT_TABLE(binary_cuda)
DEFT_TABLE(ternary_cuda)
#undef DEFT_TABLE
namespace elementwise {
template <class Op>
inline constexpr bool has_condition = false;
template <class Op>
constexpr OpDef make_def(const ElementwiseDef*) {
  return {};
}
}  // namespace elementwise

}  // namespace deft

#endif
