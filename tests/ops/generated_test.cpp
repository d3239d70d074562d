// One test per op, element type, layout and sample, from the samples of all ops, on every device that is there. Names
// read like softmax.f32/transposed/dim=1 and cuda/softmax.f32/transposed/dim=1; run some of them with
// --gtest_filter='softmax.*', those of a GPU with --gtest_filter='cuda/*'.
#include <iostream>
#include <map>

#include "sample_cases.h"

namespace deft::testing {
namespace {

class SampleCase : public ::testing::Test {
 public:
  explicit SampleCase(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

constexpr DType kDTypes[] = {f32, f64, bf16, f16, i8, u8, i32, i64, boolean};

// The cases of one device.
class Registry {
 public:
  explicit Registry(Device d) : device(d) {}
  const Device device;

  // `body` gets the seed made from the case's full name, which is the same on every device.
  void add(const OpSamples& op, std::string name, std::function<void(uint64_t)> body) {
    for (char& c : name)
      if (c == ' ') c = '_';
    std::string full = std::string(op.op) + "/" + name;
    if (int again = seen_[full]++) {
      name += fmt::format("#{}", again + 1);
      full += fmt::format("#{}", again + 1);
    }
    uint64_t seed = seed_of(full);
    ++count_[op.op];
    std::string suite = device.is_cpu() ? op.op : std::string("cuda/") + op.op;
    ::testing::RegisterTest(
        suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [body = std::move(body), seed]() -> SampleCase* { return new SampleCase([=] { body(seed); }); });
  }
  const std::map<std::string, int>& counts() const { return count_; }

 private:
  std::map<std::string, int> seen_, count_;
};

void add_forward(Registry& r, const OpSamples& op) {
  for (DType t : kDTypes) {
    if (!op.dtypes.contains(t)) continue;
    for (int l = 0; l < kLayoutCount; ++l) {
      Layout layout = static_cast<Layout>(l);
      if (l && !op.any_layout) break;
      for (const Sample& s : op.good)
        if (has_layout(s.args, layout))
          r.add(op, fmt::format("{}/{}/{}", name_of(t), name_of(layout), s.note),
                [&op, &s, t, layout, d = r.device](uint64_t seed) { check_forward(op, s, t, layout, seed, d); });
    }
  }
}

void add_other_dtypes(Registry& r, const OpSamples& op) {
  const Sample* chosen = nullptr;
  for (const Sample& s : op.good)
    if (!chosen && !s.args.empty() && s.args[0].kind == Arg::Kind::real && real_elements(s.args) > 0) chosen = &s;
  if (!chosen) return;
  // Their functions turn to other ops for these types (integers_test.cpp).
  std::string_view name = op.op;
  DTypeSet taken = name == "clamp" ? kBool : name == "hardtanh" || name == "threshold" ? kIntegers : DTypeSet();
  for (DType t : kDTypes)
    if (!op.dtypes.contains(t) && !taken.contains(t))
      r.add(op, fmt::format("{}/refused", name_of(t)),
            [chosen, t, d = r.device](uint64_t seed) { check_other_dtype(*chosen, t, seed, d); });
}

void add_modes(Registry& r, const OpSamples& op) {
  DType t = op.dtypes.contains(f32) ? f32 : i64;
  for (const Sample& s : op.good)
    r.add(op, "modes/" + s.note, [&op, &s, t, d = r.device](uint64_t seed) { check_modes(op, s, t, seed, d); });
}

void add_gradients(Registry& r, const OpSamples& op) {
  if (!op.grad) return;
  Device d = r.device;
  for (const Sample& s : op.good) {
    if (!any_grad_arg(s.args) || real_elements(s.args) > kGradLimit) continue;
    r.add(op, "gradient/" + s.note, [&op, &s, d](uint64_t seed) {
      d.is_cpu() ? check_gradient(op, s, seed) : check_device_gradient(op, s, seed, d);
    });
    for (DType t : {f32, bf16})
      if (op.dtypes.contains(t))
        r.add(op, fmt::format("gradient/{}/{}", name_of(t), s.note),
              [&op, &s, t, d](uint64_t seed) { check_gradient_of(op, s, t, Layout::contiguous, seed, d); });
    for (Layout l : {Layout::transposed, Layout::sliced, Layout::channels_last})
      if (op.any_layout && has_layout(s.args, l))
        r.add(op, fmt::format("gradient/{}/{}", name_of(l), s.note),
              [&op, &s, l, d](uint64_t seed) { check_gradient_of(op, s, f64, l, seed, d); });
  }
  r.add(op, "gradient/some_not_zero", [&op, d](uint64_t) { check_some_gradient(op, d); });
}

// Threads on the host, streams on a device.
void add_threads(Registry& r, const OpSamples& op) {
  if (op.good.empty() || !op.dtypes.contains(f32)) return;
  const Sample* large = &op.good[0];
  for (const Sample& s : op.good)
    if (real_elements(s.args) > real_elements(large->args)) large = &s;
  std::vector<Arg> args = large->args;
  // Elementwise calls do not mind larger inputs: make them large enough for several threads.
  const OpInfo* info = find_op_info(op.op);
  bool same = info && info->fusion == Fusion::elementwise && !args.empty() && args[0].sizes.size() > 0;
  for (const Arg& a : args) same = same && a.kind != Arg::Kind::missing && a.sizes == args[0].sizes && !a.distinct;
  if (same)
    for (Arg& a : args) a.sizes = Shape{3, 40001};
  r.add(op, (r.device.is_cpu() ? "threads/" : "streams/") + large->note,
        [&op, large, args, d = r.device](uint64_t seed) {
          d.is_cpu() ? check_threads(args, *large, seed) : check_streams(args, op, *large, seed, d);
        });
}

void add_bad(Registry& r, const OpSamples& op) {
  for (const BadSample& b : op.bad)
    r.add(op, "bad/" + b.note, [&b, d = r.device](uint64_t seed) { check_bad(b, seed, d); });
}

// Tests about the set of cases itself.
void add_overview(const Registry& r) {
  ::testing::RegisterTest("samples", "enough_cases", nullptr, nullptr, __FILE__, __LINE__, [counts = r.counts()]() {
    return new SampleCase([counts] {
      int total = 0;
      std::string least;
      for (auto& [op, n] : counts) {
        total += n;
        if (n < 24) least += fmt::format(" {} ({})", op, n);
      }
      std::cout << fmt::format("{} cases for {} ops, {:.1f} per op; under 24:{}\n", total, counts.size(),
                               total / static_cast<double>(counts.size()), least.empty() ? " none" : least);
      EXPECT_GE(total, 2500);
      EXPECT_GE(total, 24 * static_cast<int>(counts.size()));
    });
  });
  ::testing::RegisterTest("samples", "every_op_has_some", nullptr, nullptr, __FILE__, __LINE__, []() {
    return new SampleCase([] {
      for (const Uncovered& u : ops_without_samples()) EXPECT_NE(u.by, "") << u.op << " has no samples";
    });
  });
}

void add_all(Registry& r, const std::vector<OpSamples>& all) {
  for (const OpSamples& op : all) {
    add_forward(r, op);
    add_other_dtypes(r, op);
    add_modes(r, op);
    add_gradients(r, op);
    add_threads(r, op);
    add_bad(r, op);
    if (op.dtypes.contains(f32))
      r.add(op, "comparison_is_sharp", [&op, d = r.device](uint64_t) { check_comparator(op, d); });
  }
}

void register_all() {
  static const std::vector<OpSamples> all = all_samples();
  static Registry host(kCPU), gpu(kCUDA);
  add_all(host, all);
  add_overview(host);
  bool present = device_count(DeviceType::cuda) > 0;
  if (present) add_all(gpu, all);
  ::testing::RegisterTest("Cuda", "Suite", nullptr, nullptr, __FILE__, __LINE__, [present]() {
    return new SampleCase([present] {
      if (!present) GTEST_SKIP() << "no CUDA device";
      EXPECT_EQ(host.counts(), gpu.counts());
    });
  });
}

}  // namespace
}  // namespace deft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  deft::testing::register_all();
  return RUN_ALL_TESTS();
}
