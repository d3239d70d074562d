// Reads a report without trust: parts may be missing, null or of another type, strings may hold any bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace deft::doctor {

using Json = nlohmann::ordered_json;

// The report in valid UTF-8, with null in place of NaN and infinities.
Json readable(const Json& report);

const Json& field(const Json& object, std::string_view key);  // null where there is none
const Json& list(const Json& object, std::string_view key);   // an empty array where there is none
std::optional<double> number(const Json& value);              // none: missing, null or no number
std::string text(const Json& value);                          // without control characters; "" where it is missing

// For people, three or four digits: "1,234", "12.3", "0.0123", "1.2e+12"; "–" where it is missing.
std::string figure(double value);
std::string figure(const Json& value);
std::string percent(const Json& value);                           // "12.3 %"
std::string times(const Json& value);                             // "2.70x"
std::string seconds(std::optional<double> s);                     // "2.00 s", "812 ms", "3.10 µs"
std::string with_unit(const Json& value, std::string_view unit);  // "12.3 MB"

std::string capitalised(std::string sentence);
std::string place_of(const Json& finding);      // "eval.cpp:31", "" where no line is to blame
std::string workload_line(const Json& report);  // "infer · cnn · fashion · batch 1 · cpu"
std::string machine_line(const Json& report);   // "Neoverse-V1, 2 threads"
std::string energy_line(const Json& report);    // "0.31 J per sample (RAPL)", "unavailable: why"; "" if not requested
Json by_gain(const Json& next);                 // commands first, then the largest gain

}  // namespace deft::doctor
