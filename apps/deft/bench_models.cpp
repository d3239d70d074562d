// deft bench models
#include <fmt/format.h>

#include "bench/interrupt.h"
#include "bench/mission_tables.h"
#include "bench/models.h"
#include "bench/small.h"
#include "late_end.h"
#include "output.h"
#include "runtime/backend.h"
#include "runtime/numerics.h"
#include "sweep.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct BenchModelsFlags : CommonFlags {
  bool tables = false, small = false;
  std::string device = "cpu";
  Sweep sweep;
  bench::ModelsOptions options;
};

Presentation presentation_of(const bench::Report& report, Device device, const Sweep& sweep) {
  Presentation p;
  p.title = device.is_cpu()
                ? fmt::format("Models on {}{}", report.machine["cpu"].get<std::string>(), threads_text(sweep, report))
                : fmt::format("Models on {}", device_properties(device).name);
  p.columns = {{"case", "model"},         {"batch", "batch"},
               {"pass", "pass"},          {"mode", "mode"},
               {"type", "type"},          {"p50_ms", "p50 ms", 2},
               {"p99_ms", "p99 ms", 2},   {"samples_per_second", "samples/s", 1},
               {"peak_mb", "peak MB", 1}, {"saved_for_backward_mb", "saved for backward MB", 1},
               {"samples", "samples"},    {"peer", "peer"},
               {"peer_ms", "peer ms", 2}, {"peer_ratio", "times as fast", 2}};
  if (!report.results.empty() && report.results[0].contains("eager_ms")) {
    p.columns.insert(p.columns.begin() + 6,
                     {{"eager_ms", "eager ms", 2}, {"times_eager", "times as fast as eager", 2}});
    p.columns.insert(p.columns.begin() + 11, {{"activations_mb", "activations MB", 1},
                                              {"activations_of_eager", "of eager's", 2},
                                              {"compile_cold_ms", "compile ms", 0},
                                              {"compile_warm_ms", "again ms", 0}});
  }
  p.notes = {
      "train: forward, backward, SGD step. validate: forward in eval mode, with gradients as a forgotten no_grad "
      "leaves it "
      "and under no_grad. amp: autocast in the type that is fast here. bf16: weights too."};
  if (!device.is_cpu()) p.notes.push_back("A sample is the mean of four calls in a row.");
  return p;
}

Presentation small_of(const bench::Report& report) {
  Presentation p;
  p.title = fmt::format("Small work on {}, 1 thread", report.machine["cpu"].get<std::string>());
  p.columns = {{"case", "what"},
               {"eager_ns", "eager ns", 0},
               {"compiled_ns", "compiled ns", 0},
               {"ratio", "times as fast", 2},
               {"weights_gb_s", "GB/s of weights", 1},
               {"eager_instructions", "eager instructions"},
               {"compiled_instructions", "compiled instructions"},
               {"eager_heap_allocs", "eager allocations", 1},
               {"compiled_heap_allocs", "compiled allocations", 1}};
  p.notes = {
      "One call in inference mode; medians of batches that take turns. GB/s: weights that the compiled call reads; "
      "those beyond the first cache level bound both sides."};
  return p;
}

std::vector<bench::Json> rows_of(const bench::Report& report, const char* table) {
  std::vector<bench::Json> rows;
  for (const bench::Json& row : report.results)
    if (row["table"] == table) rows.push_back(row);
  return rows;
}

// The same title, two tables.
Presentation tables_of(const bench::Report& report, Presentation p) {
  p.columns.clear();
  p.more_tables = {{rows_of(report, "modes"),
                    {{"what", "what"},
                     {"case", "model"},
                     {"batch", "batch"},
                     {"epoch_samples", "samples in an epoch"},
                     {"epoch_seconds", "epoch s", 2},
                     {"peak_mb", "peak MB", 1},
                     {"times_training", "times as fast as training", 2}}},
                   {rows_of(report, "families"),
                    {{"case", "model"},
                     {"batch", "batch"},
                     {"pass", "pass"},
                     {"mode", "mode"},
                     {"type", "type"},
                     {"peak_mb", "peak MB", 1},
                     {"p50_ms", "ms per batch", 1},
                     {"samples_per_second", "samples/s", 2}}}};
  p.notes = {
      "Every cell was measured in this run. An epoch is the samples given; --repeats says of how many batches. "
      "bf16: weights too."};
  return p;
}

}  // namespace

std::function<int()> add_bench_models(Command command) {
  auto flags = std::make_shared<BenchModelsFlags>();
  bench::ModelsOptions& o = flags->options;
  add_common_flags(command, *flags);
  add_baseline_flags(command, *flags);
  add_repeats_flag(command, *flags, "Samples per row; default: at least 5, within 4 s");
  std::vector<std::string> names, summaries;
  for (const bench::BenchModelInfo& info : bench::bench_models()) {
    names.emplace_back(info.name);
    summaries.push_back(fmt::format("{}: {}; batch {}", info.name, info.summary, info.default_batch));
  }
  command
      .add_option("-m,--model", o.models,
                  fmt::format("Models; default: the first five\n{}", fmt::join(summaries, "\n")))
      .delimiter(',')
      .check(one_of("model", names))
      .type_name("NAME,...");
  add_sweep_flags(command, flags->sweep);
  command.add_option("--pass", o.passes, "train, validate, infer; default: all")
      .delimiter(',')
      .check(one_of("pass", {"train", "validate", "infer"}))
      .type_name("PASS,...");
  command.add_option("--type", o.types, "f32, amp, bf16; default: all")
      .delimiter(',')
      .check(one_of("type", {"f32", "amp", "bf16"}))
      .type_name("TYPE,...");
  add_device_flag(command, flags->device);
  Flag tables = command.add_flag("--tables", flags->tables,
                                 "Two tables instead: one model by grad mode, models by batch; default: ResNet-50, and "
                                 "Transformer-XL, BERT-base, ResNet-50 with batches of 64, 32, 128");
  command.add_flag("--compile", o.compile, "Compiled plans compared with eager").excludes(tables);
  command
      .add_flag("--small", flags->small,
                "Compiled against eager where arithmetic costs least: cells and nets of one row")
      .excludes(tables);
  command.add_option("--peer", o.peer, "Program to compare with, such as bench/peer_models.py")
      .check(a_command())
      .excludes(tables)
      .type_name("PROGRAM");
  return [flags] {
    bench::watch_for_interrupt();
    LateEnd late([flags] { return print_rows_so_far(*flags); });
    flags->options.repeats = flags->repeats;
    flags->options.device = chosen_device(flags->device);
    set_conv_benchmark(true);  // as the peer's
    bench::Report report;
    {
      Progress progress("bench models", flags->quiet);
      flags->options.progress = [&](const std::string& what) { progress.show(what); };
      if (flags->small) {
        bench::SmallOptions small;
        if (flags->repeats > 0) small.repeats = flags->repeats;
        small.progress = flags->options.progress;
        report = bench::measure_small(small);
      } else {
        report = run_sweep(flags->sweep, [&](int64_t batch) {
          flags->options.batch = batch;
          return flags->tables ? bench::measure_mission_tables(flags->options) : bench::measure_models(flags->options);
        });
      }
    }
    if (flags->small) return print_report(report, *flags, small_of(report));
    Presentation p = presentation_of(report, flags->options.device, flags->sweep);
    if (flags->sweep.threads.size() > 1) p.columns.insert(p.columns.begin() + 1, {"threads", "threads"});
    return print_report(report, *flags, flags->tables ? tables_of(report, p) : p);
  };
}

}  // namespace deft::cli
