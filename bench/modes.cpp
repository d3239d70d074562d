#include "bench/modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/builtin_models.h"
#include "bench/clock.h"
#include "bench/interrupt.h"
#include "bench/mode.h"
#include "bench/statistics.h"
#include "deft/deft.h"

namespace deft::bench {

namespace {

constexpr int kMinSamples = 100;
constexpr double kRunSeconds = 8;       // of a run with default repeats, all models together
constexpr double kModelSeconds = 1;     // at least, with default repeats
constexpr double kModeSeconds = 3;      // of one row, at most
constexpr double kWarmUpSeconds = 0.3;  // of each model
constexpr double kUnstable = 0.10;

struct ModeRow {
  Mode mode;
  bool backward;
  std::vector<double> ms;
  int64_t peak_bytes = 0, saved_bytes = 0;
};

// One forward, or forward and backward. Time covers compute only: inputs are ready, gradients are cleared outside.
double run_once(const BuiltinModel& model, const ModeRow& row) {
  ModeScope scope(row.mode);
  Clock::time_point start = Clock::now();
  double ms;
  {
    Tensor y = model.forward(/*training=*/row.backward);
    if (row.backward) cross_entropy(y, model.target).backward();
    ms = seconds_since(start) * 1e3;
  }
  for (const Tensor& p : model.parameters) p.zero_grad();
  return ms;
}

// Apart from the timed samples, though the counters are cheap: what is measured together must not disturb.
void measure_memory(const BuiltinModel& model, ModeRow& row) {
  ModeScope mode(row.mode);
  int64_t saved_before = graph_stats().saved_bytes;
  {
    MemoryScope memory;
    Tensor y = model.forward(row.backward);
    if (row.backward) y = cross_entropy(y, model.target);
    row.saved_bytes = graph_stats().saved_bytes - saved_before;
    if (row.backward) y.backward();
    row.peak_bytes = memory.peak_bytes();
  }
  for (const Tensor& p : model.parameters) p.zero_grad();
}

// Rows take turns, so that each meets the same conditions. False if interrupted.
bool sample_rows(const BuiltinModel& model, std::vector<ModeRow>& rows, int repeats, double seconds) {
  Clock::time_point start = Clock::now();
  do {
    for (const ModeRow& row : rows) run_once(model, row);
  } while (repeats == 0 && seconds_since(start) < kWarmUpSeconds);

  const double limit = repeats > 0 ? kModeSeconds * static_cast<double>(rows.size()) : seconds;
  const double at_least = repeats > 0 ? 0 : kModelSeconds;
  const int wanted = repeats > 0 ? repeats : kMinSamples;
  start = Clock::now();
  double spent = 0;
  for (int i = 0; spent < limit && (i < wanted || spent < at_least); ++i) {
    for (ModeRow& row : rows) {
      if (interrupted()) return false;
      row.ms.push_back(run_once(model, row));
    }
    spent = seconds_since(start);
  }
  return true;
}

Json to_json(const BuiltinModel& model, int64_t batch, const ModeRow& row, double grad_forward_ms) {
  double p50 = percentile(row.ms, 50), cv = spread(row.ms);
  return {
      {"case", model.name},
      {"mode", name_of(row.mode)},
      {"pass", row.backward ? "forward+backward" : "forward"},
      {"batch", batch},
      {"p50_ms", rounded(p50, 4)},
      {"p99_ms", rounded(percentile(row.ms, 99), 4)},
      {"peak_mb", static_cast<double>(row.peak_bytes) / 1e6},
      {"saved_for_backward_mb", static_cast<double>(row.saved_bytes) / 1e6},
      {"ratio_to_grad_forward", rounded(grad_forward_ms / p50, 3)},
      {"samples", row.ms.size()},
      {"cv", rounded(cv, 4)},
      {"note", cv > kUnstable ? Json(fmt::format("UNSTABLE (cv {:.0f} %)", cv * 100)) : Json()},
  };
}

const BuiltinModelInfo& find_model(const std::string& name) {
  for (const BuiltinModelInfo& info : builtin_models()) {
    if (info.name == name) return info;
  }
  throw ValueError("bench modes: there is no built-in model " + name);
}

bool measure_model(const BuiltinModelInfo& info, const ModesOptions& options, double seconds, Report& report) {
  const int64_t batch = options.batch > 0 ? options.batch : info.default_batch;
  BuiltinModel model = info.make(batch);
  std::vector<ModeRow> rows = {
      {Mode::grad, true, {}}, {Mode::grad, false, {}}, {Mode::no_grad, false, {}}, {Mode::inference, false, {}}};
  for (ModeRow& row : rows) measure_memory(model, row);
  bool complete = sample_rows(model, rows, options.repeats, seconds);
  double grad_forward_ms = percentile(rows[1].ms, 50);
  for (const ModeRow& row : rows) {
    if (!row.ms.empty() && std::isfinite(grad_forward_ms)) {
      report.add(to_json(model, batch, row, grad_forward_ms));
    }
  }
  return complete;
}

}  // namespace

Report measure_modes(const ModesOptions& options) {
  std::vector<std::string> names = options.models;
  if (names.empty()) {
    for (const BuiltinModelInfo& info : builtin_models()) names.emplace_back(info.name);
  }
  Report report;
  for (const std::string& name : names) {
    options.progress(name);
    report.interrupted =
        !measure_model(find_model(name), options, kRunSeconds / static_cast<double>(names.size()), report);
    if (report.interrupted) break;
  }
  return report;
}

}  // namespace deft::bench
