#include "doctor/sarif.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "doctor/findings_json.h"
#include "doctor/rule.h"
#include "doctor/rules.h"

namespace deft::doctor {
namespace {

Finding example() {
  Finding f = finding("D003", Site::current(), "add keeps the graph of \"every\" step.");
  f.file = "/home/a b/train.cpp";
  f.line = 88;
  f.count = 20;
  f.figures = {{"mb_per_step", 1.5}};
  return f;
}

TEST(Sarif, HasWhatViewersNeed) {
  Finding nowhere = finding("D019", Site(), "64 threads on 2 cores.");
  const Json log = Json::parse(sarif({example(), nowhere}));
  EXPECT_EQ(log["version"], "2.1.0");
  EXPECT_EQ(log["$schema"], "https://json.schemastore.org/sarif-2.1.0.json");
  const Json& run = log["runs"][0];
  const Json& rules = run["tool"]["driver"]["rules"];
  ASSERT_EQ(rules.size(), all_rules().size());
  for (const Json& rule : rules) {
    EXPECT_FALSE(rule["help"]["text"].get<std::string>().empty());
    EXPECT_FALSE(rule["shortDescription"]["text"].get<std::string>().empty());
  }
  const Json& result = run["results"][0];
  EXPECT_EQ(result["ruleId"], "D003");
  EXPECT_EQ(rules[result["ruleIndex"].get<size_t>()]["id"], "D003");
  EXPECT_EQ(result["level"], "error");
  EXPECT_EQ(result["occurrenceCount"], 20);
  const Json& place = result["locations"][0]["physicalLocation"];
  EXPECT_EQ(place["artifactLocation"]["uri"], "file:///home/a%20b/train.cpp");
  EXPECT_EQ(place["region"]["startLine"], 88);
  EXPECT_NE(result["message"]["text"].get<std::string>().find("\"every\""), std::string::npos);
  EXPECT_EQ(result["properties"]["mb_per_step"], 1.5);
  EXPECT_FALSE(run["results"][1].contains("locations"));
  EXPECT_EQ(run["results"][1]["level"], "warning");
}

// This file lies in a folder of sources.
TEST(Sarif, PathsBeginAtTheRootOfTheSources) {
  const std::string here = std::filesystem::absolute(__FILE__).lexically_normal();
  Finding f = example(), again = example(), far = example();
  f.file = again.file = here;
  const Json run = Json::parse(sarif({f, far, again}))["runs"][0];
  for (int i : {0, 2}) {
    const Json& place = run["results"][i]["locations"][0]["physicalLocation"]["artifactLocation"];
    EXPECT_EQ(place["uri"], "tests/doctor/sarif_test.cpp");
    EXPECT_EQ(place["uriBaseId"], "SRCROOT");
  }
  EXPECT_FALSE(run["results"][1]["locations"][0]["physicalLocation"]["artifactLocation"].contains("uriBaseId"));
  ASSERT_EQ(run["originalUriBaseIds"].size(), 1u);
  const std::string root = run["originalUriBaseIds"]["SRCROOT"]["uri"];
  EXPECT_TRUE(root.starts_with("file:///") && root.ends_with("/")) << root;
  EXPECT_EQ(root.substr(7) + "tests/doctor/sarif_test.cpp", here);
  EXPECT_EQ(findings_json({f})[0]["file"], "tests/doctor/sarif_test.cpp");
}

TEST(Sarif, NothingFoundIsAnEmptyList) { EXPECT_EQ(Json::parse(sarif({}))["runs"][0]["results"], Json::array()); }

TEST(Sarif, BytesThatAreNoTextDoNotBreakIt) {
  Finding f = example();
  f.message = "\xff\xfe";
  f.file = "\xff.cpp";
  EXPECT_EQ(Json::parse(sarif({f}))["runs"][0]["results"].size(), 1u);
}

TEST(FindingsJson, FollowsTheReport) {
  Finding nowhere = finding("D019", Site(), "64 threads on 2 cores.");
  nowhere.figures = {{"threads", NAN}};
  const Json list = findings_json({example(), nowhere});
  ASSERT_EQ(list.size(), 2u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : list[0].items()) keys.push_back(key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"id", "name", "severity", "file", "line", "message", "fix", "count", "figures"}));
  EXPECT_EQ(list[0]["line"], 88);
  EXPECT_EQ(list[0]["figures"]["mb_per_step"], 1.5);
  EXPECT_TRUE(list[1]["file"].is_null() && list[1]["line"].is_null());
  EXPECT_TRUE(list[1]["figures"]["threads"].is_null());
}

TEST(Finding, ReadsLikeACompilersLine) {
  EXPECT_EQ(example().to_string().find(
                "/home/a b/train.cpp:88: error D003: add keeps the graph of \"every\" step. (20 times)"),
            0u)
      << example().to_string();
}

}  // namespace
}  // namespace deft::doctor
