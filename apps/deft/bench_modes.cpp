// deft bench modes
#include <fmt/format.h>

#include "bench/builtin_models.h"
#include "bench/interrupt.h"
#include "bench/modes.h"
#include "late_end.h"
#include "output.h"
#include "sweep.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct BenchModesFlags : CommonFlags {
  std::vector<std::string> models;
  Sweep sweep;
};

Presentation presentation_of(const bench::Report& report, const Sweep& sweep) {
  Presentation p;
  p.title = fmt::format("Grad modes on {}{}", report.machine["cpu"].get<std::string>(), threads_text(sweep, report));
  p.columns = {{"case", "model"},
               {"threads", "threads"},
               {"batch", "batch"},
               {"mode", "mode"},
               {"pass", "pass"},
               {"p50_ms", "p50 ms", 3},
               {"p99_ms", "p99 ms", 3},
               {"peak_mb", "peak MB", 2},
               {"saved_for_backward_mb", "saved for backward MB", 2},
               {"ratio_to_grad_forward", "speed vs grad forward", 2},
               {"samples", "samples"},
               {"note", "note"}};
  p.notes = {"Time: compute only, inputs ready. Peak: all tensors, weights included. Saved: at the end of forward."};
  return p;
}

}  // namespace

std::function<int()> add_bench_modes(Command command) {
  auto flags = std::make_shared<BenchModesFlags>();
  add_common_flags(command, *flags);
  add_baseline_flags(command, *flags);
  add_repeats_flag(command, *flags, "Samples per row; default: at least 100, within 10 s for the whole run");
  std::vector<std::string> names, summaries;
  for (const bench::BuiltinModelInfo& info : bench::builtin_models()) {
    names.emplace_back(info.name);
    summaries.push_back(fmt::format("{}: {}; batch {}", info.name, info.summary, info.default_batch));
  }
  command
      .add_option("-m,--model", flags->models,
                  fmt::format("Built-in models; default: all\n{}", fmt::join(summaries, "\n")))
      .delimiter(',')
      .check(one_of("model", names))
      .type_name(fmt::format("{}", fmt::join(names, ",")));
  add_sweep_flags(command, flags->sweep);
  return [flags] {
    bench::watch_for_interrupt();
    LateEnd late([flags] { return print_rows_so_far(*flags); });
    bench::ModesOptions options;
    options.models = flags->models;
    options.repeats = flags->repeats;
    bench::Report report;
    {
      Progress progress("bench modes", flags->quiet);
      options.progress = [&](const std::string& what) { progress.show(what); };
      report = run_sweep(flags->sweep, [&](int64_t batch) {
        options.batch = batch;
        return bench::measure_modes(options);
      });
    }
    return print_report(report, *flags, presentation_of(report, flags->sweep));
  };
}

}  // namespace deft::cli
