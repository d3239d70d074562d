#include "report_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/input_file.h"

namespace deft::cli {

namespace {

using bench::Json;
using Words = std::set<std::string, std::less<>>;

// What a row is about. "peak" and "bar" name the rows of their own tables only: elsewhere they are remarks.
const Words kIdentity = {"case",   "name",     "part",      "table",  "what",  "model",   "data", "task",
                         "batch",  "threads",  "workers",   "length", "pass",  "mode",    "type", "dtype",
                         "family", "variant",  "technique", "stage",  "step",  "id",      "op",   "file",
                         "site",   "category", "bucket",    "rank",   "label", "quantity"};
// Numbers that are no result: sizes of the measurement, goals, and parts of it that others say better.
const Words kNoResult = {"schema",        "samples",     "zones",         "dropped",    "pairs",
                         "total_ms",      "must",        "aim",           "rows",       "line",
                         "count",         "steps",       "skipped_steps", "epochs",     "class",
                         "epoch_samples", "error_bound", "parameters",    "sampling_hz"};
const Words kNotCompared = {"machine", "plan", "timeline", "histogram", "next", "comparison"};

bool has(const Words& words, std::string_view word) { return words.find(word) != words.end(); }

bool identifies(const std::string& table, const std::string& key) {
  return has(kIdentity, key) || (table == "peaks" && key == "peak") ||
         (table == "bars" && (key == "bar" || key == "unit"));
}

bool is_result(const std::string& table, const std::string& prefix, const std::string& key) {
  return !prefix.empty() || !has(kNoResult, key) || (key == "count" && table == "findings");
}

// Lines of a program move with every edit: they do not tell ops apart.
std::string without_line(const std::string& site) {
  size_t colon = site.rfind(':');
  bool line =
      colon != site.npos && colon + 1 < site.size() && site.find_first_not_of("0123456789", colon + 1) == site.npos;
  return line ? site.substr(0, colon) : site;
}

std::string identity_part(const std::string& key, const Json& value) {
  if (value.is_string()) return key == "site" ? without_line(value.get<std::string>()) : value.get<std::string>();
  return fmt::format("{} {}", key, value.dump());
}

class RowReader {
 public:
  std::vector<ReportRow> read(const Json& report) {
    for (const auto& [key, value] : report.items()) read(key, value);
    number_equal_rows();
    return std::move(rows_);
  }

 private:
  void read(const std::string& table, const Json& value) {
    if (has(kNotCompared, table.substr(table.rfind('.') + 1))) return;
    if (value.is_object()) add_row(table, value);
    if (!value.is_array()) return;
    for (const Json& row : value)
      if (row.is_object()) add_row(table, row);
    if (table == "findings") rows_.push_back({table, "all", {{"findings", static_cast<double>(value.size())}}});
  }
  void add_row(const std::string& table, const Json& object) {
    ReportRow row{table, "", {}};
    std::vector<std::pair<std::string, const Json*>> inside;
    fill(row, "", object, inside);
    if (!row.quantities.empty()) rows_.push_back(std::move(row));
    for (const auto& [key, rows] : inside) read(table + "." + key, *rows);
  }
  void fill(ReportRow& row, const std::string& prefix, const Json& object,
            std::vector<std::pair<std::string, const Json*>>& inside) {
    for (const auto& [key, value] : object.items()) {
      if (identifies(row.table, key) && prefix.empty() && (value.is_string() || value.is_number())) {
        std::string part = identity_part(key, value);
        if (!part.empty()) row.id += (row.id.empty() ? "" : ", ") + part;
      } else if (value.is_number() && is_result(row.table, prefix, key)) {
        row.quantities.push_back({prefix + key, value.get<double>()});
      } else if (value.is_object() && !has(kNotCompared, key)) {
        fill(row, prefix + key + ".", value, inside);
      } else if (value.is_array()) {
        inside.emplace_back(prefix + key, &value);
      }
    }
  }
  // Of two rows with the same identity the second is the second in both reports.
  void number_equal_rows() {
    std::map<std::string, int> seen;
    for (ReportRow& row : rows_)
      if (int n = ++seen[row.table + "\n" + row.id]; n > 1) row.id += fmt::format(" #{}", n);
  }
  std::vector<ReportRow> rows_;
};

}  // namespace

Json read_report(const std::string& path) {
  io::InputFile file(path, "report");
  std::vector<std::byte> bytes = file.read(0, file.size(), "text");
  const char* text = reinterpret_cast<const char*>(bytes.data());
  Json report = Json::parse(text, text + bytes.size(), nullptr, /*allow_exceptions=*/false);
  if (report.is_discarded()) file.source().fail("text", 0, "the file is not JSON; deft ... -o json writes a report");
  if (!report.is_object() || !report.contains("schema"))
    file.source().fail("schema", 0, "the key is missing, so this is not a report of deft; deft ... -o json writes one");
  if (report["schema"] != 1)
    file.source().fail("schema", 0, "found {}, expected 1; write the report anew with this version",
                       report["schema"].dump());
  return report;
}

std::vector<ReportRow> rows_of(const Json& report) { return RowReader().read(report); }

std::vector<std::string> words_of(const std::string& key) {
  std::vector<std::string> words(1);
  for (char c : key) {
    bool part = std::isalnum(static_cast<unsigned char>(c));
    if (part) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!part && !words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Better better_of(const std::string& key) {
  static const Words up = {"gflops", "tflops", "speedup",     "accuracy", "scaling",
                           "ratio",  "times",  "utilisation", "value",    "worst"};
  static const Words down = {"s",     "ms",       "us",          "ns",          "seconds",     "mb",
                             "gb",    "bytes",    "joules",      "allocs",      "allocations", "error",
                             "loss",  "findings", "count",       "watts",       "padding",     "waiting",
                             "stall", "overhead", "activations", "instructions"};
  std::vector<std::string> words = words_of(key);
  auto any = [&](const Words& list) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return has(list, w); });
  };
  bool of_peer = !words.empty() && words[0] == "peer" && words.back() != "ratio";
  if (words.empty() || of_peer) return Better::unknown;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    bool rate = words[i] == "per" && (words[i + 1] == "s" || words[i + 1] == "second");
    bool share = words[i] == "of" && (words[i + 1] == "peak" || words[i + 1] == "copy" || words[i + 1] == "limit");
    if (rate || share) return Better::up;
  }
  return any(up) ? Better::up : any(down) ? Better::down : Better::unknown;
}

double noise_of(const std::string& key) {
  static const Words tails = {"p99", "p999", "worst", "most", "max"};
  static const Words timed = {"s",       "ms",    "us",     "ns",          "second", "seconds", "gflops",   "tflops",
                              "speedup", "watts", "joules", "utilisation", "stall",  "waiting", "overhead", "scaling"};
  constexpr double kCounted = 0.01, kTimed = 0.05, kTail = 0.1;
  double noise = kCounted;
  for (const std::string& word : words_of(key)) noise = std::max(noise, has(timed, word) ? kTimed : kCounted);
  for (const std::string& word : words_of(key))
    if (noise == kTimed && has(tails, word)) return kTail;
  return noise;
}

}  // namespace deft::cli
