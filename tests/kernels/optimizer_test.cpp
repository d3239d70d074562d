#include "kernels/cpu/elementwise/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr float kGuard = 12345.0f;

// A tensor with its states between guard words, and the same in double.
struct Sample {
  int64_t size, shift;
  DType grad_dtype;
  std::vector<float> param, grad, state[3];
  std::vector<BFloat16> grad16, copy;
  std::vector<double> p, g, s[3];

  Sample(int64_t n, int64_t offset, DType t, uint32_t seed) : size(n), shift(offset), grad_dtype(t) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const size_t room = static_cast<size_t>(n + 8 + offset);
    param.assign(room, kGuard);
    grad.assign(room, 0);
    grad16.assign(room, BFloat16(0.0f));
    copy.assign(room, BFloat16(kGuard));
    for (auto& x : state) x.assign(room, kGuard);
    for (int64_t i = 0; i < n; ++i) {
      param[at(i)] = normal(rng);
      for (auto& x : state) x[at(i)] = 0;
    }
    p.assign(param.begin() + at(0), param.begin() + at(n));
    for (auto& x : s) x.assign(static_cast<size_t>(n), 0.0);
    new_gradient(rng());
  }
  int64_t at(int64_t i) const { return 4 + shift + i; }
  void new_gradient(uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, 0.3f);
    g.assign(static_cast<size_t>(size), 0.0);
    for (int64_t i = 0; i < size; ++i) {
      const float x = normal(rng);
      grad[at(i)] = x;
      grad16[at(i)] = BFloat16(x);
      g[static_cast<size_t>(i)] = static_cast<double>(grad_dtype == bf16 ? static_cast<float>(BFloat16(x)) : x);
    }
  }
  OptimizerTensor tensor(bool with_copy) {
    const void* from = grad_dtype == bf16 ? static_cast<const void*>(grad16.data() + at(0)) : grad.data() + at(0);
    return {size,
            param.data() + at(0),
            from,
            grad_dtype,
            {state[0].data() + at(0), state[1].data() + at(0), state[2].data() + at(0)},
            with_copy ? copy.data() + at(0) : nullptr};
  }
};

std::vector<Sample> samples() {
  std::vector<Sample> all;
  uint32_t seed = 1;
  for (int64_t n : {0, 1, 3, 4, 5, 15, 16, 17, 33, 100, 20000, 40001}) {
    all.emplace_back(n, n % 3, n % 2 ? bf16 : f32, seed++);
  }
  return all;
}

void expect_near(const Sample& x, const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                 const char* what) {
  for (int64_t i = 0; i < x.size; ++i) {
    const double w = want[static_cast<size_t>(i)], e = std::fabs(static_cast<double>(got[x.at(i)]) - w);
    ASSERT_TRUE(e <= tolerance * (1 + std::fabs(w)))
        << what << " of size " << x.size << " at " << i << ": " << got[x.at(i)] << " want " << w;
  }
  for (size_t k = 0; k < got.size(); ++k) {
    const bool inside = static_cast<int64_t>(k) >= x.at(0) && static_cast<int64_t>(k) < x.at(x.size);
    ASSERT_TRUE(inside || got[k] == kGuard) << what;
  }
}

// Runs `update` on the list and `reference(sample)` on each, for a few steps, and compares everything.
template <class Update, class Reference>
void check(Update update, Reference reference, double tolerance = 4e-6) {
  std::vector<Sample> all = samples();
  for (int64_t step = 1; step <= 4; ++step) {
    std::vector<OptimizerTensor> list;
    for (size_t k = 0; k < all.size(); ++k) {
      all[k].new_gradient(static_cast<uint32_t>(100 * step + static_cast<int64_t>(k)));
      list.push_back(all[k].tensor(k % 4 < 2));
    }
    update(list.data(), static_cast<int64_t>(list.size()), step);
    for (Sample& x : all) reference(x, step);
  }
  for (size_t k = 0; k < all.size(); ++k) {
    const Sample& x = all[k];
    expect_near(x, x.param, x.p, tolerance, "param");
    for (int s = 0; s < 3; ++s) expect_near(x, x.state[s], x.s[s], tolerance, "state");
    for (size_t i = 0; i < x.copy.size(); ++i) {
      const bool inside = static_cast<int64_t>(i) >= x.at(0) && static_cast<int64_t>(i) < x.at(x.size);
      const float want = inside && k % 4 < 2 ? x.param[i] : kGuard;
      ASSERT_EQ(x.copy[i].bits, BFloat16(want).bits) << "copy of size " << x.size << " at " << i;
    }
  }
}

