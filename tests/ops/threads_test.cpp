// Results and gradients are the same, bit for bit, for any number of threads and from run to run. The sizes are such
// that every kernel shares its work among threads, with parts that do not divide.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "deft/deft.h"

namespace deft {
namespace {

using Tensors = std::vector<Tensor>;
using Sizes = std::vector<int64_t>;

struct ThreadCase {
  std::string name;
  std::function<Tensors()> inputs;  // those of a floating type get gradients
  std::function<Tensor(const Tensors&)> op;
};

void PrintTo(const ThreadCase& c, std::ostream* out) { *out << c.name; }

bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.dtype() == y.dtype() && x.numel() == y.numel() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

// The result and the gradients of what requires them, of fixed random inputs.
Tensors run(const ThreadCase& c) {
  manual_seed(7);
  Tensors inputs = c.inputs(), leaves;
  for (Tensor& x : inputs) {
    if (x.requires_grad()) leaves.push_back(x);
  }
  Tensors all = {c.op(inputs)};
  if (leaves.empty()) return all;
  for (const Tensor& g : grad(all, leaves, {randn_like(all[0])})) all.push_back(g);
  return all;
}

class Threads : public testing::TestWithParam<ThreadCase> {
 protected:
  Threads() : before_(num_threads()) {}
  ~Threads() override { set_num_threads(before_); }

 private:
  int before_;
};

TEST_P(Threads, DoNotChangeTheResult) {
  set_num_threads(1);
  const Tensors expected = run(GetParam());
  for (int threads : {1, 2, 3, 7, 7}) {
    set_num_threads(threads);
    const Tensors got = run(GetParam());
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(same_bytes(got[i], expected[i])) << (i == 0 ? "result" : "gradient") << " with " << threads;
    }
  }
}

std::string suffix(DType dtype) { return "_" + std::string(name_of(dtype)); }
Tensor leaf(IntList sizes, DType dtype = DType::f32) { return randn(sizes, with_grad(dtype)); }

std::vector<ThreadCase> products() {
  std::vector<ThreadCase> cases;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const std::string t = suffix(dtype);
    auto two = [dtype](Sizes a, Sizes b) { return [=] { return Tensors{leaf(a, dtype), leaf(b, dtype)}; }; };
    auto multiply = [](const Tensors& x) { return matmul(x[0], x[1]); };
    cases.push_back({"matmul" + t, two({131, 700}, {700, 97}), multiply});
    cases.push_back({"matmul_long_k" + t, two({19, 5000}, {5000, 23}), multiply});
    cases.push_back({"matmul_wide" + t, two({3, 129}, {129, 4001}), multiply});
    cases.push_back({"matmul_tall" + t, two({4001, 65}, {65, 5}), multiply});
    cases.push_back({"matvec" + t, two({777, 513}, {513}), multiply});
    cases.push_back({"matmul_batch" + t, two({5, 67, 130}, {5, 130, 33}), multiply});
    cases.push_back({"matmul_transposed" + t, two({700, 131}, {97, 700}),
                     [](const Tensors& x) { return matmul(x[0].transpose(0, 1), x[1].transpose(0, 1)); }});
    cases.push_back({"linear" + t,
                     [dtype] {
                       return Tensors{leaf({190, 256}, dtype), leaf({77, 256}, dtype), leaf({77}, dtype)};
                     },
                     [](const Tensors& x) { return linear(x[0], x[1], x[2]); }});
  }
  return cases;
}

