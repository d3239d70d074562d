// Chains of elementwise ops in one generated kernel: the same bits as the ops one by one.
#include <cstring>
#include <limits>

#include "cuda/cuda_util.h"
#include "ops/all_ops.h"
#include "ops/elementwise.h"
#include "ops/op_table.h"

namespace deft {

namespace {

using Chain = ElementwiseChain;

// Every NaN as the same one: which of two operands hands on its payload is the compiler's choice.
Tensor plain_nan(const Tensor& t) { return is_floating(t.dtype()) ? where(isnan(t), full_like(t, NAN), t) : t; }

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  ASSERT_EQ(a.numel(), b.numel()) << what;
  Tensor x = plain_nan(host(a).contiguous()), y = plain_nan(host(b).contiguous());
  const size_t size = size_of(x.dtype());
  const auto *p = static_cast<const char*>(x.data_ptr()), *q = static_cast<const char*>(y.data_ptr());
  int64_t wrong = 0, first = -1;
  for (int64_t i = 0; i < x.numel(); ++i)
    if (std::memcmp(p + static_cast<size_t>(i) * size, q + static_cast<size_t>(i) * size, size) != 0) {
      if (first < 0) first = i;
      ++wrong;
    }
  EXPECT_EQ(wrong, 0) << what << ": the first of them is element " << first;
}

// Adds steps to a chain and runs each at once as the op it is.
struct Builder {
  Chain::Params p;
  std::vector<Tensor> inputs, made;

  explicit Builder(const Tensor& like) {
    p.like = 0;
    input(like);
  }
  int input(const Tensor& t) {
    const int i = p.inputs++;
    p.period[i] = t.device().is_cpu() ? 1 : i == 0 || t.sizes() == inputs[0].sizes() ? 0 : t.numel();
    inputs.push_back(t);
    return i;
  }
  int number(Scalar value) { return input(wrap_number(value)); }
  const Tensor& value(int from) const {
    return from < Chain::kInputs ? inputs[static_cast<size_t>(from)] : made[static_cast<size_t>(from - Chain::kInputs)];
  }
  int step(const OpDef& def, std::initializer_list<int> from, const void* params = nullptr) {
    std::vector<const Tensor*> in;
    for (int i : from) in.push_back(&value(i));
    alignas(16) std::byte copy[Chain::kParamBytes] = {};
    if (def.params_bytes) std::memcpy(copy, params, def.params_bytes);
    Tensor out;
    dispatch(def, in.data(), static_cast<int>(in.size()), &out, copy, Site::current());
    return add(op_index(def), from, copy, out);
  }
  int gradient(const OpDef& def, std::initializer_list<int> from, const void* params = nullptr) {
    ElementwiseGradient::Params g{op_index(def), value(*(from.begin() + 1)).dtype()};
    if (def.params_bytes) std::memcpy(g.params.data(), params, def.params_bytes);
    auto at = from.begin();
    Tensor out = call<ElementwiseGradient>(Site::current(), g, value(at[0]), value(at[1]), value(at[2]));
    return add(~op_index(def), from, g.params.data(), out);
  }
  Tensor run() const { return call_list<Chain>(Site::current(), p, inputs); }
  void check(const std::string& what) const {
    NoGradGuard off;
    expect_same_bits(run(), made.back(), what);
    // Without NVRTC.
    Tensor out = run();
    out.zero_();
    std::vector<const Tensor*> in;
    for (const Tensor& t : inputs) in.push_back(&t);
    KernelCall c{op_def<Chain>, in.data(), static_cast<int>(in.size()), &out, &p};
    if constexpr (DEFT_TEST_CUDA) Chain::cuda_one_by_one(c);
    expect_same_bits(out, made.back(), what + ", one by one");
  }

 private:
  int add(int op, std::initializer_list<int> from, const void* params, const Tensor& out) {
    Chain::Step& s = p.step[p.steps++];
    s.op = op;
    s.stored = out.dtype();
    for (int i : from) s.in[s.inputs++] = static_cast<uint8_t>(i);
    std::memcpy(s.params, params, Chain::kParamBytes);
    made.push_back(out);
    return Chain::kInputs + p.steps - 1;
  }
};

// Values of both signs with special ones among them.
Tensor values_for(DType t, IntList sizes, uint64_t seed) {
  Tensor x = sample(sizes, seed) * 3;
  if (is_floating(t)) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const double special[] = {0.0, -0.0, kInf, -kInf, NAN, 1, -1, 1e-40, 7e4};
    for (size_t i = 0; i < std::size(special); ++i)
      if (static_cast<int64_t>(11 * i + seed) < x.numel()) x.data<double>()[11 * i + seed] = special[i];
  } else {
    x = x * 20;
  }
  return (t == DType::u8 ? x.abs() : t == DType::boolean ? x > 0 : x).to(t).to(kCUDA);
}

