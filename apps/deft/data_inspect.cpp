// deft data inspect: what is there, what is broken, how long samples are.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "bench/interrupt.h"
#include "data/image_folder.h"
#include "data/length_report.h"
#include "data/loader.h"
#include "data/shape_advisor.h"
#include "data_source.h"
#include "exit_code.h"
#include "output.h"
#include "verbs.h"

namespace deft::cli {

namespace {

constexpr int64_t kInspectedSide = 64;

struct DataInspectFlags : CommonFlags {
  std::string path;
  int64_t most = 0;
  int workers = data::kAuto;
};

struct Findings {
  int64_t samples = 0, broken = 0;
  std::vector<std::string> errors;
  std::map<int64_t, int64_t> labels;
  std::vector<int64_t> lengths;  // of the first varying field
  std::string length_field;
};

std::string varying_field(const std::vector<data::Field>& fields) {
  for (const data::Field& f : fields)
    for (int64_t n : f.shape)
      if (n < 0) return f.name;
  return {};
}

// Every sample is read and decoded once; broken ones are counted, not fatal.
Findings read_all(const DataSource& source, const DataInspectFlags& f, const Progress& progress) {
  Findings found;
  data::LoaderOptions o{.batch_size = 64, .workers = f.workers};
  o.on_error = data::OnError::skip;
  o.across_epochs = false;
  data::DataLoader loader = source.stream ? data::DataLoader(source.stream, o) : data::DataLoader(source.set, o);
  found.length_field = varying_field(source.stream ? source.stream->fields() : source.set->fields());
  for (const data::Batch& batch : loader) {
    found.samples += batch.rows();
    if (batch.has("label"))
      for (int64_t label : batch["label"].to_vector<int64_t>()) ++found.labels[label];
    if (!found.length_field.empty()) {
      auto lengths = batch.lengths(found.length_field).to_vector<int64_t>();
      found.lengths.insert(found.lengths.end(), lengths.begin(), lengths.end());
    }
    progress.show(fmt::format("{} samples", found.samples));
    if (bench::interrupted() || (f.most > 0 && found.samples >= f.most)) break;
  }
  data::LoaderStats stats = loader.stats();
  found.broken = stats.skipped;
  found.errors = stats.errors;
  return found;
}

bench::Json row_of(const DataSource& source, const Findings& found) {
  bench::Json row{{"case", name_of(source.kind)}, {"samples", found.samples}, {"broken", found.broken}};
  row["classes"] = found.labels.empty() ? bench::Json() : bench::Json(found.labels.size());
  if (!found.labels.empty()) {
    auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
    row["least_per_class"] = std::min_element(found.labels.begin(), found.labels.end(), by_count)->second;
    row["most_per_class"] = std::max_element(found.labels.begin(), found.labels.end(), by_count)->second;
  }
  const auto* folder = dynamic_cast<const data::ImageFolder*>(source.set.get());
  row["other_files"] = folder ? bench::Json(folder->skipped_files()) : bench::Json();
  if (!found.lengths.empty()) {
    data::LengthHistogram h = data::length_histogram(found.lengths);
    row["shortest"] = h.shortest;
    row["mean_length"] = h.mean;
    row["longest"] = h.longest;
    row["p99_length"] = h.percentile(99);
    row["histogram"] = {{"first", h.first}, {"width", h.width}, {"counts", h.counts}};
  }
  row["errors"] = found.errors;
  return row;
}

int run(const DataInspectFlags& f) {
  bench::watch_for_interrupt();
  // Every pixel is decoded, whatever part of an image training would use.
  data::ImageOptions images = data::evaluation_images(kInspectedSide);
  images.cut = data::Cut::none;
  images.reduce = false;
  images.dtype = DType::u8;
  DataSource source = open_source(f.path, images);
  Findings found;
  {
    Progress progress("data inspect", f.quiet);
    found = read_all(source, f, progress);
  }
  bench::Report report;
  report.results.push_back(row_of(source, found));
  report.interrupted = bench::interrupted();
  Presentation p;
  p.title = fmt::format("{}: {}", f.path, name_of(source.kind));
  p.columns = {{"samples", "samples"},
               {"broken", "broken"},
               {"classes", "classes"},
               {"least_per_class", "least per class"},
               {"most_per_class", "most per class"},
               {"other_files", "other files"},
               {"shortest", "shortest"},
               {"mean_length", "mean length", 1},
               {"p99_length", "99 % up to"},
               {"longest", "longest"}};
  if (!found.lengths.empty()) {
    p.notes.push_back(
        fmt::format("Lengths of {}:\n{}", found.length_field, data::length_histogram(found.lengths).plot()));
    p.notes.push_back(data::advise_shapes(found.lengths).text);
  }
  for (const std::string& error : found.errors) p.notes.push_back("broken: " + error);
  int code = print_report(report, f, p);
  return code == kOk && found.broken > 0 ? kFindings : code;
}

}  // namespace

std::function<int()> add_data_inspect(Command command) {
  auto flags = std::make_shared<DataInspectFlags>();
  add_common_flags(command, *flags);
  command.add_option("-p,--path", flags->path, "Image folder, tar shards, text, npy, npz or safetensors")
      .required()
      .type_name("PATH");
  command.add_option("--most", flags->most, "Samples to inspect; default: all")
      .check(whole_number(1, 1'000'000'000'000))
      .type_name("N");
  command.add_option("--workers", flags->workers, "Loader threads; default: chosen while it runs")
      .check(whole_number(0, data::kMaxWorkers))
      .type_name("N");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
