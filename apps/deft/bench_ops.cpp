// deft bench ops
#include <fmt/format.h>

#include "base/check.h"
#include "bench/interrupt.h"
#include "bench/ops.h"
#include "late_end.h"
#include "output.h"
#include "runtime/backend.h"
#include "runtime/numerics.h"
#include "runtime/parallel.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct BenchOpsFlags : CommonFlags {
  std::string device = "cpu", peer, family;
};

Presentation presentation_of(const bench::Report& report, Device device) {
  std::string peer;
  for (const bench::Json& row : report.results)
    if (row["peer"].is_string()) peer = row["peer"];
  Presentation p;
  std::string where = device.is_cpu() ? report.machine["cpu"].get<std::string>() : device_properties(device).name;
  p.title = fmt::format("Single ops on {}", where);
  p.columns = {{"case", "case"},
               {"ms", "ms", 4},
               {"gb_per_s", "GB/s", 0},
               {"percent_of_copy", "% of copy", 1},
               {"tflops", "TFLOP/s", 1},
               {"peer_ms", peer + " ms", 4},
               {"peer_ratio", "times faster", 2}};
  p.notes = {
      "Medians; random data; inputs take turns so that no cache holds them. Bytes: every input read once, every "
      "output written once. Copy: the faster of the two copy rows of this run."};
  return p;
}

}  // namespace

std::function<int()> add_bench_ops(Command command) {
  auto flags = std::make_shared<BenchOpsFlags>();
  flags->repeats = bench::OpsOptions().repeats;
  add_measure_flags(command, *flags, fmt::format("Timed rounds of 4 ms per row; default: {}", flags->repeats));
  add_device_flag(command, flags->device);
  const std::vector<std::string> families = {"copy", "move",  "elementwise", "reduce",
                                             "rows", "other", "matmul",      "conv"};
  command.add_option("-f,--family", flags->family, fmt::format("One family only: {}", fmt::join(families, ", ")))
      .check(one_of("family", families))
      .type_name("NAME");
  command.add_option("--peer", flags->peer, "A program to compare with, such as bench/peer_torch.py")
      .check(a_command())
      .type_name("COMMAND");
  return [flags] {
    bench::watch_for_interrupt();
    LateEnd late([flags] { return print_rows_so_far(*flags); });
    bench::OpsOptions options;
    options.device = chosen_device(flags->device);
    options.repeats = flags->repeats;
    options.family = flags->family;
    options.peer = flags->peer;
    set_conv_benchmark(true);  // as the peer's
    bench::Report report;
    {
      Progress progress("bench ops", flags->quiet);
      options.progress = [&](const std::string& what) { progress.show(what); };
      report = bench::measure_ops(options);
    }
    return print_report(report, *flags, presentation_of(report, options.device));
  };
}

}  // namespace deft::cli
