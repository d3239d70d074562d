#include "doctor/findings_json.h"

#include <cmath>

#include "doctor/rules.h"
#include "doctor/source_path.h"

namespace deft::doctor {

namespace {

Json figures_of(const Finding& f) {
  Json figures = Json::object();
  for (const auto& [name, value] : f.figures) figures[name] = std::isfinite(value) ? Json(value) : Json();
  return figures;
}

}  // namespace

Json findings_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& f : findings) {
    const RuleInfo* rule = find_rule(f.id);
    out.push_back({{"id", f.id},
                   {"name", rule ? rule->name : ""},
                   {"severity", name_of(f.severity)},
                   {"file", f.file.empty() ? Json() : Json(shown_path(f.file))},
                   {"line", f.file.empty() ? Json() : Json(f.line)},
                   {"message", f.message},
                   {"fix", f.fix},
                   {"count", f.count},
                   {"figures", figures_of(f)}});
  }
  return out;
}

}  // namespace deft::doctor
