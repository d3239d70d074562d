#include "doctor/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "doctor/report_values.h"

namespace deft::doctor {

namespace {

// Rows of each part that are shown; the page has all.
constexpr size_t kMaxFindings = 5, kMaxTrials = 12, kMaxNext = 4, kMaxTableRows = 5;

// The character at the start of valid UTF-8, and the columns it takes.
size_t length_at(std::string_view s) {
  auto lead = static_cast<unsigned char>(s[0]);
  size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(length, s.size());
}
size_t columns_at(std::string_view s) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  size_t length = length_at(s);
  if (length == 4) return 2;                                                             // emoji and rare ideographs
  if (length == 3 && byte(0) == 0xef && (byte(1) == 0xb8 || byte(1) == 0xbb)) return 0;  // marks on the one before
  return length == 3 && byte(0) >= 0xe3 && byte(0) <= 0xed ? 2 : 1;                      // East Asian scripts
}
size_t columns(std::string_view s) {
  size_t count = 0;
  for (; !s.empty(); s.remove_prefix(length_at(s))) count += columns_at(s);
  return count;
}

std::string cut(std::string_view s, size_t width) {
  if (columns(s) <= width) return std::string(s);
  std::string out;
  for (size_t used = 0; !s.empty() && used + columns_at(s) + 1 <= width; s.remove_prefix(length_at(s))) {
    used += columns_at(s);
    out += s.substr(0, length_at(s));
  }
  return out + "…";
}
// Of a path the end says most.
std::string cut_left(std::string_view s, size_t width) {
  if (columns(s) <= width) return std::string(s);
  while (!s.empty() && columns(s) + 1 > width) s.remove_prefix(length_at(s));
  return "…" + std::string(s);
}

std::string padded(const std::string& s, size_t width) {
  return s + std::string(width - std::min(width, columns(s)), ' ');
}
std::string padded_left(const std::string& s, size_t width) {
  return std::string(width - std::min(width, columns(s)), ' ') + s;
}

class Writer {
 public:
  Writer(bool color, int width) : color_(color), width_(static_cast<size_t>(std::clamp(width, 40, 400))) {}

  size_t width() const { return width_; }
  std::string bold(const std::string& s) const { return styled("1", s); }
  std::string styled(const char* code, const std::string& s) const {
    return color_ && !s.empty() ? fmt::format("\033[{}m{}\033[0m", code, s) : s;
  }
  void line(const std::string& s = "") { out_ += s + "\n"; }
  void heading(const std::string& title, const std::string& note = "") {
    line();
    size_t room = width_ - std::min(width_, columns(title) + 2);
    line(bold(title) + (note.empty() || room < 12 ? "" : "  " + cut(note, room)));
  }
  // Wrapped at spaces, at most `most` lines; those after the first are indented by `indent`.
  void wrapped(const std::string& first, const std::string& words, size_t indent, size_t most = 3,
               const char* code = nullptr) {
    size_t room = width_ - indent;
    std::vector<std::string> lines(1);
    for (size_t at = 0; at < words.size();) {
      size_t end = std::min(words.find(' ', at), words.size());
      std::string word = cut(words.substr(at, end - at), room);
      at = end + 1;
      if (word.empty()) continue;
      if (!lines.back().empty() && columns(lines.back()) + 1 + columns(word) > room) {
        if (lines.size() == most) {
          lines.back() = cut(lines.back(), room - 2) + " …";
          break;
        }
        lines.emplace_back();
      }
      lines.back() += (lines.back().empty() ? "" : " ") + word;
    }
    for (size_t i = 0; i < lines.size(); ++i)
      line((i ? std::string(indent, ' ') : padded(first, indent)) + (code ? styled(code, lines[i]) : lines[i]));
  }
  std::string take() { return std::move(out_); }

