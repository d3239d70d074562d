// Weights that linear, matmul and conv keep packed: the same bits as without, after every kind of write.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "deft/deft.h"

namespace deft {
namespace {

class KeptWeights : public testing::Test {
 protected:
  KeptWeights() : outer_(derived_cache_limit()) {
    clear_derived_cache();
    set_derived_cache_limit(1 << 28);
    before_ = derived_cache_stats();
  }
  ~KeptWeights() override {
    set_conv_winograd(false);
    clear_derived_cache();
    set_derived_cache_limit(outer_);
  }
  int64_t hits() const { return derived_cache_stats().hits - before_.hits; }

  // f() packs in the call the first time, keeps the second time and finds from then on.
  template <class F>
  void expect_same_bits(F f, bool kept = true) {
    const int64_t before = hits();
    const Tensor plain = f(), keeping = f(), found = f(), again = f();
    EXPECT_EQ(hits() - before, kept ? 2 : 0);
    for (const Tensor& t : {keeping, found, again}) EXPECT_TRUE(same_bits(t, plain));
  }
  static bool same_bits(const Tensor& a, const Tensor& b) {
    return a.sizes() == b.sizes() && a.strides() == b.strides() &&
           std::memcmp(a.data_ptr(), b.data_ptr(), static_cast<size_t>(a.numel()) * a.element_size()) == 0;
  }
  // f() with packing in the call.
  template <class F>
  static Tensor without(F f) {
    set_derived_cache_limit(0);
    Tensor y = f();
    set_derived_cache_limit(1 << 28);
    return y;
  }

 private:
  size_t outer_;
  DerivedCacheStats before_;
};

TEST_F(KeptWeights, Linear) {
  NoGradGuard guard;
  for (DType dtype : {f32, f64, bf16, f16}) {
    Tensor w = randn({130, 100}).to(dtype), bias = randn({130}).to(dtype);
    for (int64_t rows : {33, 64, 200}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(rows));
      Tensor x = randn({rows, 100}).to(dtype);
      clear_derived_cache();
      expect_same_bits([&] { return linear(x, w, bias); });
    }
  }
}

TEST_F(KeptWeights, OnePackForAllRowCounts) {
  NoGradGuard guard;
  Tensor w = randn({120, 120});
  Tensor a = randn({40, 120}), b = randn({7, 64, 120}), c = randn({120, 90}).t(),
         d = randn({120, 48, 9}).permute({2, 1, 0});
  linear(a, w), linear(a, w);
  for (const Tensor& x : {a, b, c, d}) {
    const int64_t before = hits();
    Tensor y = linear(x, w);
    EXPECT_EQ(hits() - before, 1);
    EXPECT_TRUE(same_bits(y, without([&] { return linear(x, w); })));
    linear(a, w), linear(a, w);
  }
}

TEST_F(KeptWeights, Matmul) {
  NoGradGuard guard;
  Tensor w = randn({96, 128}), square = randn({100, 100});
  Tensor x = randn({50, 96}), xt = randn({50, 128}), many = randn({3, 20, 96}), xs = randn({40, 100});
  expect_same_bits([&] { return matmul(x, w); });
  expect_same_bits([&] { return matmul(xt, w.t()); });
  expect_same_bits([&] { return matmul(many, w.narrow(1, 0, 100)); });
  expect_same_bits([&] { return matmul(xs, square); });
  expect_same_bits([&] { return matmul(xs, square.t()); });
  expect_same_bits([&] { return linear(xs, square.t()); });
  EXPECT_FALSE(same_bits(matmul(xs, square), matmul(xs, square.t())));
}

TEST_F(KeptWeights, SlicesOfOneStorage) {
  NoGradGuard guard;
  Tensor qkv = randn({3 * 96, 96}), x = randn({40, 96});
  Tensor q = qkv.narrow(0, 0, 96), k = qkv.narrow(0, 96, 96), v = qkv.narrow(0, 192, 96);
  Tensor expected[] = {linear(x, q), linear(x, k), linear(x, v)};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(linear(x, q), expected[0]));
    EXPECT_TRUE(same_bits(linear(x, k), expected[1]));
    EXPECT_TRUE(same_bits(linear(x, v), expected[2]));
  }
  EXPECT_EQ(derived_cache_stats().objects, 3);
  q.fill_(0);
  EXPECT_EQ(linear(x, q).abs().amax().item(), 0);
  EXPECT_TRUE(same_bits(linear(x, v), expected[2]));
}