struct CudaChain : GpuTest {
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !Chain::fuses_on(kCUDA)) GTEST_SKIP() << "no NVRTC";
  }
};

template <class Op>
void check_op(DType t) {
  const OpDef& def = op_def<Op>;
  typename detail::ParamsOf<Op>::type params{};
  constexpr int64_t kElements = 3001;
  const bool condition = def.elementwise->condition;
  auto takes = [&](const cpu::ChunkFn* (*table)()) {
    return table && table()[def.elementwise->row * kDTypeCount + static_cast<int>(elementwise::compute_type(t))];
  };
  if (takes(def.elementwise->table) && (condition || def.info.dtypes.contains(t))) {
    Builder b(values_for(condition ? DType::boolean : t, {kElements}, 1));
    if (def.info.inputs > 1) b.input(values_for(t, {kElements}, 2));
    if (def.info.inputs > 2) b.input(values_for(t, {kElements}, 3));
    if (def.info.inputs == 1) b.step(def, {0}, &params);
    if (def.info.inputs == 2) b.step(def, {0, 1}, &params);
    if (def.info.inputs == 3) b.step(def, {0, 1, 2}, &params);
    b.check(std::string(def.info.name) + " of " + std::string(name_of(t)));
  }
  if (takes(def.elementwise->grad_table) && is_floating(t)) {
    Builder b(values_for(t, {kElements}, 1));
    b.gradient(def, {0, b.input(values_for(t, {kElements}, 2)), b.input(values_for(t, {kElements}, 3))}, &params);
    b.check("the gradient of " + std::string(def.info.name) + " of " + std::string(name_of(t)));
  }
}

struct CudaChainOf : CudaChain, ::testing::WithParamInterface<DType> {};

// A kernel is compiled for each: formulas are the same text for all types, so of the stored types a quarter will do.
int turn = 0;
template <class Op>
void check_op_in_turn(DType t) {
  if (t == DType::f32 || t == DType::f64 || turn++ % 4 == 0) check_op<Op>(t);
}

}  // namespace

TEST_P(CudaChainOf, EveryOp) {
#define DEFT_UNARY(Type, function) check_op_in_turn<Type>(GetParam());
#include "ops/activation.def"
#include "ops/unary.def"
#undef DEFT_UNARY
#define DEFT_BINARY(Type, function) check_op_in_turn<Type>(GetParam());
#include "ops/binary.def"
#undef DEFT_BINARY
#define DEFT_TERNARY(Type, function) check_op_in_turn<Type>(GetParam());
#include "ops/ternary.def"
#undef DEFT_TERNARY
}
INSTANTIATE_TEST_SUITE_P(Types, CudaChainOf, ::testing::Values(DType::f32, DType::f64, DType::bf16, DType::i32),
                         [](const auto& p) { return std::string(name_of(p.param)); });

// A product and a sum must not become one instruction.
TEST_F(CudaChain, ProductsAreRounded) {
  for (DType t : {DType::f32, DType::f64}) {
    Builder b(sample_on(kCUDA, {10007}, 1, t));
    int y = b.input(sample_on(kCUDA, {10007}, 2, t)), z = b.input(sample_on(kCUDA, {10007}, 3, t));
    int m = b.step(op_def<Mul>, {0, y});
    int s = b.step(op_def<Add>, {m, z});
    int d = b.step(op_def<Sub>, {s, b.step(op_def<Mul>, {s, s})});
    b.step(op_def<Addcmul>, {d, s, m}, std::array<Addcmul::Params, 1>{{{0.3}}}.data());
    b.check(std::string(name_of(t)));
  }
}

TEST_F(CudaChain, EverySizeAndType) {
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::u8, DType::i32, DType::i64})
    for (int64_t n : {0, 1, 3, 7, 255, 1024, 2048, 4096, 4097, 12345, 100003}) {
      Builder b(values_for(t, {n}, 1));
      int y = b.input(values_for(t, {n}, 2));
      int s = b.step(op_def<Add>, {b.step(op_def<Mul>, {0, y}), y});
      int mask = b.step(op_def<Gt>, {s, 0});
      b.step(op_def<Where>, {mask, s, b.step(op_def<Neg>, {y})});
      b.check(std::string(name_of(t)) + ", " + std::to_string(n) + " elements");
    }
}