 private:
  bool color_;
  size_t width_;
  std::string out_;
};

struct TextColumn {
  const char* title;
  std::function<std::string(const Json& row)> cell;
  bool numeric = true;
};

void write_table(Writer& w, const Json& rows, const std::vector<TextColumn>& wanted, size_t most = kMaxTableRows) {
  size_t count = std::min(rows.size(), most), total = 2;
  std::vector<std::vector<std::string>> cells(wanted.size());
  std::vector<size_t> widths;
  for (size_t c = 0; c < wanted.size(); ++c) {
    widths.push_back(columns(wanted[c].title));
    for (size_t r = 0; r < count; ++r) {
      cells[c].push_back(wanted[c].cell(rows[r]));
      widths[c] = std::max(widths[c], columns(cells[c].back()));
    }
    total += widths[c] + 2;
  }
  auto shrink = [&](size_t column, size_t least) {  // a column of words gives way to figures
    size_t over = total - std::min(total, w.width() + 2), spare = widths[column] - std::min(widths[column], least);
    widths[column] -= std::min(over, spare);
    total -= std::min(over, spare);
  };
  if (!wanted.back().numeric) shrink(wanted.size() - 1, 12);
  shrink(0, 8);
  auto row = [&](auto text_of) {
    std::string out = " ";
    for (size_t c = 0; c < wanted.size(); ++c) {
      std::string cell = cut(text_of(c), widths[c]);
      out += (c ? "  " : " ") + (wanted[c].numeric ? padded_left(cell, widths[c]) : padded(cell, widths[c]));
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return cut(out, w.width());
  };
  w.line(w.styled("2", row([&](size_t c) { return std::string(wanted[c].title); })));
  for (size_t r = 0; r < count; ++r) w.line(row([&](size_t c) { return cells[c][r]; }));
  if (rows.size() > count) w.line(fmt::format("  and {} more", rows.size() - count));
}

void write_head(Writer& w, const Json& report) {
  std::string name = text(field(field(report, "workload"), "name")), line = workload_line(report);
  std::string machine = machine_line(report);
  w.line(w.bold(cut(name.empty() ? "deft doctor" : "deft doctor: " + name, w.width())));
  std::string second = line + (line.empty() || machine.empty() ? "" : " · ") + machine;
  if (!second.empty()) w.line(cut(second, w.width()));
  const std::string baseline = text(field(field(report, "workload"), "baseline"));
  if (!baseline.empty()) w.wrapped("", "Gains are over " + baseline + ".", 0, 2);
  const Json& bottleneck = field(report, "bottleneck");
  std::string kind = capitalised(text(field(bottleneck, "class"))), sentence = text(field(bottleneck, "sentence"));
  w.line();
  if (!kind.empty()) w.line(w.styled("1;36", cut(kind, w.width())));
  w.wrapped("", sentence.empty() ? "What limits this workload was not measured." : sentence, 0, 4, "1");
}

std::string blocks(double share, size_t width) {
  constexpr std::array parts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  auto eighths = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * 8 * static_cast<double>(width) + 0.5);
  std::string out;
  for (size_t i = 0; i < eighths / 8; ++i) out += "█";
  return out + parts[eighths % 8];
}

void write_breakdown(Writer& w, const Json& report) {
  const Json& profile = field(report, "profile");
  const Json& buckets = list(profile, "buckets");
  if (buckets.empty()) return;
  std::string note = seconds(number(field(profile, "wall_s")));
  if (number(field(profile, "overhead_percent")))
    note += fmt::format(", of which the profiler took {}", percent(field(profile, "overhead_percent")));
  w.heading("Where the time goes", note);
  double most = 0;
  size_t names = 0, shown = 0;
  for (const Json& b : buckets) {
    most = std::max(most, number(field(b, "percent")).value_or(0));
    names = std::max(names, columns(text(field(b, "name"))));
  }
  names = std::min(names, w.width() / 3);
  for (const Json& b : buckets) {
    double part = number(field(b, "percent")).value_or(0);
    if (part < 0.05 || ++shown > 12) continue;
    std::string left =
        fmt::format("  {}  {}  {}", padded(cut(text(field(b, "name")), names), names),
                    padded_left(seconds(number(field(b, "s"))), 8), padded_left(percent(field(b, "percent")), 7));
    size_t room = w.width() - std::min(w.width(), columns(left) + 2);
    std::string bar = blocks(most > 0 ? part / most : 0, std::min<size_t>(room, 48));
    w.line(cut(left, w.width()) + (bar.empty() ? "" : "  " + w.styled("36", bar)));
  }
}

void write_findings(Writer& w, const Json& report) {
  if (!field(report, "findings").is_array()) return;
  const Json& findings = list(report, "findings");
  w.heading(fmt::format("Findings: {}", findings.empty() ? "none" : std::to_string(findings.size())));
  size_t shown = 0;
  for (const Json& finding : findings) {
    if (shown++ == kMaxFindings) break;
    std::string severity = text(field(finding, "severity")), id = text(field(finding, "id"));
    std::string place = place_of(finding), often;
    if (number(field(finding, "count")).value_or(1) > 1) often = "  " + figure(field(finding, "count")) + " times";
    std::string head = cut(severity + " " + id, 24);
    size_t room = w.width() - std::min(w.width(), 4 + columns(head) + columns(often));
    w.line("  " + w.styled(severity == "error" ? "1;31" : "1;33", head) + (place.empty() ? "" : "  ") +
           cut_left(place, room) + often);
    w.wrapped("", "    " + text(field(finding, "message")), 4, 2);
    std::string fix = text(field(finding, "fix"));
    if (!fix.empty()) w.wrapped("    fix:", fix, 9, 2);
  }
  if (findings.size() > kMaxFindings)
    w.line(
        cut(fmt::format("  and {} more; deft explain ID tells about each", findings.size() - kMaxFindings), w.width()));
}

std::string verdict_of(const Json& trial) {
  const Json& kept = field(trial, "kept");
  return !kept.is_boolean() ? "not tried" : kept.get<bool>() ? "kept" : "not kept";
}
std::string speedup_of(const Json& trial) {
  const Json &low = field(trial, "speedup_low"), &high = field(trial, "speedup_high");
  std::string interval =
      number(low) && number(high) ? fmt::format(" ({:.2f} to {:.2f})", *number(low), *number(high)) : "";
  return times(field(trial, "speedup")) + interval;
}
std::string before_and_after(const Json& before, const Json& after) {
  return number(before) && number(after) ? figure(before) + " → " + figure(after) : "–";
}

void write_trials(Writer& w, const Json& report) {
  Json trials = list(report, "trials");
  if (!trials.empty()) {
    auto kept = [](const Json& trial) { return verdict_of(trial) == "kept"; };
    if (trials.size() > kMaxTrials) std::stable_partition(trials.begin(), trials.end(), kept);
    std::vector<TextColumn> wanted = {
        {"technique", [](const Json& t) { return cut(text(field(t, "technique")), 30); }, false},
        {"verdict", verdict_of, false},
        {"speed-up", speedup_of, false},
        {"ms", [](const Json& t) { return before_and_after(field(t, "before_ms"), field(t, "after_ms")); }},
        {"own peak MB",
         [](const Json& t) { return before_and_after(field(t, "peak_mb_before"), field(t, "peak_mb_after")); }},
        {"why", [](const Json& t) { return text(field(t, "reason")); }, false}};
    if (w.width() < 110) wanted.erase(wanted.begin() + 4);  // the reason says more than the memory
    w.heading("Trials", "each against the best so far, interleaved; speed-up with its interval");
    write_table(w, trials, wanted, kMaxTrials);
  }
  const Json& steps = list(report, "waterfall");
  if (steps.size() < 2 || !number(field(steps.back(), "speedup"))) return;
  w.line("  " +
         w.styled("1;32",
                  cut(fmt::format("Together: {} → {} samples per s, {}", figure(field(steps.front(), "samples_per_s")),
                                  figure(field(steps.back(), "samples_per_s")), times(field(steps.back(), "speedup"))),
                      w.width() - 2)));
}

void write_next(Writer& w, const Json& report) {
  Json items = by_gain(list(report, "next"));
  if (items.empty()) return;
  w.heading("What to do next, by gain");
  for (size_t i = 0; i < std::min(items.size(), kMaxNext); ++i) {
    std::string gain = number(field(items[i], "gain")) ? " (" + times(field(items[i], "gain")) + ")" : "";
    w.wrapped(fmt::format("  {}.", i + 1), text(field(items[i], "what")) + gain, 5, 2);
    std::string how = text(field(items[i], "how"));
    bool same_follows = i + 1 < std::min(items.size(), kMaxNext) && how == text(field(items[i + 1], "how"));
    if (!how.empty() && !same_follows) w.line("     " + w.styled("36", how));  // whole: it is to be typed
  }
}

void write_tables(Writer& w, const Json& report) {
  auto value = [](const char* key) { return [key](const Json& row) { return figure(field(row, key)); }; };
  auto word = [](const char* key) { return [key](const Json& row) { return text(field(row, key)); }; };
  const Json& tables = field(report, "tables");
  if (const Json& modes = list(tables, "modes"); !modes.empty()) {
    w.heading("Grad modes", "measured on this machine");
    write_table(w, modes,
                {{"mode", word("mode"), false},
                 {"epoch s", value("epoch_s")},
                 {"peak MB", value("peak_mb")},
                 {"speed-up", [](const Json& row) { return times(field(row, "speedup")); }}});
  }
  if (const Json& families = list(tables, "families"); !families.empty()) {
    w.heading("Model families", "measured on this machine");
    write_table(w, families,
                {{"model", word("model"), false},
                 {"batch", value("batch")},
                 {"peak MB", value("peak_mb")},
                 {"ms per batch", value("ms_per_batch")},
                 {"samples per s", value("samples_per_s")}});
  }
}

void write_measures(Writer& w, const Json& report) {
  std::vector<std::pair<std::string, std::string>> lines;
  const Json& memory = field(report, "memory");
  const Json& saved = field(field(memory, "peak_by_category_mb"), "saved for backward");
  if (number(field(memory, "peak_mb")))
    lines.emplace_back("memory", "peak " + with_unit(field(memory, "peak_mb"), "MB") + " with all data" +
                                     (number(saved) ? ", " + figure(saved) + " of it saved for backward" : ""));
  const Json& device = field(memory, "device");
  if (number(field(device, "peak_mb")))
    lines.emplace_back("device", "peak " + with_unit(field(device, "peak_mb"), "MB"));
  std::string latency, spread = text(field(field(report, "latency"), "verdict"));
  for (const Json& column : list(field(report, "latency"), "columns"))
    if (text(field(column, "name")) == "warm")
      latency = fmt::format("warm p50 {}, p99 {}, p99.9 {} ms", figure(field(column, "p50_ms")),
                            figure(field(column, "p99_ms")), figure(field(column, "p999_ms")));
  if (!latency.empty()) lines.emplace_back("latency", latency + (spread.empty() ? "" : ", " + spread));
  if (std::string energy = energy_line(report); !energy.empty()) lines.emplace_back("energy", energy);
  for (const auto& [name, path] : field(report, "written").items())
    if (path.is_string()) lines.emplace_back(text(Json(name)), text(path));
  if (!lines.empty()) w.line();
  for (const auto& [name, line] : lines)
    w.line(w.styled("2", padded(cut(name, 8), 8)) + " " + cut(line, w.width() - 9));
}

}  // namespace

std::string report_text(const nlohmann::ordered_json& report, bool color, int width) {
  Json data = readable(report);
  Writer w(color, width);
  write_head(w, data);
  write_breakdown(w, data);
  write_findings(w, data);
  write_trials(w, data);
  write_next(w, data);
  write_tables(w, data);
  write_measures(w, data);
  return w.take();
}

}  // namespace deft::doctor