TEST_F(KeptWeights, FewRowsAndSmallOrBatchedRightSidesAreNotKept) {
  NoGradGuard guard;
  Tensor w = randn({100, 100}), x = randn({2, 100}), small = randn({20, 20}), y = randn({50, 20});
  Tensor batch = randn({5, 100, 100}), z = randn({5, 40, 100}), whole = ones({100, 100}, i64);
  expect_same_bits([&] { return linear(x, w); }, false);
  expect_same_bits([&] { return linear(y, small); }, false);
  expect_same_bits([&] { return matmul(z, batch); }, false);
  expect_same_bits([&] { return matmul(whole, whole); }, false);
  EXPECT_EQ(derived_cache_stats().objects, 0);
}

TEST_F(KeptWeights, ColumnThatABatchRepeats) {
  NoGradGuard guard;
  Tensor w = randn({9000, 1}), x = randn({20, 9000});
  for (int64_t batch : {40, 40, 40, 80, 20}) {
    const auto f = [&] { return matmul(x.unsqueeze(0).expand({batch, 20, 9000}), w); };
    EXPECT_TRUE(same_bits(f(), without(f))) << batch;
  }
}

TEST_F(KeptWeights, FollowTheWeight) {
  NoGradGuard guard;
  Tensor w = randn({100, 120}), x = randn({30, 120}), gradient = randn({100, 120});
  Tensor kernel = randn({32, 16, 3, 3}), image = randn({2, 16, 9, 9});
  const auto check = [&] {
    const auto product = [&] { return linear(x, w); };
    const auto convolution = [&] { return conv2d(image, kernel, {}, {1}, {1}); };
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(product(), without(product)));
      EXPECT_TRUE(same_bits(convolution(), without(convolution)));
      product(), product(), convolution(), convolution();
    }
    const int64_t before = hits();
    product(), convolution();
    EXPECT_EQ(hits() - before, 2);
  };
  check();
  w.addcmul_(gradient, ones({1}), -0.1), kernel.mul_(0.5);  // as an optimizer does
  check();
  w.detach().select(0, 7).fill_(3), kernel.select(1, 2).zero_();
  check();
  w.data<float>()[11] = 5, kernel.data<float>()[11] = 5;
  check();
  w = randn({100, 120}), kernel = randn({32, 16, 3, 3});
  check();
}

TEST_F(KeptWeights, Conv) {
  NoGradGuard guard;
  struct Case {
    int64_t in, out, kernel, stride, groups, side, batch;
  };
  for (const Case& c : {Case{16, 24, 3, 1, 1, 9, 1},
                        {16, 24, 3, 2, 1, 11, 3},
                        {64, 32, 1, 1, 1, 7, 1},
                        {64, 32, 1, 1, 1, 7, 4},
                        {32, 48, 3, 1, 4, 8, 2},
                        {3, 64, 7, 2, 1, 20, 1},
                        {128, 128, 3, 1, 128, 10, 2}}) {
    for (DType dtype : {f32, f64, bf16, f16}) {
      for (bool channels_last : {false, true}) {
        SCOPED_TRACE(testing::Message() << c.in << " " << c.out << " " << c.kernel << " " << c.groups << " "
                                        << name_of(dtype) << (channels_last ? " last" : " first"));
        Tensor x = randn({c.batch, c.in, c.side, c.side}).to(dtype), bias = randn({c.out}).to(dtype);
        if (channels_last) x = x.contiguous(MemoryFormat::channels_last);
        Tensor w = randn({c.out, c.in / c.groups, c.kernel, c.kernel}).to(dtype);
        Tensor w_last = w.contiguous(MemoryFormat::channels_last);
        // Depthwise filters of their own type are read as they lie.
        const bool kept = c.groups < c.in || channels_last || dtype == bf16 || dtype == f16;
        const auto run = [&](const Tensor& weight) {
          return conv2d(x, weight, bias, {c.stride}, {c.kernel / 2}, {1}, c.groups);
        };
        expect_same_bits([&] { return run(w); }, kept);
        if (w_last.strides() == w.strides()) continue;
        expect_same_bits([&] { return run(w_last); }, kept);
        EXPECT_TRUE(same_bits(run(w), run(w_last)));
      }
    }
  }
}

TEST_F(KeptWeights, Winograd) {
  NoGradGuard guard;
  Tensor x = randn({1, 32, 32, 32}).contiguous(MemoryFormat::channels_last), w = randn({48, 32, 3, 3});
  const auto f = [&] { return conv2d(x, w, {}, {1}, {1}); };
  expect_same_bits(f);
  const Tensor direct = f();
  set_conv_winograd(true);
  expect_same_bits(f);
  EXPECT_FALSE(same_bits(f(), direct)) << "kept for the direct form";
  set_conv_winograd(false);
  EXPECT_TRUE(same_bits(f(), direct));
}

