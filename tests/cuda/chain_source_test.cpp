// Generated sources of elementwise chains, and the files that keep them compiled. Needs NVRTC but no GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/cuda/device/kernel_image.h"
#include "ops/all_ops.h"
#include "ops/elementwise.h"
#include "ops/elementwise_chain_source.h"
#include "ops/op_table.h"

namespace deft {

namespace {

constexpr int kCapability = 90;

std::string nvrtc_version() {
  if constexpr (DEFT_TEST_CUDA) return cuda::nvrtc_version();
  return "";
}
cuda::CompiledSource compile(const std::string& source, int capability = kCapability) {
  if constexpr (DEFT_TEST_CUDA) return cuda::nvrtc_compile(source, formula_sources(), capability);
  return {};
}
cuda::CompiledSource image(const ChainForm& f, const std::string& folder, int capability = kCapability) {
  if constexpr (DEFT_TEST_CUDA) return cuda::kernel_image(chain_source(f), formula_sources(), capability, folder);
  return {};
}
std::string source_of(const ChainForm& f) {
  if constexpr (DEFT_TEST_CUDA) return chain_source(f);
  return "";
}
int compilations() {
  if constexpr (DEFT_TEST_CUDA) return cuda::nvrtc_compilations();
  return 0;
}

struct ChainSource : ::testing::Test {
  void SetUp() override {
    if (nvrtc_version().empty()) GTEST_SKIP() << "no NVRTC";
  }
};

DType computed_in(DType t) { return elementwise::compute_type(t); }
int op_count() {
  int n = 0;
#define DEFT_OP(Type) ++n;
#include "ops/all_ops.def"
#undef DEFT_OP
  return n;
}

// Adds an op on elements of `t` that reads the step before it and the inputs.
void add_step(ChainForm& f, int op, bool gradient, DType t) {
  const ElementwiseDef& e = *op_at(op)->elementwise;
  ChainForm::Step& s = f.step[f.steps];
  s.op = static_cast<int16_t>(gradient ? ~op : op);
  s.compute = computed_in(t);
  s.stored = !gradient && e.result == ResultType::boolean ? DType::boolean : t;
  s.inputs = static_cast<uint8_t>(gradient ? 3 : op_at(op)->info.inputs);
  for (int i = 0; i < s.inputs; ++i) s.in[i] = static_cast<uint8_t>(i);
  if (f.steps) s.in[0] = static_cast<uint8_t>(cuda::kChainInputs + f.steps - 1);
  ++f.steps;
}
ChainForm three_inputs(DType t) {
  ChainForm f{};
  f.inputs = 3;
  f.input[0] = {ChainAccess::full, t, 0};
  f.input[1] = {ChainAccess::repeated, t, 0};
  f.input[2] = {ChainAccess::passed, t, 0};
  return f;
}
ChainForm of(DType t, std::initializer_list<const OpDef*> ops) {
  ChainForm f = three_inputs(t);
  for (const OpDef* def : ops) add_step(f, op_index(*def), false, t);
  return f;
}

bool has_kernel(int op, bool gradient, DType t) {
  const OpDef* def = op_at(op);
  if (!def || !def->elementwise) return false;
  const auto table = gradient ? def->elementwise->grad_table : def->elementwise->table;
  return table && table()[def->elementwise->row * kDTypeCount + static_cast<int>(computed_in(t))];
}

struct ChainSourceOf : ChainSource, ::testing::WithParamInterface<DType> {};

}  // namespace

// In chains as long as they may be: every formula is compiled, and reads the result of another.
TEST_P(ChainSourceOf, EveryFormulaCompiles) {
  const DType t = GetParam();
  ChainForm f = three_inputs(t);
  int formulas = 0;
  auto flush = [&] {
    if (!f.steps) return;
    const std::string source = source_of(f);
    cuda::CompiledSource made = compile(source);
    EXPECT_FALSE(made.image.empty()) << source << made.log;
    f = three_inputs(t);
  };
  for (bool gradient : {false, true}) {
    for (int op = 0; op < op_count(); ++op) {
      if (!has_kernel(op, gradient, t)) continue;
      add_step(f, op, gradient, t);
      ++formulas;
      if (f.steps == cuda::kChainSteps) flush();
    }
  }
  flush();
  EXPECT_GT(formulas, t == DType::boolean ? 15 : 35);
}
INSTANTIATE_TEST_SUITE_P(Types, ChainSourceOf,
                         ::testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::u8,
                                           DType::i32, DType::i64, DType::boolean),
                         [](const auto& p) { return std::string(name_of(p.param)); });

