// What a plan could take for a constant although it is none: random numbers, and values that the host reads. All of
// them, listed from the op table and from the headers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/dlpack.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "graph/training_util.h"
#include "ops/op_table.h"
#include "ops/tensor_lists.h"
#include "optim/clip_grad.h"
#include "runtime/random.h"
#include "source_dir.h"

namespace deft {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

Tensor attention_with_dropout(const Tensor& x) {
  Tensor heads = x.reshape({1, 1, 8, 8});
  return scaled_dot_product_attention(heads, heads, heads, {}, 0.5);
}

// One or more ways to call every op that draws.
const std::multimap<std::string, Function>& random_calls() {
  static const std::multimap<std::string, Function> all = {
      {"uniform_", [](const Tensor& x) { return rand(x.sizes()); }},
      {"uniform_", [](const Tensor& x) { return rand_like(x); }},
      {"uniform_",
       [](const Tensor& x) {
         Tensor y = x.clone();
         return uniform_(y, -1, 1);
       }},
      {"normal_", [](const Tensor& x) { return randn(x.sizes()); }},
      {"normal_", [](const Tensor& x) { return randn_like(x); }},
      {"normal_",
       [](const Tensor& x) {
         Tensor y = x.clone();
         return normal_(y, 1, 2);
       }},
      {"randint_", [](const Tensor& x) { return randint(0, 1000, x.sizes()); }},
      {"randperm_", [](const Tensor& x) { return randperm(x.numel()); }},
      {"bernoulli", [](const Tensor& x) { return bernoulli(x * 0 + 0.5); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5); }},
      {"dropout",
       [](const Tensor& x) {
         return feature_dropout(x.reshape({8, 8}), 0.5);
       }},
      {"scaled_dot_product_attention", attention_with_dropout},
  };
  return all;
}

TEST(HostReads, EveryOpThatDrawsIsDrawnAgainByEachCall) {
  NoGradGuard no_grad;
  const Tensor x = arange(1, 65).to(DType::f32);
  for (int i = 0; const OpDef* def = op_at(i); ++i) {
    if (!def->redraw) continue;
    const std::string name = def->info.name;
    EXPECT_GT(random_calls().count(name), 0u) << name << " draws: give a way to call it above";
    const auto [first, last] = random_calls().equal_range(name);
    for (auto call = first; call != last; ++call) {
      auto fast = compile(call->second);
      std::vector<Tensor> eager, compiled;
      for (std::vector<Tensor>* all : {&eager, &compiled}) {
        RngScope rng({7, 3});
        for (int k = 0; k < 4; ++k) all->push_back(all == &eager ? call->second(x) : fast(x));
      }
      EXPECT_EQ(fast.stats().replays, 3) << name;
      for (size_t k = 0; k < 4; ++k) EXPECT_TRUE(same_bits(compiled[k], eager[k])) << name << ", call " << k;
      for (size_t k = 1; k < 4; ++k) EXPECT_FALSE(same_bits(compiled[k], compiled[k - 1])) << name << ", call " << k;
    }
  }
}

// A mini-batch: which rows are taken follows from numbers drawn in the plan.
TEST(HostReads, RowsDrawnInsideAPlan) {
  NoGradGuard no_grad;
  auto batch = [](const Tensor& x) { return x.index_select(0, randperm(8).narrow(0, 0, 2)); };
  auto fast = compile(batch);
  const Tensor x = arange(16).to(DType::f32).view({8, 2});
  std::set<double> seen;
  for (uint64_t k = 0; k < 20; ++k) {
    RngScope rng({k, 0});
    Tensor found = fast(x);
    RngScope again({k, 0});
    EXPECT_TRUE(same_bits(found, batch(x)));
    seen.insert(found[0][0].item());
  }
  EXPECT_GT(seen.size(), 3u);
}

TEST(HostReads, RandpermIsAPermutationOfEveryLength) {
  for (int64_t n : {0, 1, 2, 3, 255, 256, 257, 1000}) {
    Tensor p = randperm(n);
    EXPECT_EQ(p.dtype(), DType::i64);
    std::vector<int64_t> values = p.to_vector<int64_t>();
    std::sort(values.begin(), values.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i) << n;
  }
}

// --- Reads by the host

