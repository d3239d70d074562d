#include "fail_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>

#include "base/check.h"
#include "report_rows.h"

namespace deft::cli {

namespace {

std::string trimmed(const std::string& text) {
  size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
  return from == text.npos ? "" : text.substr(from, to - from + 1);
}

std::vector<std::string> split(const std::string& text, const char* pattern) {
  std::regex separator(pattern, std::regex::icase);
  std::vector<std::string> parts;
  for (std::sregex_token_iterator it(text.begin(), text.end(), separator, -1), end; it != end; ++it)
    parts.push_back(trimmed(*it));
  return parts;
}

FailTerm parse_term(const std::string& text) {
  static const std::regex form(R"(([A-Za-z][\w./ -]*?)\s*(>=|<=|>|<)\s*([+-]?)(\d+(?:\.\d*)?|\.\d+)\s*(%|x)?)");
  std::smatch found;
  DEFT_CHECK(std::regex_match(text, found, form), ValueError,
             "found '{}', expected a quantity and a bound such as p99>+5%, peak_mb<-5%, p99>1.2x or p99_ms>1.5", text);
  FailTerm term;
  term.key = found[1];
  term.above = found[2].str()[0] == '>';
  term.or_equal = found[2].length() == 2;
  bool is_signed = found[3].length() > 0;
  std::string unit = found[5];
  DEFT_CHECK(is_signed || unit != "%", ValueError, "found '{}', expected a sign before a percentage: {}{}+{}%", text,
             term.key, found[2].str(), found[4].str());
  DEFT_CHECK(!is_signed || unit != "x", ValueError, "found '{}', expected a ratio without a sign: {}{}{}x", text,
             term.key, found[2].str(), found[4].str());
  term.limit = std::stod(found[4]) * (found[3] == "-" ? -1 : 1);
  term.of = unit == "%"   ? FailTerm::Of::percent
            : unit == "x" ? FailTerm::Of::ratio
            : is_signed   ? FailTerm::Of::difference
                          : FailTerm::Of::value;
  return term;
}

}  // namespace

bool FailTerm::holds(double before, double after) const {
  double found = after;
  // What was 0 and is more has grown beyond every bound.
  double ratio = before != 0 ? after / before : after == 0 ? 1 : std::numeric_limits<double>::infinity();
  if (of == Of::difference) found = after - before;
  if (of == Of::percent) found = before != 0 ? 100 * (after - before) / std::abs(before) : 100 * (ratio - 1);
  if (of == Of::ratio) found = ratio;
  if (or_equal && found == limit) return true;
  return above ? found > limit : found < limit;
}

std::vector<FailIf> parse_fail_if(const std::string& text) {
  std::vector<FailIf> alternatives;
  for (const std::string& part : split(text, R"(\s*(?:,|\|\|)\s*|\s+or\s+)")) {
    FailIf condition{part, {}};
    for (const std::string& term : split(part, R"(\s*&&\s*|\s+and\s+)")) condition.terms.push_back(parse_term(term));
    alternatives.push_back(std::move(condition));
  }
  return alternatives;
}

std::vector<std::string> keys_like(const std::string& wanted, const std::vector<std::string>& keys) {
  static const std::vector<std::string> units = {"s", "ms", "us", "ns", "mb", "gb", "percent", "seconds"};
  std::vector<std::string> words = words_of(wanted), same, with_unit, holding;
  for (const std::string& key : keys) {
    std::vector<std::string> parts = words_of(key), bare;
    for (const std::string& part : parts)
      if (std::find(units.begin(), units.end(), part) == units.end()) bare.push_back(part);
    bool holds = std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return std::find(parts.begin(), parts.end(), word) != parts.end();
    });
    if (parts == words) same.push_back(key);
    if (bare == words) with_unit.push_back(key);
    if (holds) holding.push_back(key);
  }
  return !same.empty() ? same : !with_unit.empty() ? with_unit : holding;
}

}  // namespace deft::cli
