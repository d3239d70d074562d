// How to run a workload on this machine, as `deft doctor` measured it: deft.plan.json, which train, eval and infer take
// with --plan, and C++ programs like this:
//
//   Plan plan = Plan::load("deft.plan.json");
//   plan.prepare(model);            // its type, its layout, train or eval mode
//   data::DataLoader loader(dataset, plan.loader_options());
//   PlanScope scope(plan);          // threads, grad mode and autocast, as long as it lives
//   std::optional<Compiled> fast;
//   if (plan.compile) fast = compile(model, plan.compile_options());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "core/tensor.h"
#include "data/loader_options.h"
#include "graph/compile.h"
#include "nn/module.h"

namespace deft {

enum class PlanGradMode : uint8_t { grad, no_grad, inference };
const char* name_of(PlanGradMode mode);

struct Plan {
  static constexpr uint64_t kSchema = 1;

  std::string version;   // of the Deft that wrote it
  std::string machine;   // "aarch64 Neoverse-V1, 2 threads"; see this_machine()
  std::string workload;  // "cnn on fashion, infer"

  PlanGradMode grad_mode = PlanGradMode::grad;
  bool eval = false;  // the model in eval mode; not for training
  int workers = 0;    // threads that load data; 0: the loop does it
  int prefetch = 0;   // batches ahead; 0: the loader's own choice
  int64_t batch = 1;
  std::vector<int64_t> buckets;  // of text: samples up to these lengths share batches, ascending; none: no buckets
  DType dtype = DType::f32;      // of weights and inputs
  DType autocast = DType::f32;   // f32: off
  MemoryFormat layout = MemoryFormat::contiguous;  // or channels_last
  bool compile = false;
  std::vector<std::string> off_passes;  // of compile
  int threads = 0;                      // 0: the library's own choice

  bool operator==(const Plan&) const = default;

  // LoadError naming the key, what was found and what was expected. A key that is missing keeps the value above, except
  // schema and kind. A plan of another machine loads: see foreign().
  static Plan load(const std::string& path);
  static Plan parse(const std::string& text, const std::string& name);  // `name` stands for the file in errors
  void save(const std::string& path) const;                             // SaveError; whole or not at all
  std::string to_json() const;                                          // what save() writes

  static std::string this_machine();
  // A warning where the plan was measured on another machine or with another version, else "".
  std::string foreign() const;
  // A warning where the plan was measured for another model or data set, else "".
  std::string other_workload(const std::string& model, const std::string& data) const;
  std::string task() const;  // it was measured for: "infer"; "" where it does not say

  // What it says, for the parts of a program. `options` keep what a plan does not know: order, seed, data.
  data::LoaderOptions loader_options(data::LoaderOptions options = {}) const;
  CompileOptions compile_options(CompileOptions options = {}) const;
  // Replaces the model's parameters where type or layout change: before an optimizer gets them.
  void prepare(nn::Module& model) const;
  Tensor prepare(const Tensor& input) const;  // floats: type, and layout where it has four dims
};

// Threads, grad mode and autocast of a plan, on this thread and everything it starts; the number of threads holds for
// the process. What was before comes back at the end.
class [[nodiscard]] PlanScope {
 public:
  explicit PlanScope(const Plan& plan, Site site = Site::current());
  ~PlanScope();
  PlanScope(const PlanScope&) = delete;
  PlanScope& operator=(const PlanScope&) = delete;

 private:
  int outer_threads_;
  std::optional<NoGradGuard> no_grad_;
  std::optional<InferenceModeGuard> inference_;
  AutocastGuard autocast_;
};

}  // namespace deft
