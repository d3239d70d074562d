// Plans: what is written is read back, every broken file is refused with its key, and the parts of a program get what
// the plan says.
#include "doctor/plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "runtime/config.h"
#include "runtime/parallel.h"

namespace deft {
namespace {

Plan full_plan() {
  Plan p;
  p.version = "0.1.0";
  p.machine = "aarch64 \"Test\"\n, 2 threads";
  p.workload = "cnn on fashion, infer";
  p.grad_mode = PlanGradMode::inference;
  p.eval = true;
  p.workers = 3;
  p.prefetch = 7;
  p.batch = 64;
  p.buckets = {16, 32, 128};
  p.dtype = DType::bf16;
  p.autocast = DType::f16;
  p.layout = MemoryFormat::channels_last;
  p.compile = true;
  p.off_passes = {"fuse_rows", "assign_layout"};
  p.threads = 2;
  return p;
}

class PlanFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_ = testing::TempDir() + "deft_plan_" + std::to_string(getpid());
};

TEST_F(PlanFile, IsReadBackAsWritten) {
  for (const Plan& p : {full_plan(), Plan{}}) {
    p.save(path("a.json"));
    EXPECT_EQ(Plan::load(path("a.json")), p) << p.to_json();
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "something was left beside it";
}

TEST_F(PlanFile, EveryValueCounts) {
  std::string written = full_plan().to_json();
  for (const char* pair : {"\"inference\"|\"no_grad\"", "\"eval\": true|\"eval\": false",
                           "\"workers\": 3|\"workers\": 4", "\"prefetch\": 7|\"prefetch\": 8", "64|65", "128|129",
                           "\"bf16\"|\"f32\"", "\"f16\"|\"off\"", "\"channels_last\"|\"contiguous\"",
                           "\"on\": true|\"on\": false", "fuse_rows|pack_rows", "\"threads\": 2|\"threads\": 1"}) {
    std::string from(pair), text = written;
    std::string to = from.substr(from.find('|') + 1);
    from.resize(from.find('|'));
    ASSERT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to);
    EXPECT_NE(Plan::parse(text, "p"), full_plan()) << pair;
  }
}

// The error of a plan with `text` in it, in front of which are schema and kind.
std::string error_of(const std::string& text) {
  try {
    Plan::parse("{\"schema\": 1, \"kind\": \"deft plan\"" + (text.empty() ? "" : ", " + text) + "}", "x.json");
  } catch (const LoadError& error) {
    EXPECT_EQ(error.file, "x.json");
    EXPECT_GT(error.offset, 0u);
    return error.what();
  }
  return "";
}

TEST(PlanErrors, NameKeyFoundAndExpected) {
  EXPECT_EQ(error_of(""), "");
  EXPECT_EQ(error_of("\"batch\": 0"), "plan: x.json: value of 'batch' at byte 44: found 0, expected 1 to 65536");
  struct Case {
    const char *text, *key, *what;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"\"batch\": \"8\"", "'batch'", "expected a whole number"},
           {"\"batch\": 1.5", "'batch'", "a fraction"},
           {"\"batch\": -1", "'batch'", "found '-'"},
           {"\"workers\": 257", "'workers'", "found 257, expected 0 to 256"},
           {"\"prefetch\": 65537", "'prefetch'", "expected 0 to 65536"},
           {"\"threads\": 1025", "'threads'", "expected 0 to 1024"},
           {"\"eval\": 1", "'eval'", "expected true or false"},
           {"\"eval\": trie", "'eval'", "expected true or false"},
           {"\"grad_mode\": \"off\"", "'grad_mode'", "found 'off', expected one of grad, no_grad, inference"},
           {"\"dtype\": \"f64\"", "'dtype'", "found 'f64', expected one of f32, bf16, f16"},
           {"\"autocast\": \"f32\"", "'autocast'", "expected one of off, bf16, f16"},
           {"\"layout\": \"nhwc\"", "'layout'", "expected one of contiguous, channels_last"},
           {"\"buckets\": [32, 32]", "'buckets'", "found 32 after 32"},
           {"\"buckets\": [0]", "'buckets'", "found 0, expected 1"},
           {"\"buckets\": 7", "'buckets'", "expected '['"},
           {"\"compile\": true", "plan", "expected '{'"},
           {"\"compile\": {\"on\": 0}", "'compile.on'", "expected true or false"},
           {"\"compile\": {\"of\": true}", "'compile.of'", "no such key"},
           {"\"compile\": {\"off_passes\": [\"fuse\"]}", "'compile.off_passes'", "there is no pass 'fuse'"},
           {"\"batches\": 8", "'batches'", "a plan of schema 1 has no such key"},
           {"\"batch\": 8, \"batch\": 8", "'batch'", "the key is there twice"},
           {"\"machine\": null", "'machine'", "expected a string"}}) {
    std::string error = error_of(c.text);
    EXPECT_NE(error.find(c.key), error.npos) << c.text << ": " << error;
    EXPECT_NE(error.find(c.what), error.npos) << c.text << ": " << error;
  }
}

