#include "bench/mission_tables.h"

#include "bench/statistics.h"

namespace deft::bench {

namespace {

constexpr int kEpochBatches = 10, kFamilyBatches = 3;

const std::vector<std::pair<std::string, int64_t>> kFamilies = {
    {"transformer-xl", 64}, {"bert-base", 32}, {"resnet50", 128}};

std::string described(const Json& row) {
  std::string pass = row["pass"], mode = row["mode"], type = row["type"];
  if (pass == "train") return "training with gradients";
  if (mode == "grad") return "validation with gradients";
  return type == "f32" ? "validation in no_grad" : "inference in no_grad, " + type;
}

bool add_modes(ModelsOptions o, Report& report) {
  o.models = {o.models.empty() ? "resnet50" : o.models.front()};
  o.passes = {"train", "validate"};
  o.types = {"f32", "bf16"};
  if (o.repeats == 0) o.repeats = kEpochBatches;
  Report measured = measure_models(o);
  for (const Json& row : measured.results) {
    double total = row["total_ms"], full = measured.results[0]["total_ms"];
    int64_t batch = row["batch"], batches = row["samples"];
    report.results.push_back({{"table", "modes"},
                              {"case", row["case"]},
                              {"batch", batch},
                              {"what", described(row)},
                              {"epoch_samples", batch * batches},
                              {"epoch_seconds", rounded(total / 1e3, 3)},
                              {"peak_mb", row["peak_mb"]},
                              {"times_training", rounded(full / total, 3)}});
  }
  return !measured.interrupted;
}

bool add_family(const std::string& name, int64_t batch, ModelsOptions o, Report& report) {
  o.models = {name};
  o.batch = batch;
  if (o.passes.empty()) o.passes = {"infer"};
  if (o.types.empty()) o.types = {"f32", "bf16"};
  if (o.repeats == 0) o.repeats = kFamilyBatches;
  Report measured = measure_models(o);
  for (const Json& row : measured.results)
    report.results.push_back({{"table", "families"},
                              {"case", row["case"]},
                              {"batch", row["batch"]},
                              {"pass", row["pass"]},
                              {"mode", row["mode"]},
                              {"type", row["type"]},
                              {"peak_mb", row["peak_mb"]},
                              {"p50_ms", row["p50_ms"]},
                              {"samples_per_second", row["samples_per_second"]}});
  return !measured.interrupted;
}

}  // namespace

Report measure_mission_tables(const ModelsOptions& o) {
  Report report;
  bool complete = add_modes(o, report);
  auto families = kFamilies;
  if (!o.models.empty()) families.clear();
  for (const std::string& name : o.models) families.emplace_back(name, 0);
  for (auto& [name, batch] : families)
    complete = complete && add_family(name, o.batch > 0 ? o.batch : batch, o, report);
  report.interrupted = !complete;
  return report;
}

}  // namespace deft::bench
