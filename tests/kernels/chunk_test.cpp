// Shows how a table of ChunkFns for a list of ops is built per target and exported, and tests chunks and elementwise().
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/chunk_test.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/elementwise/chunk-inl.h"

// The ops: defined once, outside the per-target part, with formulas marked DEFT_HD.
#ifndef DEFT_TESTS_CHUNK_OPS
#define DEFT_TESTS_CHUNK_OPS
namespace deft::testops {

struct Tanh {
  template <class V>
  DEFT_HD static V fwd(V x) {
    using math::tanh;
    return tanh(x);
  }
  template <class V>
  DEFT_HD static V grad(V g, V, V y) {
    return g * (V(1) - y * y);
  }
};
struct LeakyRelu {
  struct Params {
    double slope;
  };
  template <class V>
  DEFT_HD static V fwd(V x, const Params& p) {
    using math::select;
    return select(x > V(0), x, x * V(p.slope));
  }
};
struct Add {
  template <class V>
  DEFT_HD static V fwd(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Less {
  template <class V>
  DEFT_HD static auto fwd(V a, V b) {
    return a < b;
  }
};
struct MulAdd {
  template <class V>
  DEFT_HD static V fwd(V a, V b, V c) {
    return static_cast<V>(a * b + c);
  }
};

enum OpIndex { kTanh, kTanhGrad, kLeakyRelu, kAdd, kLess, kMulAdd, kOpCount };

}  // namespace deft::testops
#endif  // DEFT_TESTS_CHUNK_OPS

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {
using namespace deft::testops;

template <class T>
constexpr ChunkFn kFloatTable[kOpCount] = {unary_chunk<Formula<Tanh>, T>,      ternary_chunk<GradFormula<Tanh>, T>,
                                           unary_chunk<Formula<LeakyRelu>, T>, binary_chunk<Formula<Add>, T>,
                                           binary_chunk<Formula<Less>, T>,     ternary_chunk<Formula<MulAdd>, T>};
template <class T>
constexpr ChunkFn kIntTable[kOpCount] = {nullptr,
                                         nullptr,
                                         nullptr,
                                         binary_chunk<Formula<Add>, T>,
                                         binary_chunk<Formula<Less>, T>,
                                         ternary_chunk<Formula<MulAdd>, T>};

// One function per target; DType -> table.
const ChunkFn* test_ops(int dtype) {
  return dispatch_all(static_cast<DType>(dtype), []<class T>() -> const ChunkFn* {
    if constexpr (std::is_floating_point_v<T>) {
      return kFloatTable<T>;
    } else if constexpr (std::is_integral_v<T>) {
      return kIntTable<T>;
    } else {
      return nullptr;
    }
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/strided_data.h"

namespace deft::cpu {
HWY_EXPORT(test_ops);

namespace {
using namespace deft::testops;
using testing::Block;
using testing::kEveryDType;

ChunkFn chunk_of(OpIndex op, DType compute) { return HWY_DYNAMIC_DISPATCH(test_ops)(static_cast<int>(compute))[op]; }

ElementwiseCall make_call(OpIndex op, DType compute, std::vector<int64_t> sizes, std::vector<Block*> in, Block& out,
                          const void* params = nullptr) {
  ElementwiseCall c{};
  c.ndim = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), c.sizes);
  c.inputs = static_cast<int>(in.size());
  for (size_t i = 0; i < in.size(); ++i) c.in[i] = in[i]->operand();
  c.out = out.operand();
  c.compute = compute;
  c.result = op == kLess ? boolean : compute;
  c.fn = chunk_of(op, compute);
  c.params = params;
  return c;
}

// |got - want| within a few units of the output type (inputs are exact in the compute type).
void expect_near(double got, double want, DType out, double ulps, const std::string& what) {
  double tol = ulps * epsilon_of(out) * std::max(1.0, std::fabs(want));
  if (!(std::fabs(got - want) <= tol)) ADD_FAILURE() << what << ": " << got << " want " << want;
}

TEST(Chunk, EveryTailAndMisalignment) {
  for (DType t : {f32, f64}) {
    for (int64_t n = 0; n <= 40; ++n) {
      for (int64_t shift : {0, 1, 2, 3}) {
        Block x(t, {n}, {1}, shift), y(t, {n}, {1}, (shift + 1) % 4), g(t, {n}, {1}), dx(t, {n}, {1}, shift);
        Block less(boolean, {n}, {1}, shift);
        x.fill_random(1, -3, 3);
        g.fill_random(2, -3, 3);
        elementwise(make_call(kTanh, t, {n}, {&x}, y));
        elementwise(make_call(kTanhGrad, t, {n}, {&g, &x, &y}, dx));
        elementwise(make_call(kLess, t, {n}, {&g, &x}, less));
        for (int64_t i = 0; i < n; ++i) {
          double want = std::tanh(x.at(i));
          expect_near(y.at(i), want, t, 5, "tanh");
          expect_near(dx.at(i), g.at(i) * (1 - want * want), t, 24, "tanh grad");
          ASSERT_EQ(less.at(i), g.at(i) < x.at(i));
        }
        ASSERT_TRUE(y.guards_intact() && dx.guards_intact() && less.guards_intact());
        LeakyRelu::Params p{0.25};
        elementwise(make_call(kLeakyRelu, t, {n}, {&x}, y, &p));
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y.at(i), x.at(i) > 0 ? x.at(i) : x.at(i) * 0.25);
      }
    }
  }
}

TEST(Elementwise, RandomViewsAndDTypes) {
  std::mt19937 rng(17);
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<int64_t> sizes(rng() % 6);
    const size_t longest = sizes.size() > 3 ? 5 : sizes.size() > 1 ? 30 : 2000;
    for (int64_t& s : sizes) s = rng() % 30 == 0 ? 0 : 1 + rng() % longest;
    if (sizes.size() == 2 && rng() % 3 == 0) sizes[rng() % 2] = 1 + rng() % 1500;
    const OpIndex op = std::array{kAdd, kLess, kMulAdd}[rng() % 3];
    const DType compute = std::array{f32, f64, i32, i64, u8}[rng() % 5];
    std::vector<Block> in;
    for (int i = 0; i < (op == kMulAdd ? 3 : 2); ++i) {
      DType t = rng() % 2 ? compute : kEveryDType[rng() % 9];
      in.emplace_back(t, sizes, testing::random_strides(sizes, rng, false), rng() % 3);
      for (int64_t k = 0; k < in.back().total(); ++k) in.back().set(k, rng() % 7);  // exact in every type
    }
    DType to = op == kLess ? boolean : compute;
    if (rng() % 3 == 0) to = kEveryDType[rng() % 9];
    Block out(to, sizes, testing::random_strides(sizes, rng, true), rng() % 3);
    std::vector<Block*> pointers;
    for (Block& b : in) pointers.push_back(&b);
    elementwise(make_call(op, compute, sizes, pointers, out));
    for (int64_t k = 0; k < out.total(); ++k) {
      auto v = [&](int i) { return in[i].at(k); };
      double want = op == kAdd ? v(0) + v(1) : op == kLess ? v(0) < v(1) : v(0) * v(1) + v(2);
      ASSERT_EQ(out.at(k), to == boolean ? want != 0 : want) << "trial " << trial << " at " << k;
    }
    ASSERT_TRUE(out.guards_intact()) << "trial " << trial;
  }
}

TEST(Elementwise, LargeBroadcastAndInPlace) {
  const std::vector<int64_t> sizes = {300, 700};
  Block x(f32, sizes, {700, 1}), row(f32, sizes, {0, 1}), col(bf16, sizes, {1, 0}), out(f32, sizes, {700, 1});
  for (int64_t i = 0; i < x.total(); ++i) x.set(i, i % 97);
  for (int64_t i = 0; i < 700; ++i) row.set(i, i % 13);
  for (int64_t i = 0; i < 300; ++i) col.set(i * 700, i % 11);
  elementwise(make_call(kMulAdd, f32, sizes, {&x, &row, &col}, out));
  for (int64_t i = 0; i < x.total(); ++i) ASSERT_EQ(out.at(i), (i % 97) * (i % 700 % 13) + i / 700 % 11);
  elementwise(make_call(kAdd, f32, sizes, {&x, &row}, x));
  for (int64_t i = 0; i < x.total(); ++i) ASSERT_EQ(x.at(i), i % 97 + i % 700 % 13);
}

TEST(Elementwise, ChannelsLastWithSmallInnerDim) {
  const std::vector<int64_t> sizes = {4, 3, 33, 35}, nhwc = {3 * 33 * 35, 1, 3 * 35, 3};
  Block x(f32, sizes, nhwc), bias(f32, sizes, {0, 1, 0, 0}), out(bf16, sizes, nhwc);
  for (int64_t i = 0; i < x.total(); ++i) x.set(i, i % 64);
  for (int64_t c = 0; c < 3; ++c) bias.set(c * 33 * 35, 10 * c);
  elementwise(make_call(kAdd, f32, sizes, {&x, &bias}, out));
  for (int64_t i = 0; i < x.total(); ++i) ASSERT_EQ(out.at(i), i % 64 + 10 * (i / (33 * 35) % 3));
}

// Every kind of float: ties, NaN, infinities and, in some places, many subnormals.
std::vector<float> random_floats(size_t n) {
  std::mt19937 rng(5);
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits = rng();
    if (i % 3 == 0) bits = (bits & 0xffff0000) | 0x8000;
    if (i / 500 % 2 == 0) bits |= 0x00800000;
    if (i / 500 % 5 == 1) bits &= 0x807fffff;
    x[i] = std::bit_cast<float>(bits);
  }
  return x;
}

TEST(Elementwise, RoundsToBf16AsTheScalarDoes) {
  const int64_t limit = stream_bytes_per_thread();
  for (int64_t n : {0, 1, 31, 32, 33, 1000, 5000, 300000}) {
    const std::vector<float> x = random_floats(static_cast<size_t>(n));
    for (int64_t bytes : {int64_t{0}, int64_t{1} << 16}) {  // through the caches, and past them
      set_stream_bytes_per_thread(bytes);
      Block in(f32, {n}, {1}), out(bf16, {n}, {1}, 1);
      const LeakyRelu::Params same{1};
      ElementwiseCall call = make_call(kLeakyRelu, f32, {n}, {&in}, out, &same);
      call.in[0].data = const_cast<float*>(x.data());
      elementwise(call);
      const auto* got = static_cast<const BFloat16*>(call.out.data);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got[i].bits, BFloat16(x[i]).bits) << i << " of " << n;
      ASSERT_TRUE(out.guards_intact());
    }
  }
  set_stream_bytes_per_thread(limit);
}

}  // namespace
}  // namespace deft::cpu
#endif  // HWY_ONCE
