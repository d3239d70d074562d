// deft plan show: a plan of deft doctor in words.
#include <fmt/format.h>

#include "base/note.h"
#include "doctor/plan.h"
#include "exit_code.h"
#include "output.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct PlanShowFlags : CommonFlags {
  std::string file = "deft.plan.json";
};

struct Line {
  const char* what;
  std::string value, meaning;
};

std::string grad_mode_meaning(PlanGradMode mode) {
  if (mode == PlanGradMode::grad) return "the graph is recorded, for backward";
  if (mode == PlanGradMode::no_grad) return "no graph; results may be used in training later";
  return "no graph, no version counters; results are not for training";
}

Line compile_line(const Plan& plan) {
  if (!plan.compile) return {"compile", "off", "ops run one by one"};
  std::string without =
      plan.off_passes.empty() ? "all passes" : fmt::format("without {}", fmt::join(plan.off_passes, ", "));
  return {"compile", "on", fmt::format("the model is captured and runs as a plan, {}", without)};
}

std::vector<Line> lines_of(const Plan& plan) {
  std::vector<Line> lines = {
      {"workload", plan.workload, "what it was measured on"},
      {"machine", plan.machine, fmt::format("where, with deft {}", plan.version)},
      {"grad mode", name_of(plan.grad_mode), grad_mode_meaning(plan.grad_mode)},
      {"model mode", plan.eval ? "eval" : "train", "of dropout and batch norm"},
      {"batch", fmt::format("{}", plan.batch), "samples at a time"},
      {"workers", fmt::format("{}", plan.workers),
       plan.workers > 0 ? "threads that load data beside the loop" : "the loop loads its data itself"},
      {"prefetch", plan.prefetch > 0 ? fmt::format("{}", plan.prefetch) : "auto", "batches that are made ahead"},
      {"dtype", std::string(name_of(plan.dtype)), "of weights and inputs"},
      {"autocast", plan.autocast == DType::f32 ? "off" : std::string(name_of(plan.autocast)), "of products"},
      {"layout", plan.layout == MemoryFormat::channels_last ? "channels_last" : "contiguous", "of images in memory"},
      compile_line(plan),
      {"threads", plan.threads > 0 ? fmt::format("{}", plan.threads) : "auto", "of the kernels"}};
  if (!plan.buckets.empty())
    lines.push_back(
        {"buckets", fmt::format("{}", fmt::join(plan.buckets, ", ")), "lengths of text that share batches"});
  return lines;
}

int run(const PlanShowFlags& f) {
  Plan plan = Plan::load(f.file);
  if (std::string warning = plan.foreign(); !warning.empty()) print_note("warning: {}\n", warning);
  if (f.format == "json") {
    bench::Json json = bench::Json::parse(plan.to_json());
    json["foreign"] = plan.foreign().empty() ? bench::Json() : bench::Json(plan.foreign());
    write_out(json.dump(2) + "\n");
    return kOk;
  }
  bench::Report report;
  for (const Line& line : lines_of(plan))
    report.results.push_back({{"setting", line.what}, {"value", line.value}, {"meaning", line.meaning}});
  Presentation p;
  p.title = fmt::format("{}: how to run {} here", f.file, plan.workload.empty() ? "this workload" : plan.workload);
  p.columns = {{"setting", "setting"}, {"value", "value"}, {"meaning", "meaning"}};
  p.notes = {fmt::format("Apply it with: deft train|eval|infer --plan {}, or deft::Plan::load in C++.", f.file)};
  return print_report(report, f, p);
}

}  // namespace

std::function<int()> add_plan_show(Command command) {
  auto flags = std::make_shared<PlanShowFlags>();
  add_common_flags(command, *flags);
  command.add_option("file", flags->file, "Plan of deft doctor; default: deft.plan.json").type_name("FILE");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
