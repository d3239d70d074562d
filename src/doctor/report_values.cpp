#include "doctor/report_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace deft::doctor {

namespace {

// Control characters would reach the terminal, marks of writing direction would reorder what stands around them.
bool unwanted(std::string_view rest, size_t* length) {
  auto byte = [&](size_t i) { return i < rest.size() ? static_cast<unsigned char>(rest[i]) : 0u; };
  *length = byte(0) == 0xc2 ? 2 : byte(0) == 0xe2 ? 3 : 1;
  if (*length == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (*length == 2) return byte(1) < 0xa0;
  bool direction = byte(1) == 0x80 && ((byte(2) >= 0xa8 && byte(2) <= 0xae) || byte(2) == 0x8e || byte(2) == 0x8f);
  return direction || (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
}

std::string printable(std::string_view raw) {
  std::string out;
  out.reserve(raw.size());
  while (!raw.empty()) {
    size_t length = 1;
    if (unwanted(raw, &length)) {
      out += ' ';
    } else {
      out += raw.substr(0, length);
    }
    raw.remove_prefix(std::min(length, raw.size()));
  }
  return out;
}

std::string with_commas(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts)
    if (!part.empty()) out += (out.empty() ? "" : std::string(between)) + part;
  return out;
}

}  // namespace

Json readable(const Json& report) {
  return Json::parse(report.dump(-1, ' ', false, Json::error_handler_t::replace), nullptr, false);
}

const Json& field(const Json& object, std::string_view key) {
  static const Json& missing = *new Json;
  if (!object.is_object()) return missing;
  auto found = object.find(std::string(key));
  return found == object.end() ? missing : *found;
}

const Json& list(const Json& object, std::string_view key) {
  static const Json& empty = *new Json(Json::array());
  const Json& found = field(object, key);
  return found.is_array() ? found : empty;
}

std::optional<double> number(const Json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

std::string text(const Json& value) {
  if (value.is_string()) return printable(value.get_ref<const std::string&>());
  if (value.is_null()) return "";
  return value.is_number() ? figure(value) : printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string figure(double value) {
  double size = std::abs(value);
  if (!std::isfinite(value)) return "–";
  if (size == 0) return "0";
  if (size >= 1e9 || size < 1e-4) return fmt::format("{:.3g}", value);
  if (size >= 999.5) return with_commas(value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  return size >= 0.9995 ? fmt::format("{:.2f}", value) : fmt::format("{:.3g}", value);
}

std::string figure(const Json& value) {
  std::optional<double> v = number(value);
  if (!v) return "–";
  return value.is_number_integer() && std::abs(*v) < 1e9 ? with_commas(*v) : figure(*v);
}

std::string percent(const Json& value) {
  std::optional<double> v = number(value);
  if (!v) return "–";
  if (*v > 0 && *v < 0.05) return "<0.1 %";
  return std::abs(*v) < 1000 ? fmt::format("{:.1f} %", *v) : figure(*v) + " %";
}

std::string times(const Json& value) {
  std::optional<double> v = number(value);
  return v ? (std::abs(*v) < 100 ? fmt::format("{:.2f}", *v) : figure(*v)) + "x" : "–";
}

std::string seconds(std::optional<double> s) {
  if (!s) return "–";
  double size = std::abs(*s);
  if (size >= 1 || size == 0) return figure(*s) + " s";
  return size >= 1e-3 ? figure(*s * 1e3) + " ms" : figure(*s * 1e6) + " µs";
}

std::string with_unit(const Json& value, std::string_view unit) {
  return number(value) ? fmt::format("{} {}", figure(value), unit) : "–";
}

std::string capitalised(std::string sentence) {
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] = static_cast<char>(sentence[0] - 32);
  return sentence;
}

std::string place_of(const Json& finding) {
  std::string file = text(field(finding, "file"));
  std::optional<double> line = number(field(finding, "line"));
  return file.empty() || !line || *line < 1 ? file : fmt::format("{}:{:.0f}", file, *line);
}

std::string workload_line(const Json& report) {
  const Json& workload = field(report, "workload");
  auto word = [&](const char* key) { return text(field(workload, key)); };
  std::string batch = word("batch");
  return joined({word("task"), word("model"), word("data"), batch.empty() ? "" : "batch " + batch, word("device")},
                " · ");
}

std::string machine_line(const Json& report) {
  const Json& machine = field(report, "machine");
  std::optional<double> threads = number(field(machine, "threads"));
  std::string count = threads ? fmt::format("{:.0f} thread{}", *threads, *threads == 1 ? "" : "s") : "";
  const Json& gpu = field(machine, "gpu");
  return joined({text(field(machine, "cpu")), count, text(gpu.is_object() ? field(gpu, "name") : gpu)}, ", ");
}

std::string energy_line(const Json& report) {
  const Json& energy = field(report, "energy");
  if (!energy.is_object()) return "";
  const Json& joules = field(energy, "joules_per_sample");
  std::string reason = text(field(energy, "reason")), method = text(field(energy, "method"));
  if (!number(joules)) return reason.empty() ? "unavailable" : "unavailable: " + reason;
  std::string hz = number(field(energy, "sampling_hz")) ? ", " + figure(field(energy, "sampling_hz")) + " Hz" : "";
  return figure(joules) + " J per sample" + (method.empty() ? "" : " (" + method + hz + ")");
}

Json by_gain(const Json& next) {
  std::vector<Json> items(next.begin(), next.end());
  auto runs = [](const Json& item) { return field(item, "run") == true; };
  auto gain = [](const Json& item) { return number(field(item, "gain")).value_or(0); };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Json& a, const Json& b) { return runs(a) != runs(b) ? runs(a) : gain(a) > gain(b); });
  return Json(items);
}

}  // namespace deft::doctor