// Everything that gives the host a value of a tensor, by the name that its refusal says.
struct HostRead {
  std::string name;
  std::function<void(const Tensor&)> read;
  std::string said = name + "()";
};
const std::vector<HostRead>& host_reads() {
  static const std::vector<HostRead> all = {
      {"item", [](const Tensor& x) { (void)x.sum().item(); }},
      {"item_scalar", [](const Tensor& x) { (void)x.sum().item_scalar(); }, "item()"},
      {"to_vector", [](const Tensor& x) { (void)x.to_vector<float>(); }},
      {"to_string", [](const Tensor& x) { (void)x.to_string(); }},
      {"operator<<",
       [](const Tensor& x) {
         std::ostringstream out;
         out << x;
       },
       "to_string()"},
      {"data", [](const Tensor& x) { (void)x.data<float>(); }},
      {"data const", [](const Tensor& x) { (void)x.data<const float>(); }, "data()"},
      {"data_ptr", [](const Tensor& x) { (void)x.data_ptr(); }},
      {"has_nan", [](const Tensor& x) { (void)has_nan(x); }},
      {"to_dlpack", [](const Tensor& x) { (void)to_dlpack(x); }},
      {"pin_memory", [](const Tensor& x) { (void)x.pin_memory(); }},
      {"copy_async",
       [](const Tensor& x) {
         Tensor to = empty_like(x);
         (void)copy_async(to, x);
       }},
      {"equal", [](const Tensor& x) { (void)x.equal(ones({3})); }},
      {"allclose", [](const Tensor& x) { (void)allclose(ones({3}), x); }},
      {"grad_norm",
       [](const Tensor& x) {
         Tensor w = x.detach().requires_grad_();
         w.set_grad(x);
         (void)optim::grad_norm({w});
       }},
      {"total_norm",
       [](const Tensor& x) {
         (void)total_norm({&x, 1});
       },
       "total_norm ("},
      {"first_not_finite",
       [](const Tensor& x) {
         (void)first_not_finite({&x, 1});
       },
       "first_not_finite ("},
      {"unscale_tensors_",
       [](const Tensor& x) {
         (void)unscale_tensors_({&x, 1}, 2);
       },
       "unscale_tensors_ ("},
      {"clip_norm_",
       [](const Tensor& x) {
         (void)clip_norm_({&x, 1}, 2);
       },
       "clip_norm_ ("},
  };
  return all;
}
// Of the tensor's header, which a plan is chosen by, of the graph and of numbers; and what a replay calls again.
const std::set<std::string> kNoValues = {"defined",
                                         "size",
                                         "stride",
                                         "dim",
                                         "numel",
                                         "dtype",
                                         "device",
                                         "element_size",
                                         "storage_offset",
                                         "is_view",
                                         "is_inference",
                                         "is_same",
                                         "is_contiguous",
                                         "version",
                                         "requires_grad",
                                         "is_leaf",
                                         "is_pinned",
                                         "memory_category",
                                         "register_hook",
                                         "grad_fn",
                                         "grad_fn_name",
                                         "meta",
                                         "sizes",
                                         "strides",
                                         "impl",
                                         "impl_ptr",
                                         "host_data",
                                         "end",
                                         "split",
                                         "chunk",
                                         "unbind",
                                         "clip_factor",
                                         "conv_output_size",
                                         "shares_storage_with",
                                         "clip_grad_norm_"};

bool is_close(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item() <= 1e-3; }

void expect_refused(const HostRead& r, const Function& f, const Tensor& x) {
  auto fast = compile(f);
  const std::string text = message_of<CaptureError>([&] { fast(x); });
  EXPECT_TRUE(contains(text, r.said)) << r.name << ": " << text;
}

TEST(HostReads, OfResultsAndInputsAreRefusedByName) {
  NoGradGuard no_grad;
  for (const HostRead& r : host_reads()) {
    const Function of_input = [&](const Tensor& x) { return r.read(x), x * 2; };
    const Function of_result = [&](const Tensor& x) {
      Tensor y = x * 2;
      r.read(y);
      return y;
    };
    expect_refused(r, of_input, ones({3}));
    expect_refused(r, of_result, ones({3}));
  }
}

// Functions whose result depends on a tensor and is no tensor, as the headers declare them.
std::set<std::string> declared_reads(const std::string& text) {
  static const std::regex line(
      R"(^ *(?:\[\[[^\]]*\]\] *)*(?:bool|double|int64_t|int|size_t|Scalar|T|T\*|void\*|std::string|std::vector<T>|Event|DeftDLManagedTensor\*) +\*?(\w+)\(([^;{]*))");
  std::set<std::string> found;
  std::istringstream lines(text);
  std::string each;
  bool inside = false;  // class Tensor, whose methods read the tensor itself
  while (std::getline(lines, each)) {
    if (each.starts_with("class Tensor {")) inside = true;
    if (each.starts_with("};")) inside = false;
    std::smatch m;
    if (!std::regex_search(each, m, line)) continue;
    if (inside || m[2].str().find("Tensor") != std::string::npos) found.insert(m[1]);
  }
  return found;
}

