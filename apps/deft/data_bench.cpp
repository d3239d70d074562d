// deft data bench: how fast a user's own files become batches, and whether a consumer of a given speed would wait.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/check.h"
#include "bench/interrupt.h"
#include "bench/statistics.h"
#include "data/loader.h"
#include "data_source.h"
#include "output.h"
#include "verbs.h"

namespace deft::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct DataBenchFlags : CommonFlags {
  std::string path;
  int64_t batch = 64, size = 224;
  int workers = data::kAuto;
  double seconds = 10, rate = 0;
  uint64_t seed = 1;
  bool evaluation = false;
};

data::DataLoader make_loader(const DataSource& source, const DataBenchFlags& f) {
  data::LoaderOptions o{.batch_size = f.batch, .seed = f.seed, .workers = f.workers};
  o.on_error = data::OnError::skip;
  if (source.stream) return data::DataLoader(source.stream, o);
  o.shuffle = true;
  return data::DataLoader(source.set, o);
}

// A consumer that takes `rate` samples a second, or all it can get.
void consume(data::DataLoader& loader, const DataBenchFlags& f, const Progress& progress) {
  data::Batch batch;
  Clock::time_point start = Clock::now();
  int64_t samples = 0;
  while (!bench::interrupted() && Clock::now() - start < std::chrono::duration<double>(f.seconds)) {
    if (!loader.next(batch)) continue;  // the next epoch
    samples += batch.rows();
    progress.show(fmt::format("{} samples", samples));
    if (f.rate <= 0) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(batch.rows()) / f.rate));
  }
}

bench::Json row_of(const DataSource& source, const data::DataLoader& loader, const DataBenchFlags& f) {
  data::LoaderStats s = loader.stats();
  double cpu = 0;
  bench::Json row{{"case", name_of(source.kind)},
                  {"samples", s.samples},
                  {"workers", s.workers},
                  {"prefetch", s.prefetch},
                  {"samples_per_second", bench::rounded(static_cast<double>(s.samples) / s.elapsed, 1)},
                  {"mb_per_second", bench::rounded(static_cast<double>(s.bytes) / s.elapsed / 1e6, 1)}};
  for (int i = 0; i < data::kStages; ++i) {
    auto stage = static_cast<data::Stage>(i);
    bool worker = stage != data::Stage::wait && stage != data::Stage::copy;
    if (worker) cpu += s[stage];
    row[fmt::format("{}_us", name_of(stage))] =
        bench::rounded(s[stage] * 1e6 / static_cast<double>(std::max<int64_t>(1, s.samples)), 1);
  }
  row["cpu_ms_per_sample"] = bench::rounded(cpu * 1e3 / static_cast<double>(std::max<int64_t>(1, s.samples)), 3);
  row["per_core_per_second"] =
      cpu > 0 ? bench::Json(bench::rounded(static_cast<double>(s.samples) / cpu, 1)) : bench::Json();
  row["stall_percent"] = f.rate > 0 ? bench::Json(bench::rounded(100 * s.waiting(), 2)) : bench::Json();
  row["skipped"] = s.skipped;
  return row;
}

int run(const DataBenchFlags& f) {
  bench::watch_for_interrupt();
  DataSource source =
      open_source(f.path, f.evaluation ? data::evaluation_images(f.size) : data::training_images(f.size));
  data::DataLoader loader = make_loader(source, f);
  {
    Progress progress("data bench", f.quiet);
    consume(loader, f, progress);
  }
  data::LoaderStats stats = loader.stats();
  DEFT_CHECK(stats.samples > 0, ValueError, "{}: no sample could be read; the first error: {}", f.path,
             stats.errors.empty() ? "none" : stats.errors.front());
  bench::Report report;
  report.results.push_back(row_of(source, loader, f));
  report.interrupted = bench::interrupted();
  Presentation p;
  p.title = fmt::format("{}: {}", f.path, name_of(source.kind));
  p.columns = {{"samples", "samples"},
               {"workers", "workers"},
               {"samples_per_second", "samples/s", 1},
               {"per_core_per_second", "per core", 1},
               {"cpu_ms_per_sample", "CPU ms", 3},
               {"read_us", "read us", 0},
               {"decode_us", "decode us", 0},
               {"transform_us", "transform us", 0},
               {"collate_us", "collate us", 0},
               {"stall_percent", "consumer waits %", 1},
               {"skipped", "broken"}};
  if (std::string tuning = loader.tuning(); !tuning.empty()) p.notes.push_back(tuning);
  for (const std::string& error : stats.errors) p.notes.push_back("broken: " + error);
  return print_report(report, f, p);
}

}  // namespace

std::function<int()> add_data_bench(Command command) {
  auto flags = std::make_shared<DataBenchFlags>();
  add_common_flags(command, *flags);
  add_baseline_flags(command, *flags);
  command.add_option("-p,--path", flags->path, "Image folder, tar shards, text, npy, npz or safetensors")
      .required()
      .type_name("PATH");
  command.add_option("-b,--batch", flags->batch, "Batch size; default 64").check(whole_number(1, 65536)).type_name("N");
  command.add_option("--size", flags->size, "Side of images; default 224").check(whole_number(8, 4096)).type_name("N");
  command.add_flag("--evaluation", flags->evaluation, "Center crops instead of random crops");
  command.add_option("--workers", flags->workers, "Loader threads; default: chosen while it runs")
      .check(whole_number(0, data::kMaxWorkers))
      .type_name("N");
  command.add_option("--rate", flags->rate, "Samples a consumer takes per second; default: all there are")
      .check(number_from(0, false))
      .type_name("X");
  command.add_option("--seconds", flags->seconds, "Duration in seconds; default 10")
      .check(number_from(0, false))
      .type_name("X");
  command.add_option("--seed", flags->seed, "Seed of the order and of random crops; default 1").type_name("N");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