TEST_F(KeptWeights, OneWeightManyImages) {
  NoGradGuard guard;
  Tensor w = randn({40, 32, 3, 3});
  for (int round = 0; round < 3; ++round) {
    for (int64_t side : {5, 12, 31}) {
      for (int64_t batch : {1, 3}) {
        for (bool last : {false, true}) {
          Tensor x = randn({batch, 32, side, side});
          if (last) x = x.contiguous(MemoryFormat::channels_last);
          const auto f = [&] { return conv2d(x, w, {}, {1}, {1}); };
          Tensor kept = f();
          clear_derived_cache();
          EXPECT_TRUE(same_bits(kept, f()));
          f(), f();
        }
      }
    }
  }
}

TEST_F(KeptWeights, ImagesOfAllSizesShareAWeight) {
  NoGradGuard guard;
  Tensor w = randn({48, 32, 3, 3});
  const auto image = [](int64_t n, int64_t side) {
    return randn({n, 32, side, side}).contiguous(MemoryFormat::channels_last);
  };
  conv2d(image(1, 9), w), conv2d(image(1, 9), w);
  for (const Tensor& x : {image(1, 16), image(5, 7), image(2, 31)}) conv2d(x, w);
  EXPECT_EQ(derived_cache_stats().objects, 1);
  EXPECT_GT(hits(), 0);
}

TEST_F(KeptWeights, TrainingKeepsNothing) {
  Tensor w = randn({100, 100}), kernel = randn({16, 16, 3, 3}), x = randn({64, 100}), image = randn({2, 16, 8, 8});
  w.requires_grad_(), kernel.requires_grad_();
  for (int step = 0; step < 3; ++step) {
    for (int part = 0; part < 2; ++part) {
      (linear(linear(x, w), w).sum() + conv2d(image, kernel).sum()).backward();
    }
    NoGradGuard guard;
    w.sub_(w.grad()), kernel.sub_(kernel.grad());
    w.zero_grad(), kernel.zero_grad();
  }
  EXPECT_EQ(derived_cache_stats().objects, 0);
}

TEST_F(KeptWeights, FrozenWeightsAreKeptInBothDirections) {
  Tensor w = randn({100, 100}), x = randn({64, 100});
  x.requires_grad_();
  const auto gradient = [&] {
    x.zero_grad();
    linear(x, w).square().sum().backward();
    return x.grad().clone();
  };
  const Tensor expected = gradient();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(gradient(), expected));
  EXPECT_EQ(derived_cache_stats().objects, 2);
}

TEST_F(KeptWeights, InferenceMode) {
  Tensor w = randn({100, 100}), x = randn({40, 100});
  w.requires_grad_();
  InferenceModeGuard guard;
  expect_same_bits([&] { return linear(x, w); });
  Tensor made_here = w.clone();
  expect_same_bits([&] { return linear(x, made_here); }, false);
}

TEST_F(KeptWeights, ActivationsAreNotKept) {
  NoGradGuard guard;
  Tensor x = randn({40, 100});
  for (int i = 0; i < 20; ++i) matmul(x, randn({100, 100}));
  EXPECT_EQ(derived_cache_stats().objects, 0);
  EXPECT_EQ(hits(), 0);
}

TEST_F(KeptWeights, Threads) {
  Tensor w = randn({128, 128}), x = randn({40, 128}), kernel = randn({16, 16, 3, 3}), image = randn({1, 16, 12, 12});
  const Tensor product = linear(x, w), convolution = conv2d(image, kernel);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      NoGradGuard guard;
      Tensor own = randn({128, 128});
      for (int i = 0; i < 40; ++i) {
        wrong += !same_bits(linear(x, w), product) || !same_bits(conv2d(image, kernel), convolution);
        linear(x, own);
        if (i % 5 == n) own.mul_(2);
        if (i % 10 == n) clear_derived_cache();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits(), 50);
}

TEST_F(KeptWeights, NoMemoryToKeepThem) {
  NoGradGuard guard;
  Tensor w = randn({128, 128}), x = randn({40, 128}), kernel = randn({64, 64, 3, 3}), image = randn({1, 64, 9, 9});
  const Tensor product = linear(x, w), convolution = conv2d(image, kernel);
  for (int64_t n = 0; n < 12; ++n) {
    for (const auto& [f, expected] : {std::pair<std::function<Tensor()>, Tensor>{[&] { return linear(x, w); }, product},
                                      {[&] { return conv2d(image, kernel); }, convolution}}) {
      clear_derived_cache();
      f();
      fail_allocation_after(n);
      Tensor y;
      try {
        y = f();
      } catch (const OutOfMemoryError&) {
      }
      fail_allocation_after(-1);
      EXPECT_TRUE(!y.defined() || same_bits(y, expected)) << n;
      EXPECT_TRUE(same_bits(f(), expected)) << n;
    }
  }
}

}  // namespace
}  // namespace deft
