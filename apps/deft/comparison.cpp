#include "comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/note.h"
#include "bench/report.h"
#include "exit_code.h"

namespace deft::cli {

namespace {

using bench::Json;

std::string full_name(const ReportRow& row) { return row.id.empty() ? row.table : row.table + ": " + row.id; }

std::string machine_text(const Json& report, const char* key) {
  Json machine = report.value("machine", Json::object());
  if (!machine.is_object() || !machine.contains(key)) return "";
  const Json& value = machine[key];
  if (value.is_object()) return value.value("name", "");
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string machine_difference(const Json& before, const Json& after) {
  std::vector<std::string> parts;
  for (const char* key : {"cpu", "arch", "logical_cpus", "threads", "cgroup_quota_cpus", "gpu", "build_type"}) {
    std::string a = machine_text(before, key), b = machine_text(after, key);
    if (!a.empty() && !b.empty() && a != b) parts.push_back(fmt::format("{}: {} before, {} now", key, a, b));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

const double* find(const ReportRow& row, const std::string& key) {
  for (const Quantity& q : row.quantities)
    if (q.key == key) return &q.value;
  return nullptr;
}

// Rows of `after` by table and identity; each is taken once.
void match(const std::vector<ReportRow>& before, const std::vector<ReportRow>& after, Comparison& c) {
  std::map<std::string, const ReportRow*> rows;
  for (const ReportRow& row : after) rows[full_name(row)] = &row;
  for (const ReportRow& old : before) {
    auto found = rows.find(full_name(old));
    if (found == rows.end()) {
      c.only_before.push_back(full_name(old));
      continue;
    }
    for (const Quantity& q : old.quantities)
      if (const double* now = find(*found->second, q.key))
        c.quantities.push_back({old.table, old.id, q.key, q.value, *now});
    rows.erase(found);
  }
  for (const ReportRow& row : after)
    if (rows.contains(full_name(row))) c.only_after.push_back(full_name(row));
}

// What a condition's name means here: keys, or tables with keys ("modules.ms").
std::vector<std::string> meant_by(const FailTerm& term, const Comparison& c) {
  std::vector<std::string> keys, full;
  for (const ComparedQuantity& q : c.quantities) {
    keys.push_back(q.key);
    full.push_back(q.table + "." + q.key);
  }
  for (std::vector<std::string>* list : {&keys, &full}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
    std::vector<std::string> found = keys_like(term.key, *list);
    if (!found.empty()) return found;
  }
  DEFT_FAIL(ValueError, "--fail-if {}: no row that both reports have has such a quantity; there is: {}", term.key,
            fmt::join(keys, ", "));
}

bool is_one_of(const ComparedQuantity& q, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name == q.key || name == q.table + "." + q.key; });
}

// The first quantity of the row [from, to) of which the term holds; null: of none.
const ComparedQuantity* holding(const FailTerm& term, const std::vector<std::string>& names,
                                const ComparedQuantity* from, const ComparedQuantity* to) {
  for (; from != to; ++from)
    if (is_one_of(*from, names) && term.holds(from->before, from->after)) return from;
  return nullptr;
}

void check(const FailIf& condition, Comparison& c) {
  std::vector<std::vector<std::string>> names;
  for (const FailTerm& term : condition.terms) names.push_back(meant_by(term, c));
  const ComparedQuantity *row = c.quantities.data(), *end = row + c.quantities.size();
  for (const ComparedQuantity* next; row != end; row = next) {
    next = std::find_if(row, end, [&](const auto& q) { return q.table != row->table || q.row != row->row; });
    const ComparedQuantity* first = nullptr;
    bool all = true;
    for (size_t i = 0; i < condition.terms.size() && all; ++i) {
      const ComparedQuantity* found = holding(condition.terms[i], names[i], row, next);
      if (i == 0) first = found;
      all = found != nullptr;
    }
    if (all) c.failures.push_back({condition.text, *first});
  }
}

Json rounded_ratio(double ratio) { return std::isfinite(ratio) ? Json(std::round(ratio * 1e4) / 1e4) : Json(); }

Json to_json(const ComparedQuantity& q) {
  std::string verdict = q.verdict();
  return {{"table", q.table},
          {"row", q.row},
          {"quantity", q.key},
          {"before", q.before},
          {"after", q.after},
          {"ratio", rounded_ratio(q.ratio())},
          {"verdict", verdict.empty() ? Json() : Json(verdict)}};
}

// How far the quantity moved in the worse direction; how far it moved at all where the direction is unknown.
double badness(const ComparedQuantity& q) {
  double change = std::log(q.ratio());
  Better better = better_of(q.key);
  return better == Better::unknown ? std::abs(change) : better == Better::down ? change : -change;
}

// Over all rows that have it, those of ratios that are a number.
std::vector<Json> by_quantity(const Comparison& c) {
  std::vector<Json> out;
  std::vector<std::string> done;
  for (const ComparedQuantity& q : c.quantities) {
    std::string name = q.table + "." + q.key;
    if (std::find(done.begin(), done.end(), name) != done.end()) continue;
    done.push_back(name);
    const ComparedQuantity* worst = nullptr;
    double sum = 0;
    int rows = 0;
    for (const ComparedQuantity& other : c.quantities) {
      bool counts = other.table == q.table && other.key == q.key && std::isfinite(std::log(other.ratio()));
      if (!counts) continue;
      sum += std::log(other.ratio());
      ++rows;
      if (!worst || badness(other) > badness(*worst)) worst = &other;
    }
    if (!worst) continue;
    Better better = better_of(q.key);
    out.push_back({{"table", q.table},
                   {"quantity", q.key},
                   {"better", better == Better::up     ? Json("up")
                              : better == Better::down ? Json("down")
                                                       : Json()},
                   {"rows", rows},
                   {"mean_ratio", rounded_ratio(std::exp(sum / rows))},
                   {"worst_ratio", rounded_ratio(worst->ratio())},
                   {"worst_row", worst->row}});
  }
  return out;
}

std::string some(const std::vector<std::string>& rows) {
  constexpr size_t kMost = 5;
  std::vector<std::string> first(rows.begin(),
                                 rows.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, rows.size())));
  std::string more = rows.size() > kMost ? fmt::format("; and {} more", rows.size() - kMost) : "";
  return fmt::format("{}{}", fmt::join(first, "; "), more);
}

}  // namespace