std::vector<ThreadCase> convolutions() {
  std::vector<ThreadCase> cases;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const std::string t = suffix(dtype);
    auto of = [dtype](Sizes x, Sizes w, int64_t bias) {
      return [=] { return Tensors{leaf(x, dtype), leaf(w, dtype), leaf({bias}, dtype)}; };
    };
    cases.push_back({"conv_3x3" + t, of({3, 17, 21, 19}, {29, 17, 3, 3}, 29),
                     [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {1}, {1}); }});
    cases.push_back({"conv_1x1" + t, of({3, 33, 21, 19}, {65, 33, 1, 1}, 65),
                     [](const Tensors& x) { return conv2d(x[0], x[1], x[2]); }});
    cases.push_back({"conv_stride" + t, of({2, 3, 65, 63}, {31, 3, 7, 7}, 31),
                     [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {2}, {3}); }});
    cases.push_back({"conv_groups" + t, of({2, 24, 30, 30}, {36, 6, 3, 3}, 36),
                     [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {1}, {2}, {2}, 4); }});
    cases.push_back({"conv_depthwise" + t, of({3, 37, 30, 29}, {37, 1, 3, 3}, 37),
                     [](const Tensors& x) { return conv2d(x[0], x[1], x[2], {1}, {1}, {1}, 37); }});
    cases.push_back({"conv_transpose" + t, of({2, 19, 20, 21}, {19, 23, 3, 3}, 23),
                     [](const Tensors& x) { return conv_transpose2d(x[0], x[1], x[2], {2}, {1}, {1}); }});
    cases.push_back({"conv1d" + t, of({3, 20, 501}, {30, 20, 5}, 30),
                     [](const Tensors& x) { return conv1d(x[0], x[1], x[2], {1}, {2}); }});
  }
  return cases;
}

std::vector<ThreadCase> rows() {
  std::vector<ThreadCase> cases;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const std::string t = suffix(dtype);
    auto one = [&](const char* name, Sizes x, std::function<Tensor(const Tensor&)> op) {
      cases.push_back(
          {name + t, [=] { return Tensors{leaf(x, dtype)}; }, [=](const Tensors& in) { return op(in[0]); }});
    };
    one("softmax", {301, 257}, [](const Tensor& x) { return softmax(x, -1); });
    one("softmax_columns", {7, 301, 57}, [](const Tensor& x) { return softmax(x, 1); });
    one("log_softmax", {301, 257}, [](const Tensor& x) { return log_softmax(x, -1); });
    one("sum", {1000003}, [](const Tensor& x) { return sum(x); });
    one("sum_rows", {301, 1003}, [](const Tensor& x) { return sum(x, {1}); });
    one("sum_columns", {16001, 61}, [](const Tensor& x) { return sum(x, {0}); });
    one("sum_middle", {13, 301, 101}, [](const Tensor& x) { return sum(x, {1}); });
    one("mean_outer_and_inner", {31, 40, 301}, [](const Tensor& x) { return mean(x, {0, 2}); });
    one("var", {16001, 61}, [](const Tensor& x) { return var(x, {0}); });
    one("norm", {1000003}, [](const Tensor& x) { return norm(x); });
    one("logsumexp", {16001, 61}, [](const Tensor& x) { return logsumexp(x, {0}); });
    one("amax", {16001, 61}, [](const Tensor& x) { return amax(x, {0}); });
    one("prod", {16001, 61}, [](const Tensor& x) { return prod(x.tanh() + 1, {0}); });
    one("cumsum", {301, 1003}, [](const Tensor& x) { return cumsum(x, 1); });
    one("cumsum_columns", {13, 301, 101}, [](const Tensor& x) { return cumsum(x, 1); });
    one("cumprod", {301, 1003}, [](const Tensor& x) { return cumprod(x.tanh() + 1, 1); });
    one("gelu", {300007}, [](const Tensor& x) { return gelu(x); });
    one("max_pool", {3, 13, 41, 43}, [](const Tensor& x) { return max_pool2d(x, {3}, {2}, {1}); });
    one("avg_pool", {3, 13, 41, 43}, [](const Tensor& x) { return avg_pool2d(x, {3}, {2}, {1}); });
    one("interpolate", {3, 13, 21, 23}, [](const Tensor& x) {
      return interpolate(x, {50, 47}, InterpolateMode::linear);
    });
    cases.push_back({"broadcast" + t,
                     [=] {
                       return Tensors{leaf({6001, 61}, dtype), leaf({61}, dtype)};
                     },
                     [](const Tensors& x) { return x[0] * x[1]; }});
  }
  return cases;
}

