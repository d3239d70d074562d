// Any JSON report of deft (`bench`, `train`, `eval`, `profile`, `doctor`) as rows of numbers.
#pragma once

#include <string>
#include <vector>

#include "bench/machine.h"

namespace deft::cli {

// Which way a quantity should go.
enum class Better : uint8_t { unknown, down, up };

struct Quantity {
  std::string key;  // "p99_ms"; of nested objects "peak_by_category_mb.parameters"
  double value = 0;
};

struct ReportRow {
  std::string table;  // "results", "latency.columns"
  std::string id;     // "resnet50, batch 8, infer, f32": identifies a row of a table
  std::vector<Quantity> quantities;
};

// LoadError where the file cannot be read or is no report of deft.
bench::Json read_report(const std::string& path);
// In the order of the report. What could not be measured (null) is left out.
std::vector<ReportRow> rows_of(const bench::Json& report);

// From the unit in its name: milliseconds and megabytes go down, samples per second go up.
Better better_of(const std::string& key);
// A change by so much is none: 0.01 of what is counted, more of what is timed, since no two runs take the same.
double noise_of(const std::string& key);
// "p99_ms" as p99, ms.
std::vector<std::string> words_of(const std::string& key);

}  // namespace deft::cli
