// deft explain: what a rule of the doctor is about.
#include <fmt/format.h>

#include "base/check.h"
#include "doctor/rules.h"
#include "output.h"
#include "suggest.h"
#include "verbs.h"

namespace deft::cli {

namespace {

using doctor::RuleInfo;

struct ExplainFlags : CommonFlags {
  std::string rule;
};

bench::Json to_json(const RuleInfo& r) {
  return {{"id", r.id},          {"name", r.name},   {"severity", name_of(r.severity)},
          {"title", r.title},    {"story", r.story}, {"fix", r.fix},
          {"example", r.example}};
}

// Long lines are broken at blanks; lines that are broken already stay so.
std::string wrapped(const std::string& text, size_t width = 100) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find_first_of(" \n", at), text.size());
    bool first = column == 0;
    if (!first && column + 1 + (end - at) > width) {
      out += '\n';
      column = 0;
      first = true;
    }
    if (!first) out += ' ';
    out.append(text, at, end - at);
    column += end - at + !first;
    if (end < text.size() && text[end] == '\n') {
      out += '\n';
      column = 0;
    }
    at = end + 1;
  }
  return out;
}

// Story, fix and example of one rule, for people.
std::string text_of(const RuleInfo& r) {
  std::string example = r.example;
  while (!example.empty() && example.back() == '\n') example.pop_back();
  return fmt::format("{}\n\n{}\n\nFix: {}\n\n```c++\n{}\n```\n",
                     bold(fmt::format("{} {} ({}): {}", r.id, r.name, name_of(r.severity), r.title)), wrapped(r.story),
                     wrapped(r.fix), example);
}

const RuleInfo& rule_of(const std::string& wanted) {
  std::string id = wanted;
  if (id.starts_with('d')) id[0] = 'D';
  if (const RuleInfo* rule = doctor::find_rule(id)) return *rule;
  if (const RuleInfo* rule = doctor::find_rule(wanted)) return *rule;
  std::vector<std::string> known;
  for (const RuleInfo& rule : doctor::all_rules()) {
    known.emplace_back(rule.id);
    known.emplace_back(rule.name);
  }
  const std::string near = nearest(id, known);
  DEFT_FAIL(ValueError, "unknown rule '{}'{}; deft explain lists all rules", wanted,
            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

int run(const ExplainFlags& f) {
  bench::Report report;
  if (!f.rule.empty()) {
    const RuleInfo& rule = rule_of(f.rule);
    if (f.format == "md") {
      write_out(text_of(rule));
      return 0;
    }
    report.results.push_back(to_json(rule));
  } else {
    for (const RuleInfo& rule : doctor::all_rules()) report.results.push_back(to_json(rule));
  }
  Presentation p;
  p.title = "What deft doctor looks for. More of one: deft explain D003";
  p.columns = {{"id", "id"}, {"severity", "severity"}, {"name", "name"}, {"title", "what it finds"}};
  return print_report(report, f, p);
}

}  // namespace

std::function<int()> add_explain(Command command) {
  auto flags = std::make_shared<ExplainFlags>();
  add_common_flags(command, *flags);
  command.add_option("rule", flags->rule, "D003, or graph-kept-across-steps; default: the list of all")
      .type_name("RULE");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