// Within a formula a product and a sum may become one instruction, as in that formula's own kernel; between two not.
TEST_F(ChainSource, NothingIsContractedAcrossOps) {
  constexpr int kUnknown = 91;  // gives text
  ChainForm f = of(DType::f32, {&op_def<Mul>, &op_def<Add>});
  std::string apart = compile(source_of(f), kUnknown).image;
  EXPECT_NE(apart.find("mul"), apart.npos);
  EXPECT_EQ(apart.find("fma.rn.f32"), apart.npos) << apart;
  std::string together = compile(source_of(of(DType::f32, {&op_def<Addcmul>})), kUnknown).image;
  EXPECT_NE(together.find("fma.rn.f32"), together.npos);
}

TEST_F(ChainSource, DependsOnTheFormOnly) {
  ChainForm f = of(DType::bf16, {&op_def<Mul>, &op_def<Gelu>});
  if constexpr (DEFT_TEST_CUDA) {
    EXPECT_EQ(f.width(), 8);
  }
  EXPECT_EQ(source_of(f), source_of(of(DType::bf16, {&op_def<Mul>, &op_def<Gelu>})));
  f.input[1].access = ChainAccess::single;
  EXPECT_NE(source_of(f), source_of(of(DType::bf16, {&op_def<Mul>, &op_def<Gelu>})));
}

// ---- Files
namespace {

struct KernelFiles : ChainSource {
  void SetUp() override {
    ChainSource::SetUp();
    std::string name = (std::filesystem::temp_directory_path() / "deft_kernels_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    folder_ = name + "/inner";
  }
  void TearDown() override {
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& f : std::filesystem::directory_iterator(folder_)) all.push_back(f.path());
    return all;
  }
  // How often NVRTC ran for it.
  int made(const std::string& expected, int capability = kCapability) {
    const int before = compilations();
    EXPECT_EQ(image(form_, folder_, capability).image, expected);
    return compilations() - before;
  }
  static void write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string root_, folder_;
  ChainForm form_ = of(DType::f32, {&op_def<Mul>, &op_def<Add>});
};

}  // namespace

TEST_F(KernelFiles, ASecondProcessCompilesNothing) {
  const std::string first = image(form_, folder_).image;
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(made(first), 0);
  ASSERT_EQ(files().size(), 1u);
  image(form_, folder_, 80);  // another GPU has a file of its own
  EXPECT_EQ(files().size(), 2u);
  EXPECT_EQ(made(first), 0);
}

TEST_F(KernelFiles, DamagedAndForeignOnesAreMadeAnew) {
  const std::string first = image(form_, folder_).image;
  const std::filesystem::path path = files().at(0);
  const std::string good = read(path);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  for (const std::string& bad :
       {std::string(), std::string("something else\n"), good.substr(0, good.size() - 7), flipped, good + "more"}) {
    write(path, bad);
    EXPECT_EQ(made(first), 1);
    EXPECT_EQ(read(path), good);
    EXPECT_EQ(made(first), 0);
  }
}

// A file whose name is right but which belongs to another source.
TEST_F(KernelFiles, TheWholeSourceIsCompared) {
  const std::string first = image(form_, folder_).image;
  const std::filesystem::path path = files().at(0);
  form_ = of(DType::f32, {&op_def<Mul>, &op_def<Sub>});
  const std::string second = image(form_, folder_).image;
  for (const auto& file : files())
    if (file != path) std::filesystem::copy_file(path, file, std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(first, second);
  EXPECT_EQ(made(second), 1);
}

TEST_F(KernelFiles, TheFolderIsBounded) {
  std::filesystem::create_directories(folder_);
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (size_t i = 0; i < cuda::kMostKernelFiles + 3; ++i) {
    const std::string path = folder_ + "/" + std::to_string(i) + ".kernel";
    write(path, "x");
    std::filesystem::last_write_time(path, old + std::chrono::seconds(i));
  }
  const std::string first = image(form_, folder_).image;
  EXPECT_EQ(files().size(), cuda::kMostKernelFiles);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/3.kernel"));  // four had to go, the oldest first
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/4.kernel"));
  EXPECT_EQ(made(first), 0);
}

TEST_F(KernelFiles, AFolderThatCannotBeWrittenIsNoError) {
  folder_ = "/dev/null/none";
  EXPECT_FALSE(image(form_, folder_).image.empty());
}

}  // namespace deft
