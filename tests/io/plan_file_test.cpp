#include "io/plan_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "amp/autocast.h"
#include "base/error.h"
#include "core/grad_mode.h"
#include "io/checksum.h"
#include "io/safetensors.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/resnet.h"
#include "nn/compile_module.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<Tensor>;

class PlanFile : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("deft_plan_" + std::to_string(getpid()));
    fs::create_directories(folder);
    path = (folder / "a.plan").string();
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  // The file with other metadata and a checksum that fits.
  void edit(const std::function<void(io::Metadata&)>& change) const {
    io::SafetensorsFile file = io::load_safetensors(path);
    change(file.metadata);
    file.metadata["deft.crc32"] = io::checksum(file.metadata, file.tensors, "deft.crc32");
    io::save_safetensors(path, file.tensors, file.metadata);
  }
  void replace_in_graph(const std::string& from, const std::string& to) const {
    edit([&](io::Metadata& m) {
      std::string& text = m["graph.0"];
      size_t at = text.find(from);
      ASSERT_NE(at, text.npos) << from << " is not in\n" << text;
      text.replace(at, from.size(), to);
    });
  }
  // What load_plan() says.
  template <class E>
  std::string refusal() const {
    try {
      load_plan(path);
    } catch (const E& e) {
      return e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << "another error: " << e.what();
      return "";
    }
    ADD_FAILURE() << "was loaded";
    return "";
  }

  fs::path folder;
  std::string path;
};

bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST_F(PlanFile, ServesWhatItWasMadeForWithoutTheModel) {
  InferenceModeGuard inference;
  Tensor one = randn({1, 1, 28, 28}), four = randn({4, 1, 28, 28}), from_one, from_four;
  {
    models::Cnn cnn;
    cnn.eval();
    auto fast = compile(cnn);
    for (int i = 0; i < 2; ++i) from_one = fast(one), from_four = fast(four);
    save_plan(fast, path, {"cnn"});
  }
  io::PlanInfo info;
  Compiled plan = load_plan(path, {}, &info);
  EXPECT_EQ(info.name, "cnn");
  EXPECT_TRUE(same(plan(one), from_one));
  EXPECT_TRUE(same(plan(four), from_four));
  EXPECT_TRUE(same(plan(four), from_four));
  EXPECT_EQ(plan.stats().captures, 0);
  try {
    plan(randn({3, 1, 28, 28}));
    ADD_FAILURE() << "no plan for three";
  } catch (const ValueError& e) {
    EXPECT_TRUE(contains(e.what(), "[3, 1, 28, 28] f32")) << e.what();
  }
  EXPECT_TRUE(contains(plan.explain(), "from a file"));
}

TEST_F(PlanFile, WeightsAreThereOnceAndAsTheyWere) {
  NoGradGuard no_grad;
  Tensor w = randn({256, 256});
  auto f = compile([&](const Tensor& x) { return matmul(x, w).relu(); });
  Tensor a = randn({2, 256}), b = randn({3, 256});
  f(a), f(b);
  Tensor before = f(a);
  save_plan(f, path);
  EXPECT_LT(fs::file_size(path), size_t{2} * 256 * 256 * 4);
  w.zero_();
  EXPECT_TRUE(same(load_plan(path)(a), before));
}

// A batch norm that was folded is not what it was.
TEST_F(PlanFile, WeightsThatWereWrittenAfterTheyWereFoldedAreNotSaved) {
  InferenceModeGuard inference;
  nn::Sequential model;
  model.add<nn::Conv2d>(1, 4, 3);
  auto& norm = model.add<nn::BatchNorm2d>(4);
  model.eval();
  Compiled fast = compile(model);
  Tensor x = randn({2, 1, 8, 8});
  fast(x);
  norm.weight.fill_(3);
  EXPECT_THROW(save_plan(fast, path), ValueError);
  fast(x);
  save_plan(fast, path);
  EXPECT_LE((load_plan(path)(x) - model(x)).abs().amax().item(), 1e-4);
}

TEST_F(PlanFile, ModelsInAllPrecisions) {
  InferenceModeGuard inference;
  models::BertOptions options{
      .vocabulary = 60, .hidden = 16, .layers = 2, .heads = 2, .intermediate = 32, .positions = 32};
  models::Bert bert(options);
  bert.eval();
  Tensors inputs{randint(0, 60, {2, 8}), ones({2, 8}, {DType::boolean})};
  for (DType amp : {DType::f32, DType::bf16}) {
    AutocastGuard autocast(amp);
    Compiled fast = compile([&](const Tensors& x) {
      auto out = bert.encode(x[0], {}, x[1], {});
      return Tensors{out.hidden, out.pooled};
    });
    fast.run(inputs);
    Tensors wanted = fast.run(inputs);
    save_plan(fast, path);
    Tensors found = load_plan(path).run(inputs);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(same(found[i], wanted[i])) << name_of(amp) << i;
  }
  models::ResNet resnet(models::resnet18_options());
  resnet.eval();
  auto fast = compile(resnet);
  Tensor x = randn({1, 3, 64, 64});
  fast(x);
  Tensor wanted = fast(x);
  save_plan(fast, path);
  EXPECT_TRUE(same(load_plan(path)(x), wanted));
}

