// deft bench data: what loading costs, and what it feeds.
#include <fmt/format.h>

#include <algorithm>

#include "bench/data_images.h"
#include "bench/data_loader.h"
#include "bench/data_sequences.h"
#include "bench/interrupt.h"
#include "late_end.h"
#include "output.h"
#include "task_flags.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct BenchDataFlags : CommonFlags {
  std::vector<std::string> parts;
  std::string peer;
  bool quick = false;
};

void append(bench::Report& to, bench::Report part, const char* name) {
  for (bench::Json& row : part.results) {
    row["part"] = name;
    to.results.push_back(std::move(row));
  }
  to.bars.insert(to.bars.end(), part.bars.begin(), part.bars.end());
  to.interrupted |= part.interrupted;
}

Presentation::Table table_of(const bench::Report& report, const char* part, std::vector<bench::Column> columns) {
  Presentation::Table t{{}, std::move(columns)};
  for (const bench::Json& row : report.results)
    if (row["part"] == part) t.rows.push_back(row);
  return t;
}

Presentation presentation_of(const bench::Report& report) {
  Presentation p;
  p.title = fmt::format("Loading data on {}", report.machine["cpu"].get<std::string>());
  p.more_tables = {
      table_of(report, "loader",
               {{"case", "loader"},
                {"workers", "workers"},
                {"batch_us", "us per batch", 1},
                {"overhead_us", "of that the loader", 1},
                {"heap_allocations", "heap allocations"},
                {"waiting_percent", "consumer waits %", 2}}),
      table_of(report, "images",
               {{"case", "JPEG of 500 x 375"},
                {"workers", "workers"},
                {"images_per_second", "images/s", 1},
                {"cpu_ms_per_image", "CPU ms", 3},
                {"full_decode_ratio", "times libjpeg-turbo's full decode", 2},
                {"peer", "peer"},
                {"peer_images_per_second", "peer images/s", 1},
                {"peer_ratio", "times the peer", 2}}),
      table_of(report, "sequences",
               {{"case", "BERT-base, batches"},
                {"useful_tokens_per_second", "useful tokens/s", 0},
                {"ratio", "times naive", 2},
                {"padding_percent", "padding %", 1},
                {"shapes", "shapes"}}),
      {report.bars, {{"bar", "bar"}, {"value", "value", 2}, {"must", "must", 2}, {"aim", "aim", 2}, {"unit", "unit"}}}};
  return p;
}

int run(const BenchDataFlags& f) {
  bench::watch_for_interrupt();
  LateEnd late([&f] { return print_rows_so_far(f); });
  auto wanted = [&](const char* part) {
    return !bench::interrupted() &&
           (f.parts.empty() || std::find(f.parts.begin(), f.parts.end(), part) != f.parts.end());
  };
  bench::Report report;
  {
    Progress progress("bench data", f.quiet);
    auto show = [&](const std::string& what) { progress.show(what); };
    if (wanted("loader"))
      append(report, bench::measure_data_loader({.seconds = f.quick ? 0.05 : 1.0, .progress = show}), "loader");
    if (wanted("images")) {
      bench::DataImagesOptions o;
      if (f.quick) o.files = 4, o.rounds = 1;
      if (f.threads > 0) o.workers = f.threads;
      o.peer = f.peer;
      o.progress = show;
      append(report, bench::measure_data_images(o), "images");
    }
    if (wanted("sequences")) {
      bench::SequencesOptions o;
      o.quick = f.quick;
      if (f.threads > 0) o.threads = f.threads;
      o.progress = show;
      append(report, bench::measure_sequences(o), "sequences");
    }
  }
  return print_report(report, f, presentation_of(report));
}

}  // namespace

std::function<int()> add_bench_data(Command command) {
  auto flags = std::make_shared<BenchDataFlags>();
  add_common_flags(command, *flags);
  add_baseline_flags(command, *flags);
  add_threads_flag(command, *flags);
  command.add_option("--part", flags->parts, "loader, images, sequences; default: all")
      .delimiter(',')
      .check(one_of("part", {"loader", "images", "sequences"}))
      .type_name("PART,...");
  command.add_flag("--quick", flags->quick, "A few samples of each, as a smoke test");
  command.add_option("--peer", flags->peer, "Program to compare images with: \"/usr/bin/python3 bench/peer_images.py\"")
      .check(a_command())
      .type_name("PROGRAM");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
