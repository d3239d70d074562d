// Two reports of deft side by side: rows of the same identity, quantity by quantity.
#pragma once

#include <string>
#include <vector>

#include "bench/machine.h"
#include "fail_if.h"
#include "report_rows.h"

namespace deft::cli {

struct ComparedQuantity {
  std::string table, row, key;
  double before = 0, after = 0;

  double ratio() const;         // after / before; NaN where before is 0 and after is not
  std::string verdict() const;  // "better", "worse", "same", or "" where the better direction is unknown
};

struct Failure {
  std::string condition;
  ComparedQuantity quantity;  // the first that it names
  std::string to_string() const;
};

struct Comparison {
  std::vector<ComparedQuantity> quantities;
  std::vector<std::string> only_before, only_after;  // rows
  std::string other_machine;                         // what differs: "cpu: A before, B now"; "" for the same machine
  std::vector<Failure> failures;
};

// ValueError if the reports have no row in common, or no row has a quantity that a condition names.
Comparison compare_reports(const bench::Json& before, const bench::Json& after,
                           const std::vector<std::string>& fail_if);

// For machines; the rows of a CSV file are "results".
bench::Json to_json(const Comparison& comparison);
// Tables: what each quantity did over all rows, and the rows where it changed by more than noise (or all).
std::string to_text(const Comparison& comparison, bool all_rows);
// One line on stderr each: another machine, rows that are gone, conditions that hold. The exit code.
int tell(const Comparison& comparison);

}  // namespace deft::cli
