// The one form of every benchmark's result:
//   {"schema": 1, "machine": {...}, "results": [{"case": ..., "mode": ..., <quantity>_<unit>: ...}]}
// A quantity that could not be measured is null. Times are in ms or ns, memory in MB of 10^6 bytes.
// Benchmarks of the CPU engine add "peaks", what the machine can do at most, and "bars", one per goal:
//   {"bar": "f32 GEMM", "unit": "% of peak", "must": ..., "aim": ..., "value": ..., "worst": ..., "worst_case": ...}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/json_object.h"
#include "bench/machine.h"

namespace deft::bench {

struct Report {
  Json machine = machine_json();
  std::vector<Json> results;
  std::vector<Json> peaks, bars;  // left out where empty
  bool interrupted = false;

  void add(Json row);  // to the results, and to those that a late end shows
  Json to_json() const;
};
// Of all reports of this process: what there is to show where a measurement cannot be waited for. From any thread.
std::vector<Json> rows_so_far();

// Of Column::decimals: two digits that count, 1.4e-07; four of them, 1234.
inline constexpr int kDigits = -1, kFourDigits = -2;

// A column of a printed table: which key, under which title, with how many decimals (numbers only).
struct Column {
  std::string key;
  std::string title;
  int decimals = 0;
};

// A Markdown table, padded so that it reads well as plain text. Columns that are null in every row are left out.
std::string to_markdown(const std::vector<Json>& rows, const std::vector<Column>& columns);
// All keys of all rows, header first, full precision; null is an empty field.
std::string to_csv(const std::vector<Json>& rows);

}  // namespace deft::bench