std::vector<ThreadCase> norms() {
  std::vector<ThreadCase> cases;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const std::string t = suffix(dtype);
    auto of = [&](const char* name, Sizes x, int64_t n, std::function<Tensor(const Tensors&)> op) {
      cases.push_back({name + t, [=] { return Tensors{leaf(x, dtype), leaf({n}, dtype), leaf({n}, dtype)}; }, op});
    };
    of("layer_norm", {1003, 257}, 257, [](const Tensors& x) { return layer_norm(x[0], {257}, x[1], x[2]); });
    of("rms_norm", {1003, 257}, 257, [](const Tensors& x) { return rms_norm(x[0], {257}, x[1]) + x[2]; });
    of("group_norm", {9, 24, 31, 17}, 24, [](const Tensors& x) { return group_norm(x[0], 4, x[1], x[2]); });
    of("batch_norm", {9, 23, 31, 17}, 23, [](const Tensors& x) {
      const TensorOptions options{x[0].dtype()};
      return batch_norm(x[0], zeros({23}, options), ones({23}, options), x[1], x[2], true);
    });
    of("instance_norm", {9, 23, 31, 17}, 23, [](const Tensors& x) { return instance_norm(x[0], {}, {}, x[1], x[2]); });
  }
  return cases;
}

std::vector<ThreadCase> indexing() {
  std::vector<ThreadCase> cases;
  auto table = [](int64_t rows, int64_t width, int64_t count) {
    return [=] { return Tensors{leaf({rows, width}), randint(0, rows, {count}), leaf({count, width})}; };
  };
  cases.push_back({"embedding", table(50, 65, 3001), [](const Tensors& x) { return embedding(x[1], x[0]) * x[2]; }});
  cases.push_back({"index_add", table(50, 65, 3001), [](const Tensors& x) { return index_add(x[0], 0, x[1], x[2]); }});
  cases.push_back(
      {"index_select", table(50, 65, 3001), [](const Tensors& x) { return index_select(x[0], 0, x[1]) + x[2]; }});
  cases.push_back({"index_put", table(50, 65, 3001),
                   [](const Tensors& x) { return index_put(x[0], {x[1]}, x[2], /*accumulate=*/true); }});
  cases.push_back({"scatter_add",
                   [] {
                     return Tensors{leaf({401}), randint(0, 401, {300007}), leaf({300007})};
                   },
                   [](const Tensors& x) { return scatter_add(x[0], 0, x[1], x[2]); }});
  cases.push_back({"gather",
                   [] {
                     return Tensors{leaf({1501, 50}), randint(0, 50, {1501, 200})};
                   },
                   [](const Tensors& x) { return gather(x[0], 1, x[1]); }});
  cases.push_back({"cross_entropy",
                   [] {
                     return Tensors{leaf({801, 103}), randint(0, 103, {801})};
                   },
                   [](const Tensors& x) { return cross_entropy(x[0], x[1]); }});
  cases.push_back({"mse_loss",
                   [] {
                     return Tensors{leaf({300007}), leaf({300007})};
                   },
                   [](const Tensors& x) { return mse_loss(x[0], x[1]); }});
  cases.push_back({"argsort",
                   [] {
                     return Tensors{randint(0, 50, {1501, 200})};
                   },
                   [](const Tensors& x) { return argsort(x[0], 1); }});
  return cases;
}

std::string name(const testing::TestParamInfo<ThreadCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Products, Threads, testing::ValuesIn(products()), name);
INSTANTIATE_TEST_SUITE_P(Convolutions, Threads, testing::ValuesIn(convolutions()), name);
INSTANTIATE_TEST_SUITE_P(Rows, Threads, testing::ValuesIn(rows()), name);
INSTANTIATE_TEST_SUITE_P(Norms, Threads, testing::ValuesIn(norms()), name);
INSTANTIATE_TEST_SUITE_P(Indexing, Threads, testing::ValuesIn(indexing()), name);

}  // namespace
}  // namespace deft
