// deft bench gemm, conv, attention, rows: the CPU engine against the machine and against peers
#include <fmt/format.h>

#include "bench/engine.h"
#include "bench/interrupt.h"
#include "late_end.h"
#include "output.h"
#include "verbs.h"

namespace deft::cli {

namespace {

using bench::kDigits;

struct BenchEngineFlags : CommonFlags {
  std::string family, dtype;
  std::vector<std::string> peers;
  int64_t batch = 1;
  bool quick = false, no_library_peers = false;
};

std::vector<std::string> peers_of(const bench::Report& report) {
  std::vector<std::string> names;
  for (const bench::Json& row : report.results) {
    if (row["peer"].is_string() && std::find(names.begin(), names.end(), row["peer"].get<std::string>()) == names.end())
      names.push_back(row["peer"]);
  }
  return names;
}

Presentation presentation_of(const bench::Report& report, const std::string& name, int threads) {
  std::vector<std::string> peers = peers_of(report);
  Presentation p;
  p.title = fmt::format("{} on {}, {} thread{}", name, report.machine["cpu"].get<std::string>(), threads,
                        threads == 1 ? "" : "s");
  p.columns = {{"case", "case"},
               {"variant", "variant"},
               {"ms", "ms", 4},
               {"gflops", "GFLOP/s", 1},
               {"gb_per_s", "GB/s", 1},
               {"percent_of_peak", "% of peak", 1},
               {"scaling", "times 1 thread", 2},
               {"peer_ms", peers.size() == 1 ? peers[0] + " ms" : "ms of the peer", 4},
               {"peer_ratio", "times faster", 2},
               {"error", "error", kDigits},
               {"error_bound", "bound", kDigits}};
  if (peers.size() > 1) p.columns.insert(p.columns.end() - 4, {"peer", "fastest peer"});
  p.more_tables = {{report.peaks, {{"peak", "peak"}, {"gflops", "GFLOP/s", 1}, {"gb_per_s", "GB/s", 1}}},
                   {report.bars,
                    {{"bar", "bar"},
                     {"unit", "unit"},
                     {"must", "must", 2},
                     {"aim", "aim", 2},
                     {"value", "mean", 2},
                     {"worst", "worst", 2},
                     {"worst_case", "worst case"}}}};
  std::string quiet;
  if (report.machine.contains("waited_for_neighbours_s")) {
    quiet = fmt::format(
        " Each run began when no other program was on the other half of a core, if that came within half a second "
        "(waited for {:.1f} s).",
        report.machine["waited_for_neighbours_s"].get<double>());
  }
  p.notes = {fmt::format(
      "Time: {}. Random data. Peak: of the instruction or the mix of reads and writes that limits the case, measured "
      "between its runs; the table has what was measured first.{} Error: against f64, on the scale of the bound.",
      threads == 1 ? "minimum of thread CPU time" : "median of wall time", quiet)};
  return p;
}

std::function<int()> add_bench(Command command, bench::EngineBench (*make)()) {
  bench::EngineBench bench = make();
  auto flags = std::make_shared<BenchEngineFlags>();
  flags->repeats = bench::EngineOptions().repeats;
  flags->threads = 1;
  add_measure_flags(command, *flags,
                    fmt::format("Batches per row and side, fewer where they take long; default: {}", flags->repeats));
  command.flag("--threads").description("Threads; default: 1");
  command.add_option("-f,--family", flags->family, fmt::format("One family only: {}", fmt::join(bench.families, ", ")))
      .check(one_of("family", bench.families))
      .type_name("NAME");
  command.add_option("--dtype", flags->dtype, fmt::format("One type only: {}", fmt::join(bench.dtypes, ", ")))
      .check(one_of("dtype", bench.dtypes))
      .type_name("NAME");
  command
      .add_option("--peer", flags->peers,
                  "A program to compare with, such as bench/peer_torch.py; the fastest of several counts")
      .check(a_command())
      .repeatable()
      .type_name("COMMAND");
  if (bench.library_peers)
    command.add_flag("--no-library-peers", flags->no_library_peers, "Do not measure OpenBLAS, where it is installed");
  if (bench.batches) {
    command.add_option("-b,--batch", flags->batch, "Images at a time; default: 1")
        .check(whole_number(1, 4096))
        .type_name("N");
  }
  command.add_flag("--quick", flags->quick, "Tiny shapes, one batch: a smoke test, not a measurement");
  command.footer(
      "Bars that are missed do not change the exit code: this is a measurement. Scripts read \"bars\" of -o json.");
  return [flags, bench] {
    bench::watch_for_interrupt();
    LateEnd late([flags] { return print_rows_so_far(*flags); });
    bench::EngineOptions options;
    options.threads = flags->threads;
    options.repeats = flags->repeats;
    options.quick = flags->quick;
    options.batch = flags->batch;
    options.family = flags->family;
    options.dtype = flags->dtype;
    options.peers = flags->peers;
    options.library_peers = !flags->no_library_peers;
    std::string name = fmt::format("bench {}", bench.name);
    bench::Report report;
    {
      Progress progress(name, flags->quiet);
      options.progress = [&](const std::string& what) { progress.show(what); };
      report = bench.measure(options);
    }
    return print_report(report, *flags, presentation_of(report, bench.title, options.threads));
  };
}

}  // namespace

std::function<int()> add_bench_gemm(Command command) { return add_bench(command, bench::gemm_bench); }
std::function<int()> add_bench_conv(Command command) { return add_bench(command, bench::conv_bench); }
std::function<int()> add_bench_attention(Command command) { return add_bench(command, bench::attention_bench); }
std::function<int()> add_bench_rows(Command command) { return add_bench(command, bench::rows_bench); }

}  // namespace deft::cli
