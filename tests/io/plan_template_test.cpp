// Plan files that serve sizes no call had: templates, their rules and ranges.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "core/grad_mode.h"
#include "io/checksum.h"
#include "io/plan_file.h"
#include "io/safetensors.h"
#include "models/cnn.h"
#include "nn/compile_module.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<Tensor>;

bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

class PlanTemplate : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("deft_template_" + std::to_string(getpid()));
    fs::create_directories(folder);
    path = (folder / "a.plan").string();
  }
  void TearDown() override { fs::remove_all(folder); }

  // Captures at four sizes, of which the file learns, and writes it.
  Compiled saved(const Compiled::Function& f, const std::function<Tensors(int64_t)>& inputs,
                 std::vector<graph::DimRange> ranges = {}) const {
    CompileOptions options;
    options.ranges = std::move(ranges);
    Compiled fast = compile(f, options);
    for (int64_t n : {4, 2, 7, 5}) fast.run(inputs(n));
    save_plan(fast, path, {"a name", true});
    return fast;
  }
  std::string entry(const std::string& field) const { return io::load_safetensors(path).metadata.at(field); }
  std::string refusal(const std::string& field, const std::string& from, const std::string& to) const {
    io::SafetensorsFile file = io::load_safetensors(path);
    std::string& text = file.metadata.at(field);
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from << " is not in\n" << text;
    text.replace(at, from.size(), to);
    file.metadata["deft.crc32"] = io::checksum(file.metadata, file.tensors, "deft.crc32");
    const std::string other = (folder / "b.plan").string();
    io::save_safetensors(other, file.tensors, file.metadata);
    try {
      Compiled plan = load_plan(other);
      for (int64_t n : {3, 9}) plan.run({randn({n, 6})});
    } catch (const LoadError& e) {
      return e.what();
    } catch (const ValueError& e) {
      return e.what();
    }
    return "was served";
  }

  fs::path folder;
  std::string path;
};

TEST_F(PlanTemplate, ServesSizesThatNoCallHad) {
  InferenceModeGuard inference;
  Compiled exact = [&] {
    auto cnn = std::make_shared<models::Cnn>();
    cnn->eval();
    auto f = [cnn](const Tensors& x) { return Tensors{(*cnn)(x[0])}; };
    saved(f, [](int64_t n) { return Tensors{randn({n, 1, 28, 28})}; });
    CompileOptions off;
    off.symbolic = false;
    return compile(Compiled::Function(f), off);
  }();
  io::PlanInfo info;
  Compiled plan = load_plan(path, {}, &info);
  EXPECT_TRUE(info.templates);
  EXPECT_EQ(plan.graphs().size(), 0U);
  for (int64_t n : {3, 4, 9, 3}) {
    Tensors x{randn({n, 1, 28, 28})};
    exact.run(x);
    EXPECT_TRUE(same(plan.run(x)[0], exact.run(x)[0])) << n;
  }
  EXPECT_EQ(plan.stats().instantiated, 3);
  EXPECT_EQ(plan.stats().captures, 0);
  EXPECT_THROW(plan.run({randn({1, 1, 28, 28})}), ValueError);  // 1 means something else to broadcasting
}

TEST_F(PlanTemplate, ServesAnyMode) {
  {
    InferenceModeGuard inference;
    saved([](const Tensors& x) { return Tensors{x[0].exp().sum({0})}; },
          [](int64_t n) {
            return Tensors{randn({n, 6})};
          });
  }
  Compiled plan = load_plan(path);
  NoGradGuard no_grad;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(plan.run({ones({3, 6})})[0].size(0), 6);
  InferenceModeGuard inference;
  plan.run({ones({3, 6})});
  EXPECT_EQ(plan.stats().instantiated, 1);
}

TEST_F(PlanTemplate, TensorsThatTheFunctionFillsHaveTheRightSize) {
  NoGradGuard no_grad;
  auto f = [](const Tensors& x) {
    return Tensors{x[0] * arange(0, static_cast<double>(x[0].size(0)), 1, {DType::f32}).unsqueeze(1)};
  };
  saved(f, [](int64_t n) { return Tensors{randn({n, 6})}; });
  EXPECT_TRUE(contains(entry("rules.0"), "filled")) << entry("rules.0");
  Compiled plan = load_plan(path);
  Tensor x = randn({11, 6});
  EXPECT_TRUE(same(plan.run({x})[0], f({x})[0]));
}