TEST(HostReads, TheHeadersDeclareNoOther) {
  std::set<std::string> known = kNoValues;
  for (const HostRead& r : host_reads()) known.insert(r.name);
  std::set<std::string> found;
  std::vector<std::filesystem::path> headers = {"src/core/tensor.h", "src/core/core_ops.h", "src/core/dlpack.h",
                                                "src/optim/clip_grad.h", "src/ops/tensor_lists.h"};
  for (const char* name : {"attention", "binary",    "conv",    "copy", "creation", "cumulative", "gather_scatter",
                           "indexing",  "loss",      "matmul",  "norm", "pool",     "random",     "reduce",
                           "resize",    "shape_ops", "softmax", "sort", "ternary",  "unary",      "view"})
    headers.push_back(std::string("src/ops/") + name + ".h");
  for (const auto& header : headers) {
    std::ifstream file(std::filesystem::path(test::source_dir()) / header);
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_FALSE(text.str().empty()) << header;
    for (const std::string& name : declared_reads(text.str())) {
      found.insert(name);
      EXPECT_TRUE(known.contains(name)) << header << " declares " << name
                                        << "(), which gives the host something of a tensor: refuse it inside a "
                                           "capture, and add it to host_reads()";
    }
  }
  for (const char* name : {"item_scalar", "to_vector", "data", "data_ptr", "has_nan", "to_dlpack", "grad_norm"})
    EXPECT_TRUE(found.contains(name)) << "the headers are not read as they are written any more: " << name;
}

TEST(HostReads, TheStateOfTheGeneratorIsLeftAlone) {
  const std::pair<std::string, std::function<void()>> calls[] = {
      {"manual_seed", [] { manual_seed(3); }},
      {"rng_state", [] { (void)rng_state(); }},
      {"set_rng_state",
       [] {
         set_rng_state({3, 4});
       }},
  };
  NoGradGuard no_grad;
  RngScope rng({3, 0});  // the seed that is set: nothing changes in the first call
  for (const auto& [name, call] : calls) {
    auto fast = compile([&call = call](const Tensor& x) {
      call();
      return x + randn({3});
    });
    const std::string text = message_of<CaptureError>([&] { fast(ones({3})); });
    EXPECT_TRUE(contains(text, name + "()")) << text;
  }
  EXPECT_EQ(rng_state(), (PhiloxState{3, 0}));
}

// --- Constants that are written through a pointer

TEST(HostReads, WritesThroughPointersAreSeenByPlans) {
  NoGradGuard no_grad;
  Tensor w = ones({3});
  auto fast = compile([&](const Tensor& x) { return x + w * 2; });
  const Tensor x = zeros({3});
  for (int i = 0; i < 3; ++i) fast(x);
  w.data<float>()[0] = 100;
  EXPECT_EQ(fast(x).to_vector<float>(), (std::vector<float>{200, 2, 2}));
  EXPECT_TRUE(contains(fast.misses().back(), "a constant [3] f32 that went into the plan was written"));
  const int64_t captures = fast.stats().captures;
  w.data<const float>();  // only reads
  (void)w.to_vector<float>();
  (void)w[0].item();
  for (int i = 0; i < 3; ++i) fast(x);
  EXPECT_EQ(fast.stats().captures, captures);
}

// The same for weights that passes merge and pack, and where the plan goes on reading what it folded.
TEST(HostReads, WritesThroughPointersReachPackedWeights) {
  NoGradGuard no_grad;
  nn::Linear layer(64, 64);
  Tensor rows = arange(4);
  auto f = [&](const Tensor& x) { return layer(x) + layer.weight.index_select(0, rows).index_select(0, rows); };
  auto fast = compile(f);
  const Tensor x = randn({4, 64});
  for (int i = 0; i < 4; ++i) fast(x);
  EXPECT_EQ(fast.stats().captures, 1);
  layer.weight.data<float>()[5] = 100;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_close(fast(x), f(x)));
  layer.weight.data<float>()[70] = -100;
  EXPECT_TRUE(is_close(fast(x), f(x)));
  EXPECT_LE(fast.stats().captures, 3);
}

TEST(HostReads, ThePointerOfAConstantIsAGuardedRead) {
  NoGradGuard no_grad;
  Tensor w = ones({2});
  auto fast = compile([&](const Tensor& x) { return x * static_cast<double>(w.data<const float>()[0]); });
  const Tensor x = ones({2});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fast(x)[0].item(), 1);
  EXPECT_EQ(fast.stats().captures, 1);
  w.data<float>()[0] = 5;
  EXPECT_EQ(fast(x)[0].item(), 5);
  w.fill_(7);
  EXPECT_EQ(fast(x)[0].item(), 7);
}

}  // namespace
}  // namespace deft
