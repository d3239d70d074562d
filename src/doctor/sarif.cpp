#include "doctor/sarif.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "doctor/findings_json.h"
#include "doctor/rules.h"
#include "doctor/source_path.h"
#include "runtime/config.h"

namespace deft::doctor {

namespace {

// A path as a URI: relative ones stay so.
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

// The folders that relative paths begin at, each with the name that results give it.
class Bases {
 public:
  Json place(const std::string& file) {
    const RelativePath p = path_in_sources(file);
    Json artifact = {{"uri", uri_of(p.path)}};
    if (!p.base.empty()) artifact["uriBaseId"] = name_of(p.base);
    return artifact;
  }
  Json json() const {
    Json all = Json::object();
    for (size_t i = 0; i < folders_.size(); ++i) all[id(i)] = {{"uri", uri_of(folders_[i]) + "/"}};
    return all;
  }

 private:
  std::string name_of(const std::string& folder) {
    const auto at = std::find(folders_.begin(), folders_.end(), folder) - folders_.begin();
    if (at == std::ssize(folders_)) folders_.push_back(folder);
    return id(static_cast<size_t>(at));
  }
  static std::string id(size_t i) { return i == 0 ? "SRCROOT" : fmt::format("SRCROOT{}", i + 1); }
  std::vector<std::string> folders_;
};

Json result_json(const Finding& f, Bases& bases) {
  size_t index = 0;
  while (index < all_rules().size() && f.id != all_rules()[index].id) ++index;
  Json result = {{"ruleId", f.id},
                 {"level", name_of(f.severity)},
                 {"message", {{"text", f.message + " " + f.fix}}},
                 {"occurrenceCount", f.count}};
  if (index < all_rules().size()) result["ruleIndex"] = index;
  if (!f.file.empty()) {
    result["locations"] = Json::array(
        {{{"physicalLocation",
           {{"artifactLocation", bases.place(f.file)}, {"region", {{"startLine", std::max(f.line, 1u)}}}}}}});
  }
  for (const auto& [name, value] : f.figures) result["properties"][name] = value;
  return result;
}

}  // namespace

std::string sarif(const std::vector<Finding>& findings) {
  Json rules = Json::array(), results = Json::array();
  for (const RuleInfo& rule : all_rules()) rules.push_back(rule_json(rule));
  Bases bases;
  for (const Finding& f : findings) results.push_back(result_json(f, bases));
  const Json driver = {{"name", "deft doctor"}, {"version", kVersion}, {"rules", rules}};
  Json run = {{"tool", {{"driver", driver}}}};
  if (Json roots = bases.json(); !roots.empty()) run["originalUriBaseIds"] = roots;
  run["results"] = results;
  const Json log = {
      {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}, {"runs", Json::array({run})}};
  return log.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace deft::doctor