void common(OptimizerOptions& o, int variant) {
  o.lr = 0.05;
  o.weight_decay = variant % 2 ? 0.1 : 0;
  o.maximize = variant == 3;
  o.grad_scale = variant == 2 ? 0.25 : 1;
}
double gradient(const OptimizerOptions& o, const Sample& x, size_t i, bool decay) {
  const double g = (o.maximize ? -1 : 1) * o.grad_scale * x.g[i];
  return decay ? g + o.weight_decay * x.p[i] : g;
}

TEST(Optimizer, Sgd) {
  for (int variant = 0; variant < 4; ++variant) {
    for (int kind = 0; kind < 4; ++kind) {  // plain, momentum, dampening, nesterov
      SgdOptions o;
      common(o, variant);
      o.momentum = kind ? 0.9 : 0;
      o.dampening = kind == 2 ? 0.4 : 0;
      o.nesterov = kind == 3;
      check(
          [&](const OptimizerTensor* t, int64_t n, int64_t step) {
            o.first = step == 1;
            sgd_update(t, n, o);
          },
          [&](Sample& x, int64_t step) {
            for (size_t i = 0; i < x.p.size(); ++i) {
              double g = gradient(o, x, i, true);
              if (o.momentum != 0) {
                double& b = x.s[0][i];
                b = step == 1 ? g : o.momentum * b + (1 - o.dampening) * g;
                g = o.nesterov ? g + o.momentum * b : b;
              }
              x.p[i] -= o.lr * g;
            }
          });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Optimizer, AdamAndAdamW) {
  for (int variant = 0; variant < 4; ++variant) {
    for (int kind = 0; kind < 4; ++kind) {
      AdamOptions o;
      common(o, variant);
      o.decoupled = kind % 2;
      o.amsgrad = kind / 2;
      o.beta2 = 0.9;
      check(
          [&](const OptimizerTensor* t, int64_t n, int64_t step) {
            o.step = step;
            adam_update(t, n, o);
          },
          [&](Sample& x, int64_t step) {
            const double c1 = 1 - std::pow(o.beta1, step), c2 = 1 - std::pow(o.beta2, step);
            for (size_t i = 0; i < x.p.size(); ++i) {
              const double g = gradient(o, x, i, !o.decoupled);
              if (o.decoupled) x.p[i] *= 1 - o.lr * o.weight_decay;
              x.s[0][i] = o.beta1 * x.s[0][i] + (1 - o.beta1) * g;
              x.s[1][i] = o.beta2 * x.s[1][i] + (1 - o.beta2) * g * g;
              if (o.amsgrad) x.s[2][i] = std::max(x.s[2][i], x.s[1][i]);
              const double v = x.s[o.amsgrad ? 2 : 1][i];
              x.p[i] -= o.lr / c1 * x.s[0][i] / (std::sqrt(v) / std::sqrt(c2) + o.eps);
            }
          });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Optimizer, Rmsprop) {
  for (int variant = 0; variant < 4; ++variant) {
    for (int kind = 0; kind < 4; ++kind) {
      RmspropOptions o;
      common(o, variant);
      o.lr = 0.01;
      o.alpha = 0.8;
      o.eps = 1e-2;
      o.centered = kind % 2;
      o.momentum = kind / 2 ? 0.9 : 0;
      check([&](const OptimizerTensor* t, int64_t n, int64_t) { rmsprop_update(t, n, o); },
            [&](Sample& x, int64_t) {
              for (size_t i = 0; i < x.p.size(); ++i) {
                const double g = gradient(o, x, i, true);
                x.s[0][i] = o.alpha * x.s[0][i] + (1 - o.alpha) * g * g;
                double square = x.s[0][i];
                if (o.centered) {
                  x.s[2][i] += (1 - o.alpha) * (g - x.s[2][i]);
                  square -= x.s[2][i] * x.s[2][i];
                }
                double step = g / (std::sqrt(square) + o.eps);
                if (o.momentum != 0) step = x.s[1][i] = o.momentum * x.s[1][i] + step;
                x.p[i] -= o.lr * step;
              }
            },
            3e-5);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Optimizer, Adagrad) {
  for (int variant = 0; variant < 4; ++variant) {
    AdagradOptions o;
    common(o, variant);
    o.lr_decay = variant == 2 ? 0.3 : 0;
    check(
        [&](const OptimizerTensor* t, int64_t n, int64_t step) {
          o.step = step;
          adagrad_update(t, n, o);
        },
        [&](Sample& x, int64_t step) {
          const double lr = o.lr / (1 + static_cast<double>(step - 1) * o.lr_decay);
          for (size_t i = 0; i < x.p.size(); ++i) {
            const double g = gradient(o, x, i, true);
            x.s[0][i] += g * g;
            x.p[i] -= lr * g / (std::sqrt(x.s[0][i]) + o.eps);
          }
        });
    if (HasFatalFailure()) return;
  }
}

TEST(Optimizer, Lamb) {
  for (int variant = 0; variant < 4; ++variant) {
    LambOptions o;
    common(o, variant);
    check(
        [&](const OptimizerTensor* t, int64_t n, int64_t step) {
          o.step = step;
          lamb_update(t, n, o);
        },
        [&](Sample& x, int64_t step) {
          const double c1 = 1 - std::pow(o.beta1, step), c2 = 1 - std::pow(o.beta2, step);
          std::vector<double> r(x.p.size());
          double pp = 0, rr = 0;
          for (size_t i = 0; i < x.p.size(); ++i) {
            const double g = gradient(o, x, i, false);
            x.s[0][i] = o.beta1 * x.s[0][i] + (1 - o.beta1) * g;
            x.s[1][i] = o.beta2 * x.s[1][i] + (1 - o.beta2) * g * g;
            r[i] = x.s[0][i] / c1 / (std::sqrt(x.s[1][i] / c2) + o.eps) + o.weight_decay * x.p[i];
            pp += x.p[i] * x.p[i];
            rr += r[i] * r[i];
          }
          const double ratio = pp > 0 && rr > 0 ? std::sqrt(pp) / std::sqrt(rr) : 1;
          for (size_t i = 0; i < x.p.size(); ++i) x.p[i] -= o.lr * ratio * r[i];
        },
        8e-6);
    if (HasFatalFailure()) return;
  }
}

TEST(Optimizer, NormAndScale) {
  std::vector<Sample> all = samples();
  std::vector<TensorData> list;
  double squares = 0;
  for (Sample& x : all) {
    if (x.grad_dtype == bf16) {
      list.push_back({x.size, x.grad16.data() + x.at(0), bf16});
    } else {
      list.push_back({x.size, x.grad.data() + x.at(0), f32});
    }
    for (double g : x.g) squares += g * g;
  }
  const auto count = static_cast<int64_t>(list.size());
  const double norm = l2_norm(list.data(), count);
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
  EXPECT_EQ(l2_norm(nullptr, 0), 0);
  scale_tensors(list.data(), count, 0.3);
  for (Sample& x : all) {
    for (int64_t i = 0; i < static_cast<int64_t>(x.grad.size()); ++i) {
      const bool inside = i >= x.at(0) && i < x.at(x.size);
      const auto g = inside ? static_cast<float>(x.g[static_cast<size_t>(i - x.at(0))]) : 0.0f;
      if (x.grad_dtype == bf16) {
        ASSERT_EQ(x.grad16[i].bits, BFloat16(g * 0.3f).bits);
      } else {
        ASSERT_EQ(x.grad[i], g * 0.3f);
      }
    }
  }
}

// Squares that f32 cannot hold, in some blocks or all, at sizes with and without a rest.
TEST(Optimizer, NormsOfHugeAndTinyNumbers) {
  for (double scale : {1e-44, 1e-30, 1e-20, 1e20, 3e38}) {
    for (int64_t n : {1, 63, 64, 5000}) {
      std::vector<float> x(static_cast<size_t>(n), static_cast<float>(scale));
      double squares = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (i % 3 == 1) x[static_cast<size_t>(i)] *= -0.5f;
        squares += std::pow(static_cast<double>(x[static_cast<size_t>(i)]), 2);
      }
      TensorData f32_data{n, x.data(), f32};
      EXPECT_NEAR(l2_norm(&f32_data, 1) / std::sqrt(squares), 1, 1e-5) << scale << " " << n;
      std::vector<BFloat16> y(static_cast<size_t>(n), BFloat16(static_cast<float>(scale)));
      TensorData bf16_data{n, y.data(), bf16};
      const double want = std::sqrt(static_cast<double>(n)) * static_cast<double>(static_cast<float>(y[0]));
      if (want > 0) {
        EXPECT_NEAR(l2_norm(&bf16_data, 1) / want, 1, 1e-5) << scale << " " << n;
      }
    }
  }
}

// With eps = 0 an element without gradient has no step; what pads a vector must not count.
TEST(Optimizer, LambWithoutEps) {
  Sample x(37, 1, f32, 3);
  OptimizerTensor t = x.tensor(false);
  LambOptions o;
  o.lr = 0.1, o.eps = 0;
  lamb_update(&t, 1, o);
  for (int64_t i = 0; i < 37; ++i) EXPECT_TRUE(std::isfinite(x.param[x.at(i)])) << i;
}

TEST(Optimizer, ThreadCountDoesNotMatter) {
  const int before = num_threads();
  std::vector<float> results[2];
  double norms[2];
  for (int run = 0; run < 2; ++run) {
    set_num_threads(run ? 4 : 1);
    std::vector<Sample> all = samples();
    std::vector<OptimizerTensor> list;
    std::vector<TensorData> data;
    for (Sample& x : all) {
      list.push_back(x.tensor(true));
      data.push_back({x.size, x.param.data() + x.at(0), f32});
    }
    LambOptions o;
    o.lr = 0.1;
    lamb_update(list.data(), static_cast<int64_t>(list.size()), o);
    norms[run] = l2_norm(data.data(), static_cast<int64_t>(data.size()));
    for (const Sample& x : all) results[run].insert(results[run].end(), x.param.begin(), x.param.end());
  }
  set_num_threads(before);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(results[0], results[1]);
}

TEST(Optimizer, NanStaysWhereItIsAndReachesTheCopy) {
  Sample x(37, 1, f32, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t bad : {2, 20, 36}) x.grad[x.at(bad)] = nan;
  OptimizerTensor t = x.tensor(true);
  AdamOptions o;
  o.lr = 0.1;
  adam_update(&t, 1, o);
  for (int64_t i = 0; i < 37; ++i) {
    const bool bad = i == 2 || i == 20 || i == 36;
    EXPECT_EQ(std::isnan(x.param[x.at(i)]), bad) << i;
    EXPECT_EQ(std::isnan(static_cast<float>(x.copy[x.at(i)])), bad) << i;
  }
  TensorData data{37, x.param.data() + x.at(0), f32};
  EXPECT_TRUE(std::isnan(l2_norm(&data, 1)));
}

TEST(Optimizer, WrongCalls) {
  Sample x(5, 0, f32, 3);
  OptimizerTensor t = x.tensor(false);
  t.state[1] = nullptr;
  AdamOptions o;
  o.lr = 0.1;
  EXPECT_THROW(adam_update(&t, 1, o), ValueError);
  t.grad_dtype = f16;
  SgdOptions s;
  s.lr = 0.1;
  EXPECT_THROW(sgd_update(&t, 1, s), DTypeError);
}

}  // namespace
}  // namespace deft::cpu
