// Results that are written past the caches are the same bits as those that are not. The limit is lowered for the test:
// what streams is otherwise larger than a test should be.
#include "kernels/cpu/copy/streaming_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"
#include "runtime/parallel.h"
#include "runtime/threads_util.h"

namespace deft {
namespace {

using test::Threads;

struct StreamLimit {
  int64_t before = cpu::stream_bytes_per_thread();
  explicit StreamLimit(int64_t bytes) { cpu::set_stream_bytes_per_thread(bytes); }
  ~StreamLimit() { cpu::set_stream_bytes_per_thread(before); }
};

void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  const Tensor x = a.contiguous(), y = b.contiguous();
  EXPECT_EQ(std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * size_of(x.dtype())), 0) << what;
}

// `make` with everything streamed and with nothing, on one thread and two.
void expect_same_bits(const std::string& what, const std::function<Tensor()>& make) {
  for (int threads : {1, 2}) {
    Threads use(threads);
    Tensor plain, streamed;
    {
      StreamLimit never(0);
      plain = make();
    }
    {
      StreamLimit always(1);
      streamed = make();
    }
    expect_same(plain, streamed, what + ", threads: " + std::to_string(threads));
  }
}

// Odd sizes end in parts of lines and of blocks; an offset begins in one.
std::vector<Tensor> inputs(DType t) {
  RngScope scope({5, 1});
  std::vector<Tensor> all;
  for (const Shape& s : {Shape{300, 1024}, Shape{301, 1000}, Shape{257, 1027}}) all.push_back(randn(s).to(t));
  all.push_back(randn({300 * 1024 + 3}).to(t).narrow(0, 3, 300 * 1024).view({300, 1024}));
  return all;
}

TEST(Stream, OnlyWhatIsLargerThanTheCaches) {
  if (!cpu::kHasStreams) GTEST_SKIP() << "this machine needs no such stores";
  Threads one(1);
  StreamLimit limit(8 << 20);
  EXPECT_FALSE(cpu::streams((8 << 20) - 1));
  EXPECT_TRUE(cpu::streams(8 << 20));
  StreamLimit never(0);
  EXPECT_FALSE(cpu::streams(int64_t{1} << 40));
}

TEST(Stream, CopiesAnyPartOfALine) {
  std::mt19937 random(1);
  std::vector<char> from(1024), to(1024);
  for (char& c : from) c = static_cast<char>(random());
  for (size_t at = 0; at < 130; ++at)
    for (size_t bytes : {0, 1, 15, 63, 64, 65, 128, 191, 500}) {
      std::fill(to.begin(), to.end(), 7);
      cpu::stream_copy(to.data() + at, from.data() + at / 2, bytes);
      cpu::end_stream();
      ASSERT_EQ(std::memcmp(to.data() + at, from.data() + at / 2, bytes), 0) << at << " " << bytes;
      for (size_t i = 0; i < to.size(); ++i)
        if (i < at || i >= at + bytes) {
          ASSERT_EQ(to[i], 7) << at << " " << bytes << " " << i;
        }
    }
}

TEST(Stream, ElementwiseOps) {
  InferenceModeGuard guard;
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const Tensor& x : inputs(t)) {
      const Tensor row = x.select(0, 1), y = flip(x, {0});
      expect_same_bits("relu", [&] { return relu(x); });
      expect_same_bits("gelu", [&] { return gelu(x); });
      expect_same_bits("add", [&] { return x + y; });
      expect_same_bits("comparison", [&] { return x > y; });
      expect_same_bits("broadcast", [&] { return x * row; });
      expect_same_bits("transposed", [&] { return relu(x.transpose(0, 1)); });
      expect_same_bits("cast", [&] { return x.to(t == DType::f32 ? DType::bf16 : DType::f32); });
      expect_same_bits("in place", [&] {
        Tensor z = x.clone();
        z.mul_(y);
        return z;
      });
    }
}

TEST(Stream, RowsAndTheirGradients) {
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (const Tensor& x : inputs(t)) {
      const int64_t n = x.size(1);
      const Tensor weight = x.select(0, 2).clone(), bias = x.select(0, 3).clone(), g = flip(x, {0});
      const auto both = [&](const std::string& what, const std::function<Tensor(const Tensor&)>& f) {
        expect_same_bits(what, [&] {
          InferenceModeGuard guard;
          return f(x);
        });
        expect_same_bits(what + " backward", [&] {
          Tensor leaf = x.clone().requires_grad_();
          f(leaf).backward(g);
          return leaf.grad();
        });
      };
      both("softmax", [](const Tensor& v) { return softmax(v, 1); });
      both("log_softmax", [](const Tensor& v) { return log_softmax(v, 1); });
      both("layer_norm", [&](const Tensor& v) { return layer_norm(v, {n}, weight, bias); });
      both("rms_norm", [&](const Tensor& v) { return rms_norm(v, {n}, weight); });
    }
}

TEST(Stream, BatchNormInBothLayouts) {
  RngScope scope({5, 2});
  for (DType t : {DType::f32, DType::bf16})
    for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const Tensor x = randn({4, 32, 48, 48}).to(t).contiguous(format), g = flip(x, {0}).contiguous(format);
      const Tensor weight = randn({32}), bias = randn({32});
      const auto norm = [&](const Tensor& v) { return batch_norm(v, Tensor(), Tensor(), weight, bias, true); };
      expect_same_bits("batch_norm", [&] {
        InferenceModeGuard guard;
        return norm(x);
      });
      expect_same_bits("batch_norm backward", [&] {
        Tensor leaf = x.clone().requires_grad_();
        norm(leaf).backward(g);
        return leaf.grad();
      });
    }
}

TEST(Stream, Transposes) {
  InferenceModeGuard guard;
  RngScope scope({5, 3});
  for (DType t : {DType::f32, DType::bf16, DType::f64, DType::u8})
    for (const Shape& s : {Shape{512, 1024}, Shape{300, 700}, Shape{1000, 333}, Shape{2048, 129}}) {
      const Tensor x = (randn(s) * 50).to(t);
      expect_same_bits("transpose", [&] { return x.transpose(0, 1).contiguous(); });
      const Tensor back = x.transpose(0, 1).contiguous().transpose(0, 1).contiguous();
      expect_same(x, back, "twice");
    }
}

TEST(Stream, CompiledChains) {
  for (DType t : {DType::f32, DType::bf16}) {
    InferenceModeGuard guard;
    const Tensor x = inputs(t)[0], y = flip(x, {0}), row = x.select(0, 1).clone();
    for (bool rows : {false, true})
      expect_same_bits(rows ? "chain with a row" : "chain", [&] {
        auto f = compile([&](const std::vector<Tensor>& in) {
          const Tensor z = relu(in[0] * in[1] + in[0]) - in[1];
          return std::vector<Tensor>{(rows ? z * row : z) + in[0]};
        });
        f.run({x, y});  // captures
        const Tensor result = f.run({x, y})[0];
        EXPECT_EQ(f.stats().replays, 1);
        EXPECT_NE(f.explain().find("elementwise_chain("), std::string::npos) << f.explain();
        return result;
      });
  }
}

}  // namespace
}  // namespace deft