double ComparedQuantity::ratio() const {
  if (before == 0) return after == 0 ? 1 : std::numeric_limits<double>::quiet_NaN();
  return after / before;
}

std::string ComparedQuantity::verdict() const {
  Better better = better_of(key);
  if (after == before || std::abs(std::log(ratio())) <= std::log1p(noise_of(key))) return "same";
  if (better == Better::unknown) return "";
  return (after > before) == (better == Better::up) ? "better" : "worse";
}

std::string Failure::to_string() const {
  const ComparedQuantity& q = quantity;
  std::string change = std::isfinite(q.ratio()) ? fmt::format(", {:+.1f} %", 100 * (q.ratio() - 1)) : "";
  return fmt::format("{}: {} of {} was {:.6g} and is {:.6g}{}", condition, q.key, q.row.empty() ? q.table : q.row,
                     q.before, q.after, change);
}

Comparison compare_reports(const Json& before, const Json& after, const std::vector<std::string>& fail_if) {
  Comparison c;
  c.other_machine = machine_difference(before, after);
  match(rows_of(before), rows_of(after), c);
  DEFT_CHECK(!c.quantities.empty(), ValueError,
             "the two reports have no row in common: the first has {}, the second {}; compare reports of the same verb "
             "and flags",
             c.only_before.empty() ? "none" : some(c.only_before), c.only_after.empty() ? "none" : some(c.only_after));
  for (const std::string& text : fail_if)
    for (const FailIf& condition : parse_fail_if(text)) check(condition, c);
  return c;
}

Json to_json(const Comparison& c) {
  Json results = Json::array(), failures = Json::array();
  for (const ComparedQuantity& q : c.quantities) results.push_back(to_json(q));
  for (const Failure& f : c.failures) {
    failures.push_back({{"condition", f.condition}});
    failures.back().update(to_json(f.quantity));
  }
  return {{"schema", 1},
          {"kind", "deft compare"},
          {"other_machine", c.other_machine.empty() ? Json() : Json(c.other_machine)},
          {"quantities", by_quantity(c)},
          {"results", results},
          {"only_before", c.only_before},
          {"only_after", c.only_after},
          {"failures", failures}};
}

std::string to_text(const Comparison& c, bool all_rows) {
  std::vector<Json> rows;
  for (const ComparedQuantity& q : c.quantities)
    if (all_rows || q.verdict() != "same") rows.push_back(to_json(q));
  std::string out = bench::to_markdown(by_quantity(c), {{"table", "table"},
                                                        {"quantity", "quantity"},
                                                        {"better", "better"},
                                                        {"rows", "rows"},
                                                        {"mean_ratio", "after / before, mean", 3},
                                                        {"worst_ratio", "worst", 3},
                                                        {"worst_row", "worst row"}});
  if (!rows.empty())
    out += "\n" + bench::to_markdown(rows, {{"table", "table"},
                                            {"row", "row"},
                                            {"quantity", "quantity"},
                                            {"before", "before", bench::kFourDigits},
                                            {"after", "after", bench::kFourDigits},
                                            {"ratio", "after / before", 3},
                                            {"verdict", "verdict"}});
  if (size_t same = c.quantities.size() - rows.size())
    out += fmt::format(
        "\n{} of {} values are the same: within 1 % where they are counted, 5 % where they are timed, 10 % of a p99.\n",
        same, c.quantities.size());
  return out;
}

int tell(const Comparison& c) {
  if (!c.other_machine.empty()) print_note("warning: the reports are of different machines ({})\n", c.other_machine);
  if (!c.only_before.empty())
    print_note("warning: {} row{} only in the first report: {}\n", c.only_before.size(),
               c.only_before.size() == 1 ? " is" : "s are", some(c.only_before));
  for (const Failure& f : c.failures) print_note("regression: {}\n", f.to_string());
  return c.failures.empty() ? kOk : kRegression;
}

}  // namespace deft::cli