TEST_F(PlanFile, DamageIsFound) {
  NoGradGuard no_grad;
  Tensor w = randn({4});
  auto f = compile([&](const Tensor& x) { return (x * w).relu().sum({0}); });
  f(randn({2, 4}));
  save_plan(f, path);
  std::string whole = bytes();
  auto load = [&](const std::string& text) { io::parse_plan(std::as_bytes(std::span(text)), "a.plan"); };
  load(whole);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string broken = whole;
    broken[i] = static_cast<char>(broken[i] ^ (1 << i % 8));
    try {
      load(broken);
      // Spaces between the parts of the header mean nothing, nor does the case of an escape's last digit.
      const bool digit = i >= 5 && whole.compare(i - 5, 5, "\\u000") == 0;
      EXPECT_TRUE(whole[i] == ' ' || (digit && broken[i] == 'A')) << "byte " << i << ": " << whole[i];
    } catch (const LoadError&) {
    } catch (const UnsupportedError&) {
    }
  }
  for (size_t size : {size_t{0}, size_t{7}, whole.size() / 2, whole.size() - 1})
    EXPECT_THROW(load(whole.substr(0, size)), LoadError) << size;
  io::save_safetensors(path, {{"w", w}});
  EXPECT_TRUE(contains(refusal<LoadError>(), "this is no plan of Deft"));
}

TEST_F(PlanFile, OtherVersionsAndMachinesAreRefused) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x.exp(); });
  f(randn({2}));
  save_plan(f, path);
  edit([](io::Metadata& m) { m["deft.machine"] = "pdp-11 eae"; });
  EXPECT_TRUE(contains(refusal<UnsupportedError>(), "the machine 'pdp-11 eae', this is '"));
  save_plan(f, path);
  edit([](io::Metadata& m) { m["deft.machine"] += ", Voodoo 2 (cuda:0)"; });
  EXPECT_TRUE(contains(refusal<UnsupportedError>(), "Voodoo 2"));
  save_plan(f, path);
  edit([](io::Metadata& m) { m["deft.version"] = "0.0.7"; });
  EXPECT_TRUE(contains(refusal<UnsupportedError>(), "the version '0.0.7, format 1', this is '"));
}

TEST_F(PlanFile, WhatNoFileCanHoldIsNotSaved) {
  Tensor w = randn({3}).requires_grad_();
  auto f = compile([&](const Tensor& x) { return x * w; });
  EXPECT_THROW(save_plan(f, path), ValueError);  // no plan yet
  NoGradGuard no_grad;
  f(randn({3}));
  save_plan(f, path);
  EXPECT_THROW(save_plan(f, (folder / "no" / "folder").string()), SaveError);
}

TEST_F(PlanFile, RecordsNothing) {
  Compiled plan = [&] {
    NoGradGuard no_grad;
    auto f = compile([](const Tensor& x) { return x.exp(); });
    f(randn({2}));
    save_plan(f, path);
    return load_plan(path);
  }();
  Tensor x = randn({2});
  EXPECT_FALSE(plan(x).requires_grad());
  EXPECT_THROW(plan(x.clone().requires_grad_()), GradError);
  auto outer = compile([&](const Tensor& t) { return plan(t) + 1; });
  NoGradGuard no_grad;
  EXPECT_THROW(outer(x), CaptureError);
}

