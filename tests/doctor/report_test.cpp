#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "doctor/report_html.h"
#include "doctor/report_text.h"
#include "doctor/report_values.h"

namespace deft::doctor {
namespace {

Json sample() {
  return Json::parse(R"json({"schema": 1, "kind": "deft doctor", "version": "0.1.0",
 "machine": {"cpu": "Neoverse-V1", "threads": 2, "gpu": null},
 "workload": {"name": "cnn on fashion", "task": "infer", "model": "cnn", "data": "fashion", "batch": 1, "device": "cpu"},
 "bottleneck": {"class": "overhead-bound", "sentence": "61 % of the time goes into starting small ops."},
 "profile": {"wall_s": 2.0, "sum_s": 1.995, "overhead_percent": 0.8, "zones": 120000, "dropped": 0,
   "cpu_utilisation_percent": 92, "device_utilisation_percent": null,
   "buckets": [{"name": "data wait", "s": 0.2, "percent": 10.0}, {"name": "linear algebra", "s": 1.2, "percent": 60.0},
               {"name": "sync", "s": 0, "percent": 0}],
   "roofline": {"gflops": {"f32": 166.0, "bf16": 660.0}, "copy_gb_per_s": 40.1, "read_gb_per_s": 45.0},
   "ops": [{"name": "conv2d", "pass": "forward", "type": "f32", "bucket": "linear algebra", "site": "cnn.cpp:31", "calls": 2048,
            "ms": 812.0, "overhead_ms": 20.1, "percent": 40.6, "gflops": 61.0, "gb_per_s": 3.1, "flops_per_byte": 19.6,
            "bound": "compute-bound", "of_limit_percent": 73.0},
           {"name": "reshape", "pass": "forward", "type": "f32", "bucket": "other kernels", "site": "cnn.cpp:35", "calls": 7,
            "ms": 3.0, "overhead_ms": 2.5, "percent": 0.1, "gflops": null, "gb_per_s": null, "flops_per_byte": null,
            "bound": null, "of_limit_percent": null}],
   "modules": [{"name": "features.0", "type": "Conv2d(1, 32)", "calls": 2048, "ms": 500.0, "self_ms": 500.0, "percent": 25.0}]},
 "memory": {"peak_mb": 120.0, "peak_by_category_mb": {"parameters": 4.1, "gradients": 0, "saved for backward": 80.2},
   "timeline": [{"ms": 0.0, "parameters": 4.1, "saved for backward": 0}, {"ms": 2.0, "parameters": 4.1, "saved for backward": 80.2}],
   "holders": [{"op": "conv2d", "site": "cnn.cpp:31", "category": "saved for backward", "mb": 30.1, "count": 12}], "device": null},
 "latency": {"covers": "one batch of 1", "verdict": "stable (spread 3 %)", "histogram": [{"from_ms": 0.9, "to_ms": 1.0, "count": 200}],
   "columns": [{"name": "cold", "samples": 1, "p50_ms": 31.5, "p90_ms": 31.5, "p99_ms": 31.5, "p999_ms": 31.5, "mean_ms": 31.5},
               {"name": "warm", "samples": 500, "p50_ms": 1.01, "p90_ms": 1.1, "p99_ms": 1.4, "p999_ms": 2.0, "mean_ms": 1.02}]},
 "energy": {"joules_per_sample": null, "watts": null, "idle_watts": null, "method": null, "sampling_hz": null, "reason": "no RAPL counter"},
 "findings": [{"id": "D005", "name": "train-mode-in-evaluation", "severity": "warning", "file": "eval.cpp", "line": 31,
               "message": "The module is in train mode.", "fix": "Call eval() first.", "count": 20, "figures": {"mb_per_step": 1.5}}],
 "trials": [{"technique": "inference mode", "stage": "grad mode", "before_ms": 1.9, "after_ms": 1.2, "speedup": 1.58,
             "speedup_low": 1.49, "speedup_high": 1.66, "pairs": 15, "peak_mb_before": 120.0, "peak_mb_after": 40.0, "output_error": 0.0,
             "accuracy_before": 0.91, "accuracy_after": 0.91, "kept": true, "reason": "helps beyond noise"},
            {"technique": "int8", "stage": "quantization", "kept": null, "reason": "not available yet"}],
 "waterfall": [{"step": "as it was", "samples_per_s": 520.0, "speedup": 1.0}, {"step": "together", "samples_per_s": 1900.0, "speedup": 3.65}],
 "next": [{"what": "run in inference mode", "gain": 1.58, "how": "a"}, {"what": "fix the rest", "gain": null, "how": "b"},
          {"what": "use batches of 64", "gain": 2.7, "how": "c"}],
 "tables": {"modes": [{"mode": "training with gradients", "epoch_s": 4.0, "peak_mb": 200.0, "speedup": 1.0}],
            "families": [{"model": "resnet50", "batch": 8, "peak_mb": 300.0, "ms_per_batch": 300.0, "samples_per_s": 26.0}]},
 "plan": {"schema": 1, "kind": "deft plan", "batch": 64, "threads": 2},
 "written": {"plan": "deft.plan.json", "page": "report.html"}})json");
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Between the first `from` and the `to` after it.
std::string between(const std::string& text, const std::string& from, const std::string& to) {
  size_t begin = text.find(from);
  if (begin == std::string::npos) return "";
  begin += from.size();
  return text.substr(begin, text.find(to, begin) - begin);
}

// What a reader without JavaScript gets.
std::string static_part(const std::string& page) { return between(page, "<body>", "<script"); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

size_t characters(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void expect_narrow(const std::string& text, size_t width) {
  for (const std::string& line : lines_of(text)) EXPECT_LE(characters(line), width) << line;
}

TEST(ReportHtml, SaysEverythingWithoutJavaScript) {
  std::string body = static_part(report_html(sample()));
  for (const char* part :
       {"61 % of the time goes into starting small ops.", "D005", "eval.cpp:31", "20 times", "Call eval() first.",
        "mb per step <b>1.50</b>", "1.49x to 1.66x", "not available yet", "features.0", "conv2d", "80.2 MB", "31.5",
        "training with gradients", "resnet50", "Unavailable: no RAPL counter.", "&quot;batch&quot;: 64",
        "520 → 1,900 samples per s", "No time in: sync."})
    EXPECT_NE(body.find(part), std::string::npos) << part;
}

TEST(ReportHtml, ShowsAPlanBesideItsModel) {
  Json report = sample();
  EXPECT_EQ(report_html(report).find(" eager ("), std::string::npos);
  report["eager"] = {{"model", "cnn"},     {"weights", "w.safetensors <b>"},
                     {"batch", 64},        {"speedup", 1.5},
                     {"speedup_low", 1.4}, {"speedup_high", 1.6},
                     {"pairs", 12}};
  EXPECT_NE(static_part(report_html(report))
                .find("Against cnn eager (w.safetensors &lt;b&gt;), batches of 64: <b>1.50x</b> (1.40x to 1.60x), "
                      "pairs of runs: 12."),
            std::string::npos);
  report["eager"] = {{"reason", "no weights <i>"}};
  EXPECT_NE(static_part(report_html(report)).find("Not compared with the model itself: no weights &lt;i&gt;."),
            std::string::npos);
}

TEST(ReportHtml, SaysWhatTracingADeviceTook) {
  Json report = sample();
  report["profile"]["watching_percent"] = 12.5;
  EXPECT_NE(static_part(report_html(report)).find("tracing the device took 12.5 % longer"), std::string::npos);
}

TEST(ReportHtml, EmbedsItsDataWhole) {
  Json report = sample();
  report["workload"]["name"] = "</script><!--<script>\u2028";
  std::string page = report_html(report);
  std::string data = between(page, "id=\"report\">", "</script>");
  EXPECT_EQ(Json::parse(data), report);
  EXPECT_EQ(data.find('<'), std::string::npos);
  EXPECT_EQ(data.find("\u2028"), std::string::npos);
}

TEST(ReportHtml, StandsAlone) {
  std::string page = report_html(sample());
  for (const char* part : {"http://", "https://", "src=", "href=", "@import", "url("}) {
    size_t allowed = std::string(part) == "http://" ? 1 : 0;  // the name of SVG's namespace
    EXPECT_EQ(count_of(page, part), allowed) << part;
  }
}

TEST(ReportHtml, HostileStringsStayText) {
  std::string bad = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>";
  Json report = sample();
  report["workload"]["name"] = report["bottleneck"]["sentence"] = report["bottleneck"]["class"] = bad;
  for (const char* part : {"findings", "trials", "waterfall", "next"})
    for (Json& row : report[part])
      for (auto& [key, value] : row.items())
        if (value.is_string()) value = bad;
  report["findings"][0]["figures"] = {{bad, 1}};
  report["profile"]["ops"][0]["name"] = report["profile"]["ops"][0]["site"] = report["profile"]["buckets"][0]["name"] =
      bad;
  report["profile"]["roofline"]["gflops"][bad] = 1;
  report["memory"]["peak_by_category_mb"][bad] = 1;
  report["latency"]["columns"][0]["name"] = report["latency"]["covers"] = bad;
  report["plan"][bad] = bad;
  std::string page = report_html(report);
  EXPECT_EQ(count_of(page, "<script"), 2u);  // the data and the code
  EXPECT_EQ(count_of(page, "<img"), 0u);
  EXPECT_EQ(count_of(page, "\"'&<"), 0u);
  EXPECT_GT(count_of(page, "&lt;img src=x onerror=alert(1)&gt;"), 10u);
}

TEST(Report, TakesAnyBytes) {
  for (std::string bad : {"\xff\xfe", "\xc3", "\xe2\x80", "\xf0\x9f\x98\x80 \U0001F600", "a\x1b[31m\x07\x08\r\nb",
                          "\u202Egpj.exe", "\xc2\x9b"}) {
    Json report = sample();
    report["bottleneck"]["sentence"] = report["findings"][0]["message"] = report["findings"][0]["file"] = bad;
    report["plan"][bad] = bad;
    report["written"][bad] = bad;
    std::string page = report_html(report), text = report_text(report, false);
    for (const std::string& out : {page, text}) {
      EXPECT_NO_THROW(Json(out).dump()) << "not UTF-8";  // dump checks it
      EXPECT_EQ(out.find_first_of("\x1b\x07\x08\r"), std::string::npos);
    }
    EXPECT_EQ(text.find("\u202E"), std::string::npos);
    EXPECT_EQ(text.find("\u009b"), std::string::npos);
  }
}

TEST(Report, WhatIsMissingIsNeverZero) {
  Json report = sample();
  std::string row = between(static_part(report_html(report)), ">reshape<", "</tr>");
  EXPECT_EQ(count_of(row, ">–<"), 5u) << row;  // three figures, what bounds it, how near
  EXPECT_EQ(count_of(row, ">0<"), 0u);
  EXPECT_NE(report_text(report, false).find("energy   unavailable: no RAPL counter"), std::string::npos);
  report["energy"] = nullptr;
  report["memory"]["peak_mb"] = nullptr;
  report["profile"]["cpu_utilisation_percent"] = nullptr;
  std::string body = static_part(report_html(report));
  for (const char* gone : {"Energy", "Peak memory", "CPU in use"})
    EXPECT_EQ(body.find(gone), std::string::npos) << gone;
  EXPECT_EQ(report_text(report, false).find("energy"), std::string::npos);
}

TEST(Report, EmptyReports) {
  Json nulls = sample();
  for (auto& [key, value] : nulls.items()) value = nullptr;
  for (const Json& report : {Json(), Json::object(), Json::array(), Json("text"), Json(3), nulls}) {
    std::string body = static_part(report_html(report));
    EXPECT_NE(body.find("was not measured"), std::string::npos);
    for (const char* part : {"<section", "<table", "<li", "NaN", "null", "–<"})
      EXPECT_EQ(body.find(part), std::string::npos) << part;
    EXPECT_LE(lines_of(report_text(report, false)).size(), 5u);
  }
}

void collect(const Json& value, const Json::json_pointer& at, std::vector<Json::json_pointer>& out) {
  out.push_back(at);
  if (value.is_object())
    for (const auto& [key, child] : value.items()) collect(child, at / key, out);
  if (value.is_array())
    for (size_t i = 0; i < value.size(); ++i) collect(value[i], at / i, out);
}

TEST(Report, AnyPartMayBeAnything) {
  const Json report = sample();
  std::vector<Json::json_pointer> places;
  collect(report, Json::json_pointer(), places);
  ASSERT_GT(places.size(), 150u);
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    0,
                                    1e308,
                                    -1e-308,
                                    "x",
                                    std::string(300, 'y'),
                                    Json::array(),
                                    Json::object(),
                                    Json::array({nullptr, 1, "a"}),
                                    Json{{"a", nullptr}},
                                    std::numeric_limits<double>::quiet_NaN(),
                                    std::numeric_limits<double>::infinity(),
                                    18446744073709551615ull};
  for (const auto& place : places)
    for (const Json& value : values) {
      Json changed = report;
      changed[place] = value;
      std::string page, text;
      ASSERT_NO_THROW(page = report_html(changed)) << place << " " << value;
      ASSERT_NO_THROW(text = report_text(changed, true)) << place << " " << value;
      for (const char* word : {">nan", ">-nan", ">inf<", ">inf ", ">-inf"})
        ASSERT_EQ(page.find(word), std::string::npos) << place << " " << value;
    }
}

TEST(ReportText, IsInOrderOfGain) {
  std::string text = report_text(sample(), false), body = static_part(report_html(sample()));
  for (const std::string& out : {text, body}) {
    size_t first = out.find("atches of 64"), second = out.find("un in inference mode"), last = out.find("ix the rest");
    EXPECT_LT(first, second);
    EXPECT_LT(second, last);
    EXPECT_NE(last, std::string::npos);
  }
}

TEST(ReportText, HasWhatMatters) {
  std::string text = report_text(sample(), false);
  for (const char* part : {"61 % of the time goes into starting small ops.", "linear algebra", "1.20 s   60.0 %",
                           "warning D005  eval.cpp:31  20 times", "fix: Call eval() first.", "1.58x (1.49 to 1.66)",
                           "helps beyond noise", "not available yet", "Together: 520 → 1,900 samples per s, 3.65x",
                           "training with gradients", "resnet50", "plan     deft.plan.json", "page     report.html"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("sync"), std::string::npos);  // a bucket without time
  for (const std::string& line : lines_of(text)) EXPECT_FALSE(line.ends_with(' ')) << line;
}

TEST(ReportText, ColorChangesNothingElse) {
  std::string plain = report_text(sample(), false), colored = report_text(sample(), true), stripped;
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(colored.find('\x1b'), std::string::npos);
  for (size_t i = 0; i < colored.size(); ++i) {
    if (colored[i] == '\x1b')
      i = colored.find('m', i);
    else
      stripped += colored[i];
  }
  EXPECT_EQ(stripped, plain);
}

// More of everything than fits.
Json large() {
  Json report = sample();
  std::string name(400, 'n'), words;
  for (int i = 0; i < 100; ++i) words += "word ";
  report["bottleneck"]["sentence"] = words;
  report["workload"]["name"] = report["written"]["page"] = name;
  report["profile"]["ops"][0]["name"] = report["profile"]["ops"][0]["site"] = name;
  Json& finding = report["findings"][0];
  finding["file"] = "/" + name + "/eval.cpp";
  finding["message"] = finding["fix"] = words;
  report["trials"][0]["technique"] = report["trials"][0]["reason"] = name;
  report["next"][0]["what"] = words;
  report["tables"]["modes"][0]["mode"] = name;
  auto repeat = [](Json& rows, size_t count) {
    for (size_t i = 0; rows.size() < count; ++i) rows.push_back(rows[i]);
  };
  for (Json* rows : {&report["findings"], &report["trials"], &report["next"], &report["profile"]["buckets"],
                     &report["waterfall"], &report["tables"]["modes"], &report["tables"]["families"]})
    repeat(*rows, 60);
  repeat(report["profile"]["ops"], 500);
  return report;
}

TEST(ReportText, FitsTwoScreensOfAnyWidth) {
  for (int width : {40, 80, 100, 160}) expect_narrow(report_text(large(), false, width), static_cast<size_t>(width));
  EXPECT_LE(lines_of(report_text(large(), false)).size(), 100u);
  EXPECT_NE(report_text(large(), false).find("and 55 more"), std::string::npos);
  expect_narrow(report_text(sample(), false, 1), 40);  // narrower is no use to anyone
}

TEST(ReportText, OfAPathTheEndStays) {
  EXPECT_NE(report_text(large(), false).find("n/eval.cpp:31  20 times"), std::string::npos);
}

TEST(ReportText, OfManyTrialsTheKeptOnesStay) {
  Json report = sample();
  Json tried = report["trials"][0];
  tried["kept"] = false;
  for (int i = 0; i < 30; ++i) report["trials"].insert(report["trials"].begin(), tried);
  EXPECT_EQ(count_of(report_text(report, false), "mode  kept      1.58x"), 1u) << report_text(report, false);
}

TEST(ReportText, LongNamesGiveWayToFigures) {
  std::string text = report_text(large(), false, 80);
  EXPECT_NE(text.find("n…     4.00      200     1.00x"), std::string::npos) << text;
}

TEST(ReportHtml, FiveHundredOps) {
  std::string page = report_html(large());
  EXPECT_EQ(count_of(between(page, "aria-label=\"Ops, the longest first\">", "</table>"), "<tr>"), 501u);
  Json report = sample();
  size_t small = report_html(report).size();
  while (report["profile"]["ops"].size() < 500) report["profile"]["ops"].push_back(report["profile"]["ops"][0]);
  EXPECT_LT(report_html(report).size() - small, 500u * 1200u);
}

TEST(ReportValues, Figures) {
  EXPECT_EQ(figure(0.0), "0");
  EXPECT_EQ(figure(1234567.0), "1,234,567");
  EXPECT_EQ(figure(-1234.0), "-1,234");
  EXPECT_EQ(figure(999.96), "1,000");
  EXPECT_EQ(figure(123.4), "123");
  EXPECT_EQ(figure(12.34), "12.3");
  EXPECT_EQ(figure(1.0), "1.00");
  EXPECT_EQ(figure(0.01234), "0.0123");
  EXPECT_EQ(figure(1.5e12), "1.5e+12");
  EXPECT_EQ(figure(Json(20)), "20");
  EXPECT_EQ(figure(Json()), "–");
  EXPECT_EQ(figure(Json("3")), "–");
  EXPECT_EQ(percent(Json(0.01)), "<0.1 %");
  EXPECT_EQ(percent(Json(0)), "0.0 %");
  EXPECT_EQ(seconds(0.0123), "12.3 ms");
  EXPECT_EQ(seconds(2e-6), "2.00 µs");
  EXPECT_EQ(seconds(std::nullopt), "–");
  EXPECT_EQ(times(Json(2.7)), "2.70x");
}

TEST(ReportValues, EnergyIsNeverZeroWhereItIsUnknown) {
  Json report = sample();
  EXPECT_EQ(energy_line(report), "unavailable: no RAPL counter");
  report["energy"] = {{"joules_per_sample", 0.31}, {"method", "RAPL"}, {"sampling_hz", 10}, {"reason", nullptr}};
  EXPECT_EQ(energy_line(report), "0.31 J per sample (RAPL, 10 Hz)");
  report["energy"]["joules_per_sample"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(energy_line(readable(report)), "unavailable");
}

}  // namespace
}  // namespace deft::doctor