TEST_F(CudaChain, EveryPeriod) {
  for (DType t : {DType::f32, DType::bf16, DType::f64})
    for (int64_t row : {2, 3, 7, 8, 64, 100, 1000, 4096}) {
      Builder b(values_for(t, {37, row}, 1));
      int bias = b.input(values_for(t, {row}, 2)), scale = b.input(values_for(t, {1, row}, 3));
      int one = b.input(values_for(t, {1}, 4)), three = b.number(3), half = b.number(0.3);
      int s = b.step(op_def<Mul>, {b.step(op_def<Add>, {0, bias}), scale});
      int u = b.step(op_def<Div>, {b.step(op_def<Sub>, {s, one}), three});
      b.step(op_def<Mul>, {half, b.step(op_def<Silu>, {u})});
      b.check(std::string(name_of(t)) + ", rows of " + std::to_string(row));
    }
}

// Each operand is converted to the type its op would promote it to.
TEST_F(CudaChain, MixedTypes) {
  Builder b(values_for(DType::bf16, {50, 24}, 1));
  int mask = b.input(values_for(DType::u8, {50, 24}, 2)), wide = b.input(values_for(DType::f32, {24}, 3));
  int whole = b.input(values_for(DType::i32, {50, 24}, 4)), flags = b.input(values_for(DType::boolean, {50, 24}, 5));
  int s = b.step(op_def<Mul>, {0, mask});
  int u = b.step(op_def<Add>, {s, wide});
  int v = b.step(op_def<Mul>, {whole, b.number(7)});
  int w = b.step(op_def<Add>, {v, mask});
  int x = b.step(op_def<Where>, {flags, u, w});
  b.step(op_def<Ge>, {b.step(op_def<Tanh>, {x}), b.number(0.25)});
  b.check("mixed types");
}

TEST_F(CudaChain, OtherOrdersOfMemory) {
  Tensor x = values_for(DType::f32, {4, 6, 5, 3}, 1).permute({0, 3, 1, 2});
  Tensor y = values_for(DType::f32, {4, 6, 5, 3}, 2).permute({0, 3, 1, 2});
  Builder b(x);
  int per_channel = b.input(values_for(DType::f32, {3}, 3).view({3, 1, 1}));
  b.step(op_def<Exp>, {b.step(op_def<Add>, {b.step(op_def<Mul>, {0, b.input(y)}), per_channel})});
  b.check("channels last");
  EXPECT_EQ(b.run().strides(), x.strides());
}

TEST_F(CudaChain, UnalignedMemory) {
  for (DType t : {DType::f32, DType::bf16, DType::u8}) {
    Tensor all = values_for(t, {20001}, 1), rows = values_for(t, {65}, 2);
    Builder b(all.narrow(0, 1, 6400).view({100, 64}));
    int y = b.input(all.narrow(0, 8000, 6400).view({100, 64}));
    b.step(op_def<Add>, {b.step(op_def<Mul>, {0, y}), b.input(rows.narrow(0, 1, 64))});
    b.check(std::string(name_of(t)));
  }
}

TEST_F(CudaChain, WritesInPlace) {
  Builder b(values_for(DType::f32, {33, 64}, 1));
  b.step(op_def<Mul>,
         {b.step(op_def<Sigmoid>, {0}), b.step(op_def<Add>, {0, b.input(values_for(DType::f32, {64}, 2))})});
  Tensor x = b.inputs[0].clone();
  const Tensor* inputs[] = {&x, &b.inputs[1]};
  NoGradGuard off;
  dispatch_inplace(op_def<Chain>, inputs, 2, &b.p, Site::current());
  expect_same_bits(x, b.made.back(), "in place");
}

TEST_F(CudaChain, NumbersAndParametersNeedNoNewKernel) {
  for (double slope : {0.1, 0.2, 0.3}) {
    Builder b(values_for(DType::f32, {1000}, 1));
    LeakyRelu::Params p{slope};
    b.step(op_def<Add>, {b.step(op_def<LeakyRelu>, {0}, &p), b.number(slope)});
    b.check(std::to_string(slope));
  }
}

}  // namespace deft