TEST(PlanErrors, OtherFilesAreNoPlans) {
  auto error = [](const std::string& text) -> std::string {
    try {
      Plan::parse(text, "x.json");
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("{}").find("'schema'"), std::string::npos);
  EXPECT_NE(error("{\"schema\": 1}").find("'kind'"), std::string::npos);
  EXPECT_NE(error("{\"schema\": 2, \"kind\": \"deft plan\"}").find("found 2, expected 1"), std::string::npos);
  EXPECT_NE(error("{\"schema\": 1, \"kind\": \"deft doctor\"}").find("found 'deft doctor'"), std::string::npos);
  EXPECT_NE(error("[]").find("expected '{'"), std::string::npos);
  EXPECT_NE(error("{\"schema\": 1, \"kind\": \"deft plan\"} x").find("nothing but spaces"), std::string::npos);
  EXPECT_NE(error("\xff{}").find("not UTF-8"), std::string::npos);
  EXPECT_THROW(Plan::load("/nonexistent/plan.json"), LoadError);
  EXPECT_THROW(Plan{}.save("/nonexistent/plan.json"), SaveError);
}

TEST_F(PlanFile, TooLargeAFileIsRefused) {
  std::ofstream(path("big.json")) << std::string((1 << 20) + 1, ' ');
  EXPECT_THROW(Plan::load(path("big.json")), LoadError);
}

TEST(PlanMachine, OfAnotherMachineIsAWarning) {
  Plan p;
  EXPECT_EQ(p.foreign(), "");
  p.machine = Plan::this_machine();
  p.version = kVersion;
  EXPECT_EQ(p.foreign(), "");
  p.machine = "x86-64 Other, 64 threads";
  EXPECT_NE(p.foreign().find("x86-64 Other, 64 threads"), std::string::npos);
  EXPECT_NE(p.foreign().find(Plan::this_machine()), std::string::npos);
  p.machine = Plan::this_machine();
  p.version = "0.0.9";
  EXPECT_NE(p.foreign().find("0.0.9"), std::string::npos);
}

TEST(PlanParts, LoadersAndCompileGetWhatItSays) {
  data::LoaderOptions o = full_plan().loader_options({.shuffle = true, .seed = 9});
  EXPECT_EQ(o.batch_size, 64);
  EXPECT_EQ(o.workers, 3);
  EXPECT_EQ(o.prefetch, 7);
  EXPECT_TRUE(o.shuffle);
  EXPECT_EQ(o.seed, 9u);
  EXPECT_EQ(Plan{}.loader_options().prefetch, data::kAuto);
  CompileOptions c = full_plan().compile_options({.plans = 3});
  EXPECT_EQ(c.plans, 3u);
  EXPECT_FALSE(c.passes.fuse_rows || c.passes.assign_layout);
  EXPECT_TRUE(c.passes.fuse_epilogues);
}

TEST(PlanParts, ModelsAndInputsArePrepared) {
  nn::Conv2d conv(2, 4, 3);
  full_plan().prepare(conv);
  EXPECT_FALSE(conv.is_training());
  EXPECT_EQ(conv.parameters()[0].dtype(), DType::bf16);
  EXPECT_TRUE(conv.parameters()[0].is_contiguous(MemoryFormat::channels_last));
  Tensor x = full_plan().prepare(rand({2, 2, 5, 5}));
  EXPECT_EQ(x.dtype(), DType::bf16);
  EXPECT_TRUE(x.is_contiguous(MemoryFormat::channels_last));
  EXPECT_EQ(full_plan().prepare(zeros({3}, DType::i64)).dtype(), DType::i64);
  EXPECT_EQ(full_plan().prepare(zeros({3, 4})).dtype(), DType::bf16);
  nn::Conv2d plain(2, 4, 3);
  Plan{}.prepare(plain);
  EXPECT_TRUE(plain.is_training());
  EXPECT_EQ(plain.parameters()[0].dtype(), DType::f32);
}

TEST(PlanParts, TheScopeHoldsAndEnds) {
  int before = num_threads();
  Plan p = full_plan();
  p.threads = before + 1;
  {
    PlanScope scope(p);
    EXPECT_TRUE(is_inference_mode_enabled());
    EXPECT_EQ(autocast_dtype(), DType::f16);
    EXPECT_EQ(num_threads(), before + 1);
    p.grad_mode = PlanGradMode::no_grad;
  }
  EXPECT_FALSE(is_inference_mode_enabled());
  EXPECT_FALSE(is_autocast_enabled());
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_EQ(num_threads(), before);
  {
    PlanScope scope(p);
    EXPECT_FALSE(is_grad_enabled());
    EXPECT_FALSE(is_inference_mode_enabled());
  }
  PlanScope scope(Plan{});
  EXPECT_TRUE(is_grad_enabled());
  EXPECT_FALSE(is_autocast_enabled());
  EXPECT_EQ(num_threads(), before);
}

}  // namespace
}  // namespace deft
