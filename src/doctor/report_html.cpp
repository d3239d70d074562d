#include "doctor/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "doctor/report_values.h"

namespace deft::doctor {

namespace {

constexpr char kStyle[] =
#include "doctor/report_style.inc"
    ;
constexpr char kScript[] =
#include "doctor/report_script.inc"
    ;

std::string escaped(std::string_view raw) {
  std::string out;
  out.reserve(raw.size() + 16);
  for (char c : raw) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}
std::string shown(const Json& value) { return escaped(text(value)); }

// The data for the charts. Inside a script element only "<" could end it.
std::string embedded(const Json& report) {
  std::string json = report.dump(-1, ' ', true), out;  // true: ASCII only, so also no U+2028
  for (char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

double share(double part, double whole) { return whole > 0 ? std::clamp(100 * part / whole, 0.0, 100.0) : 0; }

constexpr int kBlue = 2, kRed = 5, kGreen = 6, kGrey = 9;
// Colours 0 to 9 of the style, by what they stand for: the same in every report.
int color_of(std::span<const char* const> names, const std::string& name) {
  auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? kGrey : static_cast<int>(found - names.begin());
}
int bucket_color(const std::string& name) {
  constexpr std::array names = {"data wait", "copies",    "linear algebra", "other kernels", "autograd",
                                "dispatch",  "optimizer", "sync",           "allocation"};
  return color_of(names, name);
}
int memory_color(const std::string& name) {
  constexpr std::array names = {"data", "-",         "parameters", "gradients",         "optimizer",
                                "-",    "workspace", "-",          "saved for backward"};
  return color_of(names, name);
}

// ---- Tables. A column shows a field of each row, as it is or by a function of the row.
using Cell = std::string (*)(const Json& row);
struct Column {
  const char* title;
  const char* key;
  bool numeric = true;
  Cell cell = nullptr;
};

std::string cell_of(const Column& column, const Json& row) {
  if (column.cell) return column.cell(row);
  const Json& value = field(row, column.key);
  return column.numeric ? figure(value) : value.is_null() ? "–" : shown(value);
}

std::string sort_value(const Column& column, const Json& row) {
  const Json& value = field(row, column.key);
  if (!column.numeric) return fmt::format(" data-v=\"{}\"", shown(value));
  std::optional<double> v = number(value);
  return v ? fmt::format(" data-v=\"{}\"", *v) : " data-v=\"\"";
}

std::string caption_line(std::string_view caption) {
  return fmt::format("<p class=\"caption\">{}</p>\n", escaped(caption));
}

// Columns of which no row has anything are left out. `fold`: rows shown before the reader asks for all.
std::string table(std::string_view caption, const Json& rows, std::span<const Column> columns, int fold = 0) {
  if (rows.empty()) return "";
  std::vector<Column> used;
  for (const Column& column : columns) {
    auto has = [&](const Json& row) { return !field(row, column.key).is_null(); };
    if (std::any_of(rows.begin(), rows.end(), has)) used.push_back(column);
  }
  std::string head, body;
  for (const Column& c : used)
    head += fmt::format("<th scope=\"col\"{}>{}</th>", c.numeric ? " class=\"n\"" : "", escaped(c.title));
  for (const Json& row : rows) {
    body += "<tr>";
    for (const Column& c : used) {
      std::string tag = &c == used.data() ? "th" : "td", scope = &c == used.data() ? " scope=\"row\"" : "";
      body += fmt::format("<{0}{1}{2}{3}>{4}</{0}>", tag, scope, c.numeric ? " class=\"n\"" : "",
                          fold ? sort_value(c, row) : "", cell_of(c, row));
    }
    body += "</tr>\n";
  }
  std::string kind = fold ? fmt::format(" class=\"sortable\" data-fold=\"{}\"", fold) : "";
  return caption_line(caption) +
         fmt::format(
             "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table{1} aria-label=\"{0}\">"
             "<thead><tr>{2}</tr></thead>\n<tbody>\n{3}</tbody></table></div>\n",
             escaped(caption), kind, head, body);
}

// The bar goes from one percentage of the room to another.
std::string bar_row(const Json& name, double from, double to, int color, const std::string& first,
                    const std::string& second) {
  std::string bar = to > from ? fmt::format("<i style=\"margin-left:{:.2f}%;width:{:.2f}%;background:var(--k{})\"></i>",
                                            from, to - from, color)
                              : "";
  return fmt::format(
      "<li><span>{}</span> <span class=\"bar\">{}</span> <span class=\"n\">{}</span> <span "
      "class=\"n\">{}</span></li>\n",
      capitalised(shown(name)), bar, first, second);
}
std::string bar_list(std::string_view label, const std::string& rows) {
  return fmt::format("<ul class=\"bars\" aria-label=\"{}\">\n{}</ul>\n", label, rows);
}

std::string two_lines(const std::string& first, const std::string& second) {
  return second.empty() ? first : first + "<small>" + second + "</small>";
}

std::string boxed(const std::string& part) { return part.empty() ? "" : "<div>" + part + "</div>\n"; }

std::string section(std::string_view id, std::string_view title, const std::string& body) {
  if (body.empty()) return "";
  return fmt::format("<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
                     id, title, body);
}

std::string chart(std::string_view name, std::string_view label, const std::string& caption) {
  return fmt::format(
      "<figure><div class=\"chart {0}\" data-chart=\"{0}\" role=\"img\" aria-label=\"{1}\"><noscript>This chart needs "
      "JavaScript; the figures stand in the tables.</noscript></div><figcaption>{2}</figcaption></figure>\n",
      name, escaped(label), caption);
}

// ---- The parts, top down.
std::string fact(std::string_view name, const std::string& value, const std::string& note, bool missing = false) {
  return fmt::format("<div><dt>{}</dt><dd{}>{}<small>{}</small></dd></div>\n", name, missing ? " class=\"none\"" : "",
                     escaped(value), escaped(note));
}

std::string speed_fact(const Json& report) {
  const Json& steps = list(report, "waterfall");
  if (steps.size() < 2 || !number(field(steps.back(), "speedup"))) return "";
  std::string note = fmt::format("{} → {} samples per s", figure(field(steps.front(), "samples_per_s")),
                                 figure(field(steps.back(), "samples_per_s")));
  return fact("Measured gain", times(field(steps.back(), "speedup")), note);
}

std::string latency_fact(const Json& report) {
  for (const Json& column : list(field(report, "latency"), "columns"))
    if (text(field(column, "name")) == "warm" && number(field(column, "p50_ms")))
      return fact("Latency, warm", with_unit(field(column, "p50_ms"), "ms"),
                  "p99 " + with_unit(field(column, "p99_ms"), "ms"));
  return "";
}

std::string facts(const Json& report) {
  std::string out = speed_fact(report);
  if (field(report, "findings").is_array())
    out += fact("Findings", std::to_string(list(report, "findings").size()), "of the lint rules");
  const Json& memory = field(report, "memory");
  const Json& saved = field(field(memory, "peak_by_category_mb"), "saved for backward");
  if (number(field(memory, "peak_mb")))
    out += fact("Peak memory", with_unit(field(memory, "peak_mb"), "MB"),
                number(saved) ? with_unit(saved, "MB") + " saved for backward" : "");
  out += latency_fact(report);
  const Json& profile = field(report, "profile");
  if (number(field(profile, "cpu_utilisation_percent")))
    out += fact("CPU in use", percent(field(profile, "cpu_utilisation_percent")),
                number(field(profile, "device_utilisation_percent"))
                    ? "device " + percent(field(profile, "device_utilisation_percent"))
                    : "");
  if (const Json& energy = field(report, "energy"); number(field(energy, "joules_per_sample")))
    out += fact("Energy", with_unit(field(energy, "joules_per_sample"), "J"), "per sample");
  else if (energy.is_object())
    out += fact("Energy", "unavailable", text(field(energy, "reason")), true);
  return out.empty() ? "" : "<dl class=\"facts\">\n" + out + "</dl>\n";
}

std::string verdict(const Json& report) {
  const Json& bottleneck = field(report, "bottleneck");
  std::string kind = shown(field(bottleneck, "class")), sentence = shown(field(bottleneck, "sentence"));
  if (sentence.empty()) sentence = "What limits this workload was not measured.";
  return (kind.empty() ? "" : "<p class=\"kind\">" + capitalised(kind) + "</p>\n") + "<p class=\"verdict\">" +
         sentence + "</p>\n";
}

std::string next_steps(const Json& report) {
  std::string items;
  for (const Json& item : by_gain(list(report, "next"))) {
    std::string how = shown(field(item, "how"));
    std::string gain = "<b class=\"gain\">" + (number(field(item, "gain")) ? times(field(item, "gain")) : "") + "</b>";
    items += "<li>" + gain + "<span>" + capitalised(shown(field(item, "what"))) +
             (how.empty() ? "" : "<code>" + how + "</code>") + "</span></li>\n";
  }
  return items.empty() ? "" : "<ol class=\"next\">\n" + items + "</ol>\n";
}

std::string breakdown_note(const Json& profile, const std::string& unused) {
  std::string note = "Exclusive times of the thread that runs the loop";
  std::optional<double> wall = number(field(profile, "wall_s")), sum = number(field(profile, "sum_s"));
  if (wall) note += ": " + seconds(wall) + " in all";
  if (wall && sum && *wall > 0)
    note += fmt::format(", of which the buckets cover {}", percent(Json(100 * *sum / *wall)));
  if (number(field(profile, "overhead_percent")))
    note += fmt::format("; the profiler itself took {}", percent(field(profile, "overhead_percent")));
  if (number(field(profile, "looked_percent")).value_or(100) < 100)
    note += fmt::format(", and to keep its cost low recorded {} of the time and extrapolated",
                        percent(field(profile, "looked_percent")));
  if (number(field(profile, "watching_percent")))
    note += fmt::format("; tracing the device took {} longer, in a run of its own",
                        percent(field(profile, "watching_percent")));
  if (number(field(profile, "dropped")).value_or(0) > 0)
    note += fmt::format("; {} events did not fit into its ring", figure(field(profile, "dropped")));
  return "<p class=\"note\">" + note + "." + (unused.empty() ? "" : " No time in: " + unused + ".") + "</p>\n";
}

std::string breakdown(const Json& report) {
  const Json& profile = field(report, "profile");
  double most = 0;
  for (const Json& b : list(profile, "buckets")) most = std::max(most, number(field(b, "percent")).value_or(0));
  std::string strip, rows, unused;
  for (const Json& b : list(profile, "buckets")) {
    std::optional<double> part = number(field(b, "percent")), time = number(field(b, "s"));
    int color = bucket_color(text(field(b, "name")));
    if (time == 0.0) {
      unused += (unused.empty() ? "" : ", ") + shown(field(b, "name"));
      continue;
    }
    strip += fmt::format("<i style=\"width:{:.2f}%;background:var(--k{})\"></i>", share(part.value_or(0), 100), color);
    rows +=
        bar_row(field(b, "name"), 0, share(part.value_or(0), most), color, seconds(time), percent(field(b, "percent")));
  }
  if (rows.empty()) return "";
  return "<div class=\"strip\" aria-hidden=\"true\">" + strip + "</div>\n" + bar_list("Time by bucket", rows) +
         breakdown_note(profile, unused);
}

std::string figures_of(const Json& finding) {
  std::string out;
  for (const auto& [key, value] : field(finding, "figures").items()) {
    std::string name = text(Json(key));
    std::replace(name.begin(), name.end(), '_', ' ');
    out += fmt::format("<span>{} <b>{}</b></span>", escaped(name), value.is_number() ? figure(value) : shown(value));
  }
  return out.empty() ? "" : "<p class=\"figures\">" + out + "</p>";
}

std::string finding_item(const Json& finding) {
  std::string severity = text(field(finding, "severity")), place = place_of(finding);
  std::string kind = severity == "error" || severity == "note" ? severity : "warning";
  std::string out = fmt::format(
      "<article class=\"finding {}\"><h3><span class=\"badge\">{}</span> {} <span class=\"name\">{}</span></h3>\n",
      kind, severity.empty() ? kind : escaped(severity), shown(field(finding, "id")), shown(field(finding, "name")));
  std::string often = number(field(finding, "count")).value_or(1) > 1
                          ? (place.empty() ? "" : " · ") + figure(field(finding, "count")) + " times"
                          : "";
  if (!place.empty() || !often.empty())
    out += "<p class=\"place\">" + (place.empty() ? "" : "<code>" + escaped(place) + "</code>") + often + "</p>\n";
  out += "<p>" + shown(field(finding, "message")) + "</p>\n" + figures_of(finding);
  std::string fix = shown(field(finding, "fix"));
  return out + (fix.empty() ? "" : "<p class=\"fix\"><b>Fix</b> " + fix + "</p>\n") + "</article>\n";
}

std::string findings(const Json& report) {
  if (!field(report, "findings").is_array()) return "";
  std::string out;
  for (const Json& finding : list(report, "findings")) out += finding_item(finding);
  return out.empty() ? "<p>No rule found anything.</p>\n" : out;
}

std::string waterfall(const Json& report) {
  const Json& steps = list(report, "waterfall");
  double most = 0, before = 0;
  for (const Json& step : steps) most = std::max(most, number(field(step, "samples_per_s")).value_or(0));
  std::string rows;
  for (size_t i = 0; i < steps.size(); ++i) {
    double now = number(field(steps[i], "samples_per_s")).value_or(before);
    bool whole = i == 0 || i + 1 == steps.size();  // the others show only what they change
    double from = whole ? 0 : std::min(before, now), to = whole ? now : std::max(before, now);
    int color = i == 0 ? kGrey : whole ? kGreen : now < before ? kRed : kBlue;
    rows += bar_row(field(steps[i], "step"), share(from, most), share(to, most), color,
                    figure(field(steps[i], "samples_per_s")), times(field(steps[i], "speedup")));
    before = now;
  }
  constexpr std::string_view caption = "Samples per second and speed-up, step by step";
  return rows.empty() ? "" : caption_line(caption) + bar_list(caption, rows);
}

// The interval of a speed-up as a whisker, on a logarithmic scale that all trials share; the dashed line is at 1.
std::string whisker(const Json& trial) {
  std::optional<double> low = number(field(trial, "speedup_low")), high = number(field(trial, "speedup_high"));
  std::optional<double> middle = number(field(trial, "speedup"));
  if (!low || !high || !middle || *low <= 0 || *high <= 0 || *middle <= 0) return "";
  double from = std::log(trial["scale_low"].get<double>()), to = std::log(trial["scale_high"].get<double>());
  auto x = [&](double v) { return 3 + 94 * std::clamp((std::log(v) - from) / (to - from), 0.0, 1.0); };
  return fmt::format(
      "<svg class=\"whisker\" viewBox=\"0 0 100 15\" aria-hidden=\"true\"><path class=\"one\" d=\"M{3:.1f} 0V15\"/>"
      "<path d=\"M{0:.1f} 7.5H{1:.1f}M{0:.1f} 5V10M{1:.1f} 5V10\"/><circle cx=\"{2:.1f}\" cy=\"7.5\" r=\"1.5\"/></svg>",
      x(*low), x(*high), x(*middle), x(1));
}

Json with_scale(Json trials) {
  double low = 0.8, high = 1.25;
  for (const Json& trial : trials) {
    if (double v = number(field(trial, "speedup_low")).value_or(1); v > 0) low = std::min(low, v);
    if (double v = number(field(trial, "speedup_high")).value_or(1); v > 0) high = std::max(high, v);
  }
  for (Json& trial : trials) {
    if (!trial.is_object()) trial = Json::object();
    trial["scale_low"] = std::max(low, 0.1);
    trial["scale_high"] = std::min(high, 100.0);
  }
  return trials;
}

std::string speedup_cell(const Json& trial) {
  const Json &low = field(trial, "speedup_low"), &high = field(trial, "speedup_high");
  std::string interval = number(low) && number(high) ? fmt::format("{} to {}", times(low), times(high)) : "";
  return two_lines("<b>" + times(field(trial, "speedup")) + "</b>", interval);
}

std::string from_to(const Json& before, const Json& after) {
  if (before.is_null() && after.is_null()) return "–";
  return figure(before) + " → " + figure(after);
}

std::string trials(const Json& report) {
  constexpr std::array columns = {
      Column{"technique", "technique", false,
             [](const Json& t) { return two_lines(shown(field(t, "technique")), shown(field(t, "stage"))); }},
      Column{"speed-up", "speedup", true, speedup_cell},
      Column{"interval", "speedup_low", false, whisker},
      Column{"verdict", "kept", false,
             [](const Json& t) {
               const Json& kept = field(t, "kept");
               bool yes = kept.is_boolean() && kept.get<bool>();
               std::string word = kept.is_boolean() ? (yes ? "kept" : "not kept") : "not tried";
               return two_lines("<span class=\"" + std::string(yes ? "yes" : "no") + "\">" + word + "</span>",
                                shown(field(t, "reason")));
             }},
      Column{"ms", "before_ms", true,
             [](const Json& t) { return from_to(field(t, "before_ms"), field(t, "after_ms")); }},
      Column{"own peak MB", "peak_mb_before", true,
             [](const Json& t) { return from_to(field(t, "peak_mb_before"), field(t, "peak_mb_after")); }},
      Column{"accuracy", "accuracy_before", true,
             [](const Json& t) { return from_to(field(t, "accuracy_before"), field(t, "accuracy_after")); }},
      Column{"output error", "output_error"},
      Column{"pairs", "pairs"}};
  return table("Trials, each against the best so far, with the interval of its speed-up",
               with_scale(list(report, "trials")), columns);
}

// A plan of deft compile beside the model it was made from.
std::string against_eager(const Json& report) {
  const Json& eager = field(report, "eager");
  if (!eager.is_object()) return "";
  if (const std::string reason = shown(field(eager, "reason")); !reason.empty())
    return "<p class=\"note\">Not compared with the model itself: " + reason + ".</p>\n";
  const Json &low = field(eager, "speedup_low"), &high = field(eager, "speedup_high");
  return fmt::format("<p>Against {} eager ({}), batches of {}: <b>{}</b>{}, pairs of runs: {}.</p>\n",
                     shown(field(eager, "model")), shown(field(eager, "weights")), figure(field(eager, "batch")),
                     times(field(eager, "speedup")),
                     number(low) && number(high) ? fmt::format(" ({} to {})", times(low), times(high)) : "",
                     figure(field(eager, "pairs")));
}

std::string op_table(const Json& profile) {
  constexpr std::array columns = {
      Column{"op", "name", false,
             [](const Json& op) {
               std::string site = shown(field(op, "site")), bucket = shown(field(op, "bucket"));
               return two_lines(shown(field(op, "name")),
                                bucket + (site.empty() || bucket.empty() ? "" : " · ") + site);
             }},
      Column{"ms", "ms"},
      Column{"time", "percent", true, [](const Json& op) { return percent(field(op, "percent")); }},
      Column{"calls", "calls"},
      Column{"overhead ms", "overhead_ms"},
      Column{"GFLOP/s", "gflops"},
      Column{"GB/s", "gb_per_s"},
      Column{"FLOP/byte", "flops_per_byte"},
      Column{"limit", "bound", false},
      Column{"of limit", "of_limit_percent", true,
             [](const Json& op) { return percent(field(op, "of_limit_percent")); }},
      Column{"pass", "pass", false},
      Column{"type", "type", false}};
  return table("Ops, the longest first", list(profile, "ops"), columns, 25);
}

std::string module_table(const Json& profile) {
  constexpr std::array columns = {
      Column{"module", "name", false,
             [](const Json& m) {
               std::string name = shown(field(m, "name"));
               return two_lines(name.empty() ? "(the model)" : name, shown(field(m, "type")));
             }},
      Column{"calls", "calls"}, Column{"ms", "ms"}, Column{"own ms", "self_ms"},
      Column{"time", "percent", true, [](const Json& m) { return percent(field(m, "percent")); }}};
  return table("Forward time by module, those inside included", list(profile, "modules"), columns, 25);
}

std::string roofline(const Json& profile) {
  const Json& roofs = field(profile, "roofline");
  const Json& of = field(roofs, "of");
  std::string caption = fmt::format(
      "Each dot is an op: its area is its share of the time, its height what it reaches. Roofs measured on {}",
      of.is_string() ? escaped(of.get<std::string>()) : "this machine");
  std::string figures;
  for (const auto& [type, value] : field(roofs, "gflops").items())
    if (number(value))
      figures += fmt::format("{}{} {} GFLOP/s", figures.empty() ? ": " : ", ", escaped(type), figure(value));
  if (number(field(roofs, "read_gb_per_s"))) figures += ", reading " + with_unit(field(roofs, "read_gb_per_s"), "GB/s");
  if (number(field(roofs, "copy_gb_per_s"))) figures += ", copying " + with_unit(field(roofs, "copy_gb_per_s"), "GB/s");
  if (figures.empty() || list(profile, "ops").empty()) return "";
  return chart("roofline", "Roofline plot of the ops; the table of ops below has the same figures",
               caption + figures + ".");
}

std::string memory_part(const Json& part, std::string_view name, std::string_view chart_name) {
  if (!part.is_object()) return "";
  std::string out;
  if (!list(part, "timeline").empty())
    out += chart(
        chart_name, "Memory in use over time by category; the table beside it has the figures of the peak",
        fmt::format("{} in use over time, by category. Peak: {}.", name, with_unit(field(part, "peak_mb"), "MB")));
  std::string rows;
  for (const auto& [category, value] : field(part, "peak_by_category_mb").items())
    rows += fmt::format(
        "<tr><th scope=\"row\"><i class=\"swatch\" style=\"background:var(--k{})\"></i>{}</th><td "
        "class=\"n\">{}</td></tr>\n",
        memory_color(text(Json(category))), escaped(capitalised(text(Json(category)))), with_unit(value, "MB"));
  std::string tables;
  if (!rows.empty())
    tables += "<div>" + caption_line(std::string(name) + " at the peak") + "<table><tbody>\n" + rows +
              "</tbody></table></div>\n";
  constexpr std::array columns = {
      Column{"held by", "op", false,
             [](const Json& h) { return two_lines(shown(field(h, "op")), shown(field(h, "site"))); }},
      Column{"category", "category", false}, Column{"MB", "mb"}, Column{"tensors", "count"}};
  tables += boxed(table("What holds the peak", list(part, "holders"), columns));
  return out + (tables.empty() ? "" : "<div class=\"pair\">\n" + tables + "</div>\n");
}

std::string memory(const Json& report) {
  const Json& part = field(report, "memory");
  return memory_part(part, "Memory", "memory") + memory_part(field(part, "device"), "Device memory", "device");
}

std::string latency_table(const Json& latency) {
  struct Line {
    const char *title, *key, *unit;
  };
  constexpr std::array lines = {Line{"p50", "p50_ms", "ms"},   Line{"p90", "p90_ms", "ms"},
                                Line{"p99", "p99_ms", "ms"},   Line{"p99.9", "p999_ms", "ms"},
                                Line{"mean", "mean_ms", "ms"}, Line{"samples", "samples", ""}};
  const Json& columns = list(latency, "columns");
  if (columns.empty()) return "";
  std::string head = "<th scope=\"col\">ms</th>", body;
  for (const Json& column : columns) head += "<th scope=\"col\" class=\"n\">" + shown(field(column, "name")) + "</th>";
  for (const Line& line : lines) {
    body += fmt::format("<tr><th scope=\"row\">{}</th>", line.title);
    for (const Json& column : columns) body += "<td class=\"n\">" + figure(field(column, line.key)) + "</td>";
    body += "</tr>\n";
  }
  return "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Latency\"><table "
         "aria-label=\"Latency\"><thead><tr>" +
         head + "</tr></thead><tbody>\n" + body + "</tbody></table></div>\n";
}

std::string latency(const Json& report) {
  const Json& part = field(report, "latency");
  std::string covers = shown(field(part, "covers")), verdict_word = shown(field(part, "verdict")), out;
  std::string note = covers.empty() ? "" : "Covers " + covers + ". ";
  if (!verdict_word.empty()) note += "Verdict: " + verdict_word + ".";
  if (!list(part, "histogram").empty())
    out += chart("latency", "Histogram of warm latencies with percentiles; the table has the figures",
                 "Warm calls by latency, with percentiles. " + note);
  else if (!note.empty())
    out += "<p class=\"note\">" + note + "</p>\n";
  return out + latency_table(part);
}

std::string energy(const Json& report) {
  std::string line = energy_line(report);
  if (line.empty()) return "";
  const Json& part = field(report, "energy");
  std::string watts = number(field(part, "watts"))
                          ? fmt::format(" {} while it ran, {} idle before.", with_unit(field(part, "watts"), "W"),
                                        with_unit(field(part, "idle_watts"), "W"))
                          : "";
  return "<p>" + capitalised(escaped(line)) + "." + watts + "</p>\n";
}

std::string machine_tables(const Json& report) {
  constexpr std::array modes = {
      Column{"mode", "mode", false}, Column{"epoch s", "epoch_s"}, Column{"peak MB", "peak_mb"},
      Column{"speed-up", "speedup", true, [](const Json& r) { return times(field(r, "speedup")); }}};
  constexpr std::array families = {Column{"model", "model", false}, Column{"batch", "batch"},
                                   Column{"peak MB", "peak_mb"}, Column{"ms per batch", "ms_per_batch"},
                                   Column{"samples per s", "samples_per_s"}};
  const Json& tables = field(report, "tables");
  std::string out = boxed(table("Grad modes", list(tables, "modes"), modes)) +
                    boxed(table("Model families", list(tables, "families"), families));
  return out.empty() ? "" : "<div class=\"pair\">\n" + out + "</div>\n";
}

std::string plan(const Json& report) {
  const Json& part = field(report, "plan");
  if (!part.is_object() || part.empty()) return "";
  return "<p>Apply it with <code>--plan</code> in <code>deft train</code>, <code>eval</code> and <code>infer</code>, "
         "or with "
         "<code>deft::Plan</code>.</p>\n<div class=\"plan\"><pre id=\"plan-text\" tabindex=\"0\" aria-label=\"The plan "
         "as JSON\">" +
         escaped(part.dump(2)) + "</pre></div>\n";
}

std::string ops(const Json& profile) { return roofline(profile) + op_table(profile); }

std::string body_of(const Json& report) {
  const Json& profile = field(report, "profile");
  std::string top = section("next", "What to do next, by gain", next_steps(report)) +
                    section("time", "Where the time goes", breakdown(report));
  return (top.empty() ? "" : "<div class=\"pair\">\n" + top + "</div>\n") +
         section("findings", "Findings", findings(report)) +
         section("trials", "Before and after", against_eager(report) + waterfall(report) + trials(report)) +
         section("ops", "Ops", ops(profile)) + section("modules", "Modules", module_table(profile)) +
         section("memory", "Memory", memory(report)) + section("latency", "Latency", latency(report)) +
         section("energy", "Energy", energy(report)) +
         section("tables", "Measured on this machine", machine_tables(report)) + section("plan", "Plan", plan(report));
}

std::string footer(const Json& report) {
  std::string version = shown(field(report, "version"));
  return "<footer><p>Made by " + std::string("deft doctor") + (version.empty() ? "" : " " + version) +
         ". Every figure was measured on this machine; – stands for what could not be measured.</p></footer>\n";
}

}  // namespace

std::string report_html(const nlohmann::ordered_json& report) {
  Json data = readable(report);
  std::string name = shown(field(field(data, "workload"), "name"));
  if (name.empty()) name = "Unnamed workload";
  std::string machine = escaped(machine_line(data)), workload = escaped(workload_line(data));
  if (std::string baseline = shown(field(field(data, "workload"), "baseline")); !baseline.empty())
    machine += ". Gains are over " + baseline;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>Deft doctor: "
      "{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<header>\n<p class=\"brand\">Deft doctor</p>\n<h1>{0}</h1>\n<p class=\"meta\">{2}{3}{4}</p>\n{5}{6}</header>\n"
      "<main>\n{7}</main>\n{8}<script type=\"application/json\" "
      "id=\"report\">{9}</script>\n<script>{10}</script>\n</body>\n</html>\n",
      name, kStyle, workload, workload.empty() || machine.empty() ? "" : " · ", machine, verdict(data), facts(data),
      body_of(data), footer(data), embedded(data), kScript);
}

}  // namespace deft::doctor
