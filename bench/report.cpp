#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace deft::bench {

namespace {

constexpr int kSchema = 1;

std::string four_digits(double value) {
  double size = std::abs(value);
  int decimals = size >= 1000 || size == 0 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return size > 0 && (size < 0.1 || size >= 1e9) ? fmt::format("{:.4g}", value)
                                                 : fmt::format("{:.{}f}", value, decimals);
}

std::string cell_text(const Json& row, const Column& column) {
  auto it = row.find(column.key);
  if (it == row.end() || it->is_null()) return "-";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_number_integer()) return it->dump();
  if (it->is_number() && column.decimals == kDigits) return fmt::format("{:.2g}", it->get<double>());
  if (it->is_number() && column.decimals == kFourDigits) return four_digits(it->get<double>());
  if (it->is_number()) return fmt::format("{:.{}f}", it->get<double>(), column.decimals);
  return it->dump();
}

bool is_number_column(const std::vector<Json>& rows, const std::string& key) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Json& row) { return row.contains(key) && row[key].is_number(); });
}

bool has_values(const std::vector<Json>& rows, const std::string& key) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Json& row) { return row.contains(key) && !row[key].is_null(); });
}

// Width on screen of UTF-8 text without wide characters.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool right) {
  std::string blanks(width - std::min(width, width_of(text)), ' ');
  return right ? blanks + text : text + blanks;
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == text.npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

namespace {

struct KeptRows {
  std::mutex mutex;
  std::vector<Json> all;
};
// Never destroyed: a thread may show them while the program ends.
KeptRows& kept_rows() {
  static auto* r = new KeptRows;
  return *r;
}

}  // namespace

void Report::add(Json row) {
  {
    std::lock_guard lock(kept_rows().mutex);
    kept_rows().all.push_back(row);
  }
  results.push_back(std::move(row));
}

std::vector<Json> rows_so_far() {
  std::lock_guard lock(kept_rows().mutex);
  return kept_rows().all;
}

Json Report::to_json() const {
  Json out = {{"schema", kSchema}, {"machine", machine}, {"results", results}};
  if (!peaks.empty()) out["peaks"] = peaks;
  if (!bars.empty()) out["bars"] = bars;
  if (interrupted) out["interrupted"] = true;
  return out;
}

std::string to_markdown(const std::vector<Json>& rows, const std::vector<Column>& columns) {
  std::vector<std::string> lines(rows.size() + 2, "|");
  for (const Column& column : columns) {
    if (!has_values(rows, column.key)) continue;
    bool right = is_number_column(rows, column.key);
    size_t width = width_of(column.title);
    for (const Json& row : rows) width = std::max(width, width_of(cell_text(row, column)));
    lines[0] += fmt::format(" {} |", padded(column.title, width, right));
    lines[1] +=
        right ? fmt::format("{}:|", std::string(width + 1, '-')) : fmt::format("{}|", std::string(width + 2, '-'));
    for (size_t i = 0; i < rows.size(); ++i) {
      lines[i + 2] += fmt::format(" {} |", padded(cell_text(rows[i], column), width, right));
    }
  }
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

std::string to_csv(const std::vector<Json>& rows) {
  std::vector<std::string> keys;
  for (const Json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::string out = fmt::format("{}\n", fmt::join(keys, ","));
  for (const Json& row : rows) {
    std::vector<std::string> fields;
    for (const std::string& key : keys) fields.push_back(row.contains(key) ? csv_field(row[key]) : "");
    out += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return out;
}

}  // namespace deft::bench
