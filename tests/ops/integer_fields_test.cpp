// Every integer among the parameters of every op, over the same numbers as integer_params_test.cpp, from calls as the
// samples make them: a result or a typed error.
#include <algorithm>

#include "core/grad_mode.h"
#include "core/observer.h"
#include "integer_values.h"
#include "ops/all_ops.h"
#include "ops/op_table.h"
#include "ops/param_fields.h"
#include "ops/sample_inputs.h"
#include "runtime/context.h"

namespace deft::testing {
namespace {

// Made for gradients, whose rules believe what forward ops checked: nothing from outside reaches them.
bool is_gradient(std::string_view name) {
  for (std::string_view end : {"_backward", "_gradient", "_scatter", "_unpack"})
    if (name.ends_with(end)) return true;
  return false;
}

std::vector<ParamField> integers_of(const OpDef& def) {
  std::vector<ParamField> integers;
  for (const ParamField& f : param_fields(def)) {
    if (f.kind == FieldKind::integer) integers.push_back(f);
    if (f.kind != FieldKind::shape) continue;
    for (uint32_t i = 0; i < 2; ++i)  // only the first entries of an array are swept
      integers.push_back({FieldKind::integer, f.offset + 8 + 8 * i, 8});
  }
  return integers;
}

struct Case {
  const OpDef* def;
  std::vector<Meta> inputs;
  std::vector<std::byte> params;
};

// Calls of ops as the samples make them, one of each op.
class Calls final : public Observer {
 public:
  std::vector<Case> all;

  void kernel_ran(const KernelCall& call, const Site&) override {
    const OpDef& def = call.def;
    const bool known = std::any_of(all.begin(), all.end(), [&](const Case& c) { return c.def == &def; });
    if (known || !def.infer || is_gradient(def.info.name) || integers_of(def).empty()) return;
    const auto* params = static_cast<const std::byte*>(call.params_data);
    Case c{&def, {}, {params, params + def.params_bytes}};
    for (int i = 0; i < call.input_count; ++i) c.inputs.push_back(call.has(i) ? call.in(i).meta() : Meta::undefined());
    all.push_back(c);
  }
};
std::vector<Case> cases() {
  Calls calls;
  set_observer(&calls);
  {
    NoGradGuard no_grad;
    ExecContext watched = context();
    watched.bits |= kProfile;
    ContextGuard guard(watched);
    for (const OpSamples& op : all_samples())
      for (const Sample& s : op.good) s.call(make_inputs(s.args, op.dtypes.contains(f32) ? f32 : i64, 1));
  }
  set_observer(nullptr);
  return calls.all;
}

Tensor input_like(const Meta& m) {
  if (!m.defined) return {};
  Tensor t = is_floating(m.dtype) ? rand(m.sizes, m.dtype) : zeros(m.sizes, m.dtype);
  return t.clone();
}

// An op with integers among its parameters needs a sample that runs it.
TEST(IntegerFields, EveryOpIsSwept) {
  const std::vector<Case> all = cases();
  int count = 0;
  for (int i = 0; i < 1000; ++i) {  // places of compositions are empty
    const OpDef* def = op_at(i);
    if (!def || !def->infer || is_gradient(def->info.name) || integers_of(*def).empty()) continue;
    const std::string_view name = def->info.name;
    // The number of a GPU; what only plans are made of: tests/graph/verify_foreign_test.cpp.
    if (name == "to_device" || name.starts_with("fused_")) continue;
    ++count;
    const bool swept = std::any_of(all.begin(), all.end(), [&](const Case& c) { return c.def == def; });
    EXPECT_TRUE(swept) << name << " has integers among its parameters, and no sample runs it by itself";
  }
  EXPECT_GE(count, 20);
}

TEST_F(IntegerParams, OpsByThemselves) {
  const std::vector<Case> all = cases();
  NoGradGuard no_grad;
  for (const Case& c : all) {
    std::vector<Tensor> inputs;
    std::vector<const Tensor*> pointers;
    for (const Meta& m : c.inputs) inputs.push_back(input_like(m));
    for (const Tensor& t : inputs) pointers.push_back(&t);
    const std::vector<ParamField> fields = integers_of(*c.def);
    Numbers good;
    for (const ParamField& f : fields) good.push_back(read_integer(f, c.params.data()));
    for_each_change(good, [&](const Numbers& numbers) {
      std::vector<std::byte> params = c.params;
      for (size_t i = 0; i < fields.size(); ++i)
        if (numbers[i] != good[i]) write_integer(fields[i], params.data(), numbers[i]);
      Tensor outputs[kMaxOutputs];
      try {
        dispatch(*c.def, pointers.data(), static_cast<int>(pointers.size()), outputs, params.data(), Site::current());
      } catch (const InternalError& e) {
        ADD_FAILURE() << c.def->info.name << "(" << text_of(numbers) << "): " << e.what();
      } catch (const Error&) {
      } catch (const std::exception& e) {
        ADD_FAILURE() << c.def->info.name << "(" << text_of(numbers) << ") throws no typed error: " << e.what();
      }
    });
  }
}

}  // namespace
}  // namespace deft::testing
