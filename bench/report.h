// The one form of every benchmark's result:
//   {"schema": 1, "machine": {...}, "results": [{"case": ..., "mode": ..., <quantity>_<unit>: ...}]}
// A quantity that could not be measured is null. Times are in ms or ns, memory in MB of 10^6 bytes.
#pragma once

#include <string>
#include <vector>

#include "bench/machine.h"

namespace deft::bench {

struct Report {
  Json machine = machine_json();
  std::vector<Json> results;
  bool interrupted = false;

  Json to_json() const;
};

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
