#include "doctor/sarif.h"

#include <fmt/format.h>

#include <cctype>
#include <cstring>

#include "doctor/findings_json.h"
#include "doctor/rules.h"
#include "runtime/config.h"

namespace deft::doctor {

namespace {

// A path as a URI: relative ones stay so, and are found from the root of the sources.
std::string uri_of(const std::string& path) {
  std::string uri = path.starts_with('/') ? "file://" : "";
  for (char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) || std::strchr("/._-~", c))
      uri += c;
    else
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

Json rule_json(const RuleInfo& rule) {
  const std::string markdown =
      fmt::format("{}\n\n**What to do:** {}\n\n```cpp\n{}```\n", rule.story, rule.fix, rule.example);
  return {{"id", rule.id},
          {"name", rule.name},
          {"shortDescription", {{"text", rule.title}}},
          {"fullDescription", {{"text", rule.story}}},
          {"help",
           {{"text", fmt::format("{}\n\nWhat to do: {}\n\n{}", rule.story, rule.fix, rule.example)},
            {"markdown", markdown}}},
          {"defaultConfiguration", {{"level", name_of(rule.severity)}}}};
}

Json result_json(const Finding& f) {
  size_t index = 0;
  while (index < all_rules().size() && f.id != all_rules()[index].id) ++index;
  Json result = {{"ruleId", f.id},
                 {"level", name_of(f.severity)},
                 {"message", {{"text", f.message + " " + f.fix}}},
                 {"occurrenceCount", f.count}};
  if (index < all_rules().size()) result["ruleIndex"] = index;
  if (!f.file.empty()) {
    const Json artifact = {{"uri", uri_of(f.file)}};
    result["locations"] = Json::array(
        {{{"physicalLocation", {{"artifactLocation", artifact}, {"region", {{"startLine", std::max(f.line, 1u)}}}}}}});
  }
  for (const auto& [name, value] : f.figures) result["properties"][name] = value;
  return result;
}

}  // namespace

std::string sarif(const std::vector<Finding>& findings) {
  Json rules = Json::array(), results = Json::array();
  for (const RuleInfo& rule : all_rules()) rules.push_back(rule_json(rule));
  for (const Finding& f : findings) results.push_back(result_json(f));
  const Json driver = {{"name", "deft doctor"}, {"version", kVersion}, {"rules", rules}};
  const Json log = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                    {"version", "2.1.0"},
                    {"runs", Json::array({{{"tool", {{"driver", driver}}}, {"results", results}}})}};
  return log.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace deft::doctor
