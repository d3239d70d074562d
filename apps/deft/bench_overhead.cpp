// deft bench overhead
#include <fmt/format.h>

#include "bench/interrupt.h"
#include "bench/overhead.h"
#include "bench/peer.h"
#include "late_end.h"
#include "output.h"
#include "runtime/backend.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct BenchOverheadFlags : CommonFlags {
  bool no_peer = false;
  std::string only, device = "cpu";
};

Presentation overhead_presentation(const bench::Report& report) {
  std::string peer;
  for (const bench::Json& row : report.results) {
    if (row["peer"].is_string()) peer = row["peer"];
  }
  Presentation p;
  p.title = fmt::format("Cost of one eager op on {}, 1 thread", report.machine["cpu"].get<std::string>());
  p.columns = {{"case", "case"},
               {"mode", "mode"},
               {"instructions_per_op", "instructions", 0},
               {"ns_per_op", "ns", 0},
               {"heap_allocs_per_op", "heap allocs", 2},
               {"peer_ns_per_op", peer + " ns", 0},
               {"peer_ratio", "times faster", 1}};
  std::string counter = report.machine["instruction_counter"];
  p.notes = {fmt::format("Per op, 8 floats where no size is named. Time: minimum of thread CPU time. Instructions: {}.",
                         counter == "unavailable" ? "unavailable" : "exact, user space, by " + counter)};
  return p;
}

Presentation device_presentation(Device device) {
  Presentation p;
  p.title = fmt::format("Host cost of one eager op on {}, 1 thread", device_properties(device).name);
  p.columns = {{"case", "case"},
               {"mode", "mode"},
               {"ns_per_op", "ns", 0},
               {"ns_above_launch", "ns above a bare launch", 0},
               {"heap_allocs_per_op", "heap allocs", 2}};
  p.notes = {
      "Per op, 8 floats where no size is named; the device works on its own meanwhile. Time: median of thread CPU "
      "time. Launch: an empty kernel given to the driver directly."};
  return p;
}

}  // namespace

std::function<int()> add_bench_overhead(Command command) {
  auto flags = std::make_shared<BenchOverheadFlags>();
  flags->repeats = bench::OverheadOptions().repeats;
  add_measure_flags(command, *flags,
                    fmt::format("Batches of 0.5 ms per row, of which the fastest counts; default: {}", flags->repeats));
  command.flag("--threads").description("Always 1 here").check(whole_number(1, 1));
  std::vector<std::string> names;
  for (const bench::OverheadCase& c : bench::overhead_cases()) names.push_back(c.name);
  command.add_option("-c,--case", flags->only, fmt::format("One case only: {}", fmt::join(names, ", ")))
      .check(one_of("case", names))
      .type_name("NAME");
  add_device_flag(command, flags->device);
  command.add_flag("--no-peer", flags->no_peer, "Do not measure LibTorch, where it was found at build time");
  return [flags] {
    bench::watch_for_interrupt();
    LateEnd late([flags] { return print_rows_so_far(*flags); });
    bench::OverheadOptions options;
    options.repeats = flags->repeats;
    options.only = flags->only;
    options.device = chosen_device(flags->device);
    if (!flags->no_peer) options.peer = bench::program_beside_this("deft-peer-libtorch");
    bench::Report report;
    {
      Progress progress("bench overhead", flags->quiet);
      options.progress = [&](const std::string& what) { progress.show(what); };
      report = bench::measure_overhead(options);
    }
    return print_report(report, *flags,
                        options.device.is_cpu() ? overhead_presentation(report) : device_presentation(options.device));
  };
}

}  // namespace deft::cli
