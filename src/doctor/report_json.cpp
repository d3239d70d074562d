#include "doctor/report_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace deft::doctor {

namespace {

// Six digits that count: more is noise in a file.
Json measured(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0.0;
  double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

// Of a technique as the trials name it, and the plan that has it.
std::string how_to(const std::string& technique, const Plan& plan) {
  auto begins = [&](const char* word) { return technique.starts_with(word); };
  if (begins("eval mode")) return "model.eval();";
  if (begins("no_grad")) return "NoGradGuard no_grad;";
  if (begins("inference mode")) return "InferenceModeGuard inference;";
  if (begins("autocast")) return fmt::format("AutocastGuard autocast(DType::{});", name_of(plan.autocast));
  if (begins("bf16 weights")) return "model.to(DType::bf16);";
  if (begins("channels_last")) return "model.to(MemoryFormat::channels_last);";
  if (begins("contiguous")) return "model.to(MemoryFormat::contiguous);";
  if (begins("compile")) return "Compiled fast = compile(model);";
  if (begins("batches of")) return fmt::format("data::LoaderOptions{{.batch_size = {}}}", plan.batch);
  if (technique.find("loading thread") != technique.npos)
    return fmt::format("data::LoaderOptions{{.workers = {}, .prefetch = {}}}", plan.workers, plan.prefetch);
  return fmt::format("set_num_threads({});", plan.threads);
}

bool is_batch(const TrialRow& row) { return row.technique.starts_with("batches of"); }

// Batches that grow in several steps are one thing to do.
std::vector<TrialRow> kept_steps(const std::vector<TrialRow>& rows, const Plan& plan) {
  std::vector<TrialRow> kept;
  for (const TrialRow& row : rows) {
    if (!row.kept) continue;
    if (row.technique.starts_with("autocast") && plan.autocast == DType::f32)
      continue;  // 16-bit weights took its place
    if (!kept.empty() && is_batch(kept.back()) && is_batch(row)) {
      kept.back().technique = row.technique;
      kept.back().speedup *= row.speedup;
    } else {
      kept.push_back(row);
    }
  }
  return kept;
}

}  // namespace

Json trials_json(const std::vector<TrialRow>& rows) {
  Json out = Json::array();
  for (const TrialRow& r : rows)
    out.push_back({{"technique", r.technique},
                   {"stage", r.stage},
                   {"before_ms", measured(r.before_ms)},
                   {"after_ms", measured(r.after_ms)},
                   {"speedup", measured(r.speedup)},
                   {"speedup_low", measured(r.speedup_low)},
                   {"speedup_high", measured(r.speedup_high)},
                   {"pairs", r.pairs},
                   {"peak_mb_before", measured(r.peak_mb_before)},
                   {"peak_mb_after", measured(r.peak_mb_after)},
                   {"output_error", measured(r.output_error)},
                   {"accuracy_before", measured(r.accuracy_before)},
                   {"accuracy_after", measured(r.accuracy_after)},
                   {"kept", r.kept},
                   {"reason", r.reason}});
  return out;
}

Json waterfall_json(const std::vector<TrialsResult::Step>& steps) {
  Json out = Json::array();
  for (const auto& s : steps)
    out.push_back({{"step", s.name}, {"samples_per_s", measured(s.samples_per_s)}, {"speedup", measured(s.speedup)}});
  return out;
}

Json plan_json(const Plan& plan) { return Json::parse(plan.to_json()); }

Json verified_json(const std::string& task, const TrialResult& trial) {
  if (trial.pairs == 0) return nullptr;
  return {{"task", task},
          {"speedup", measured(trial.speedup)},
          {"speedup_low", measured(trial.low)},
          {"speedup_high", measured(trial.high)},
          {"before_ms", measured(1e3 * trial.before)},
          {"after_ms", measured(1e3 * trial.after)},
          {"pairs", trial.pairs},
          {"verdict", name_of(trial.verdict)}};
}

Json next_json(const TrialsResult& result, const std::string& command, bool demonstration) {
  std::vector<TrialRow> steps = kept_steps(result.rows, result.plan);
  auto gain = [](const TrialRow& r) { return std::isfinite(r.speedup) ? r.speedup : 0; };
  std::stable_sort(steps.begin(), steps.end(), [&](auto& a, auto& b) { return gain(a) > gain(b); });
  Json out = Json::array();
  if (demonstration)
    out.push_back({{"what", "examine what you run today; this was a demonstration"},
                   {"gain", nullptr},
                   {"how", command},
                   {"run", true}});
  else if (result.verified.verdict == Verdict::helps)
    out.push_back(
        {{"what", "run with the plan"}, {"gain", measured(result.verified.speedup)}, {"how", command}, {"run", true}});
  for (const TrialRow& r : steps)
    out.push_back({{"what", r.technique}, {"gain", measured(r.speedup)}, {"how", how_to(r.technique, result.plan)}});
  return out;
}

Json latency_json(const profile::LatencyReport& report) {
  auto ms = [](double seconds) { return measured(1e3 * seconds); };
  Json columns = Json::array(), histogram = Json::array();
  for (const profile::LatencyColumn& c : report.columns)
    columns.push_back({{"name", c.name},
                       {"samples", c.samples.size()},
                       {"p50_ms", ms(c.p50)},
                       {"p90_ms", ms(c.p90)},
                       {"p99_ms", ms(c.p99)},
                       {"p999_ms", ms(c.p999)},
                       {"mean_ms", ms(c.mean)}});
  for (const profile::LatencyBin& b : report.histogram)
    histogram.push_back({{"from_ms", ms(b.from)}, {"to_ms", ms(b.to)}, {"count", b.count}});
  return {{"covers", report.covers}, {"columns", columns}, {"histogram", histogram}, {"verdict", report.verdict}};
}

Json energy_json(const profile::EnergyReport& report, int64_t samples) {
  auto known = [](const auto& value) { return value ? Json(*value) : Json(); };
  bool each = report.joules && samples > 0;
  return {{"joules_per_sample", each ? measured(*report.joules / static_cast<double>(samples)) : Json()},
          {"watts", known(report.watts)},
          {"idle_watts", known(report.idle_watts)},
          {"method", known(report.method)},
          {"sampling_hz", known(report.sampling_hz)},
          {"reason", report.reason}};
}

}  // namespace deft::doctor