TEST_F(PlanTemplate, RangesHold) {
  NoGradGuard no_grad;
  saved([](const Tensors& x) { return Tensors{x[0].exp()}; },
        [](int64_t n) {
          return Tensors{randn({n, 6})};
        },
        {{{0, 0}, 2, 8}});
  Compiled plan = load_plan(path);
  plan.run({randn({8, 6})});
  try {
    plan.run({randn({9, 6})});
    ADD_FAILURE() << "nine";
  } catch (const ValueError& e) {
    EXPECT_TRUE(contains(e.what(), "dimension 0 of input 0 is 9, expected 2 to 8")) << e.what();
  }
  EXPECT_TRUE(contains(refusal("deft.ranges", "0.0 2", "0:0 2"), "expected 'input.dim low high'"));
}

TEST_F(PlanTemplate, HostileRulesAreRefused) {
  NoGradGuard no_grad;
  saved(
      [](const Tensors& x) {
        return Tensors{(x[0] * arange(0, static_cast<double>(x[0].size(0)), 1, {DType::f32}).unsqueeze(1)).tanh()};
      },
      [](int64_t n) {
        return Tensors{randn({n, 6})};
      });
  const std::string rules = entry("rules.0");
  const std::string first =
      rules.substr(rules.find("term "), rules.find('\n', rules.find("term ")) - rules.find("term "));
  std::istringstream in(first);
  std::string word, number, base, factor, symbol;
  in >> word >> number >> base >> factor >> symbol;
  auto term = [](const std::string& n, const std::string& b, const std::string& f, const std::string& s) {
    return fmt::format("term {} {} {} {}", n, b, f, s);
  };
  const struct {
    std::string to, why;
  } cases[] = {
      {term("9999999", base, factor, symbol), "terms must be in order"},
      {term("-1", base, factor, symbol), "expected a number from 0"},
      {term(number, "4611686018427387904", factor, symbol), ""},
      {term(number, base, "4611686018427387904", symbol), "a number is too large"},
      {term(number, "-99", factor, symbol), ""},
      {term(number, "5", factor, symbol), ""},
      {term(number, base, factor, "1"), "expected a number from 0 to 0"},
      {term(number, base, factor, ""), "expected a number from 0 to 0"},
      {term(number, base, factor, "0 0 0 0"), "more than 3 sizes"},
      {"word 3", "expected symbol, term or filled"},
      {"", "expected symbol, term or filled"},
  };
  for (const auto& c : cases) {
    const std::string why = refusal("rules.0", first, c.to);
    EXPECT_NE(why, "was served") << c.to;
    EXPECT_TRUE(contains(why, c.why)) << c.to << ": " << why;
  }
  for (const char* bad : {"symbol 0.7", "symbol 1.0", "symbol 0", "symbol -1.0", "symbol"})
    EXPECT_TRUE(contains(refusal("rules.0", "symbol 0.0", bad), "expected a number from")) << bad;
  for (const char* bad : {"filled 0", "filled 99"}) EXPECT_NE(refusal("rules.0", "filled", bad), "was served") << bad;
  EXPECT_TRUE(contains(refusal("deft.templates", "1", "2000"), "expected 1 to 1000"));
  EXPECT_NE(refusal("template.0", "tanh(", "tanh_backward("), "was served");
}

TEST_F(PlanTemplate, LimitsHoldForEachSize) {
  NoGradGuard no_grad;
  saved([](const Tensors& x) { return Tensors{x[0].exp().sum({0})}; },
        [](int64_t n) {
          return Tensors{randn({n, 6})};
        });
  io::LoadOptions small;
  small.limits.plan_bytes = 10'000;
  Compiled plan = load_plan(path, small);
  plan.run({randn({10, 6})});
  EXPECT_THROW(plan.run({randn({1000, 6})}), ValueError);
}

}  // namespace
}  // namespace deft
