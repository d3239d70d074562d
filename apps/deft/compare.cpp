// deft compare: two reports of deft side by side.
#include <fmt/format.h>

#include "comparison.h"
#include "output.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct CompareFlags : CommonFlags {
  std::string before, after;
  std::vector<std::string> fail_if;
  bool all = false;
};

int run(const CompareFlags& f) {
  bench::Json before = read_report(f.before), after = read_report(f.after);
  Comparison c = compare_reports(before, after, f.fail_if);
  bench::Json json = to_json(c);
  if (f.format == "json")
    write_out(json.dump(2) + "\n");
  else if (f.format == "csv")
    write_out(bench::to_csv(json["results"].get<std::vector<bench::Json>>()));
  else
    write_out(fmt::format("{} after {}\n\n{}", f.after, f.before, to_text(c, f.all)));
  return tell(c);
}

}  // namespace

std::function<int()> add_compare(Command command) {
  auto flags = std::make_shared<CompareFlags>();
  add_common_flags(command, *flags);
  command.add_option("before", flags->before, "Report written by deft ... -o json").required().type_name("A.json");
  command.add_option("after", flags->after, "Report to compare with it").required().type_name("B.json");
  add_fail_if_flag(command, flags->fail_if);
  command.add_flag("--all", flags->all, "Also the rows that are the same within noise");
  command.footer(
      "Rows are matched by what they are about (case, pass, type, batch, ...). Exit code 1: a --fail-if holds; 2: no "
      "row "
      "has its quantity; 3: a file is not a report of deft.");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