// One plan with an elementwise chain, a product and a lookup, and what a hostile writer may put into it. Each must be
// found before a kernel runs.
TEST_F(PlanFile, HostilePlansAreRefused) {
  NoGradGuard no_grad;
  Tensor table = randn({8, 4}), w = randn({4, 4}), b = randn({4});
  auto f = compile([&](const Tensors& x) {
    Tensor h = embedding(x[0], table);
    h = ((h * 2 + x[1]).tanh() + b).abs();
    return Tensors{softmax(h, -1), clamp(h, 0, 1).sum({0})};
  });
  Tensors inputs{randint(0, 8, {3}), randn({3, 4})};
  f.run(inputs);
  f.run(inputs);
  auto refused = [&](const std::string& from, const std::string& to) {
    save_plan(f, path);
    replace_in_graph(from, to);
    SCOPED_TRACE(from + " -> " + to);
    return refusal<LoadError>();
  };
  save_plan(f, path);
  std::string text = io::load_safetensors(path).metadata["graph.0"];
  EXPECT_TRUE(contains(text, "elementwise_chain(")) << text;
  const struct {
    const char *from, *to, *why;
  } cases[] = {
      {"3,4 4,1 cpu", "300,4 4,1 cpu", "does not repeat"},
      {"3,4 4,1 cpu", "3,4 400,1 cpu", "lies outside its buffer"},
      {"3,4 4,1 cpu", "3,4 -4,1 cpu", "a stride is negative"},
      {"3,4 4,1 cpu", "3,4 4611686018427387904,1 cpu", "out of all bounds"},
      {"3,4 4,1 cpu", "9223372036854775807,4 4,1 cpu", "larger than memory"},
      {"f32 3,4 4,1 cpu", "f64 3,4 4,1 cpu", "buffer"},
      {"+0 f32 3,4", "+2 f32 3,4", "out of all bounds"},
      {"embedding(", "embedding_backward(", ""},
      {"embedding(", "no_such_op(", "there is no op"},
      {"embedding(", "masked_select(", ""},
      {"softmax(", "softmax(%0, ", "number of inputs"},
      {"= softmax(", "view softmax(", "is no view"},
      {"= softmax(", "write softmax(", ""},
      {"softmax(%", "softmax(-, %", "number of inputs"},
      {"elementwise_chain(%", "elementwise_chain(-, %", ""},
      {"elementwise_chain(%", "elementwise_chain(%0, %", ""},
      {"like 0;", "like 7;", "without its like"},
      {"like 0;", "like -1;", "without its like"},
      {"; mul f32", "; softmax f32", "is no elementwise op"},
      {"; mul f32 i0", "; mul f32 i7", "is not there yet"},
      {"; mul f32 i0", "; mul f32 s0", "is not there yet"},
      {"; mul f32 i0", "; mul f32 i0 i0 i0 i0 i0", "more than 4 inputs"},
      {"; tanh f32", "; tanh f99", "expected a type"},
      {"; tanh f32", "; ~tanh f32", ""},
      {"; tanh f32 s1", "; tanh f32", "has 0 inputs"},
  };
  for (const auto& c : cases) {
    std::string why = refused(c.from, c.to);
    EXPECT_TRUE(contains(why, c.why)) << c.from << " -> " << c.to << ": " << why;
  }
  // Periods: each number after the like.
  size_t periods = text.find("like 0;") + 7, end = text.find(';', periods);
  std::string list = text.substr(periods, end - periods);
  for (const char* bad : {" 5", " -1", " 4000000000"}) {
    std::string other = list;
    other.replace(other.rfind(' '), other.npos, bad);
    EXPECT_TRUE(contains(refused(list + ";", other + ";"), "does not repeat after")) << other;
  }
}

TEST_F(PlanFile, MemoryAroundAnInputIsNotTheCallersToGive) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x.exp(); });
  f(randn({4}));
  save_plan(f, path);
  replace_in_graph("buffer 0 input 16", "buffer 0 input 1600");
  load_plan(path)(randn({4}));  // does no harm
  std::string text = io::load_safetensors(path).metadata["graph.0"];
  replace_in_graph("inputs %0", "value 2 b0+16 f32 4 1 cpu\ninputs %0");
  replace_in_graph("exp(%0)", "exp(%2)");
  EXPECT_TRUE(contains(refusal<LoadError>(), "outside of the inputs")) << text;
}

TEST_F(PlanFile, HostileParametersAreRefused) {
  InferenceModeGuard inference;
  Tensor w = randn({2, 3, 3, 3});
  auto f = compile([&](const Tensor& x) { return max_pool2d(conv2d(x, w), {2}); });
  Tensor x = randn({1, 3, 8, 8});
  f(x);
  save_plan(f, path);
  std::string text = io::load_safetensors(path).metadata["graph.0"];
  size_t conv = text.find("convolution("), brace = text.find('{', conv), end = text.find('}', conv);
  std::string params = text.substr(brace, end - brace + 1);
  std::vector<std::string> words;
  std::istringstream in(params.substr(1, params.size() - 2));
  for (std::string word; in >> word;) words.push_back(word);
  ASSERT_EQ(words[0], "2") << params;
  for (size_t i = 0; i < words.size(); ++i) {
    for (const char* bad : {"77", "-1", "9223372036854775807", "0x1p+1000", "true", "nothing", ""}) {
      if (words[i] == bad) continue;
      save_plan(f, path);
      std::string other = "{";
      for (size_t k = 0; k < words.size(); ++k) other += (k ? " " : "") + (k == i ? std::string(bad) : words[k]);
      replace_in_graph(params, other + "}");
      bool third = i % 3 == 0 && i > 0 && i < 10;  // of a missing spatial dimension: not read
      if (third) {
        try {
          load_plan(path)(x);
        } catch (const LoadError&) {
        }
      } else {
        EXPECT_NE(refusal<LoadError>(), "") << "parameter " << i << " is " << bad;
      }
    }
  }
}

TEST_F(PlanFile, LimitsHold) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x.exp().sum({0}); });
  f(randn({1000}));
  save_plan(f, path);
  io::LoadOptions few, small;
  few.limits.plan_entries = 1;
  small.limits.plan_bytes = 1000;
  EXPECT_THROW(load_plan(path, few), LoadError);
  EXPECT_THROW(load_plan(path, small), LoadError);
  replace_in_graph("temporary 4000", "temporary 4000000000000000000");
  EXPECT_TRUE(contains(refusal<LoadError>(), "the limit is"));
}

}  // namespace
}  // namespace deft
