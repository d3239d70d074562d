#include "doctor/finding.h"

#include "base/check.h"
#include "doctor/rules.h"
#include "doctor/source_path.h"

namespace deft {

const char* name_of(Severity severity) {
  constexpr const char* names[] = {"note", "warning", "error"};
  return names[static_cast<size_t>(severity)];
}

std::string Finding::to_string() const {
  const std::string place = file.empty() ? "" : doctor::shown_path(file) + ":" + std::to_string(line) + ": ";
  std::string text = place + name_of(severity) + " " + id + ": " + message;
  if (count > 1) text += " (" + std::to_string(count) + " times)";
  if (!fix.empty()) text += " " + fix;
  return text;
}

namespace doctor {

Finding finding(std::string_view id, const Site& site, std::string message) {
  const RuleInfo* rule = find_rule(id);
  DEFT_ASSERT(rule);
  Finding f;
  f.id = rule->id;
  f.severity = rule->severity;
  f.file = site.line() ? site.file_name() : "";
  f.line = site.line();
  f.message = std::move(message);
  f.fix = rule->fix;
  return f;
}

}  // namespace doctor

}  // namespace deft
