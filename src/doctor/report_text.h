// The report of `deft doctor` for a terminal: what matters, on two screens at most.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace deft::doctor {

// Lines of at most `width` columns. What is missing in the report is left out. Files that were written are named in
// report["written"]: {"plan": path, "page": path, ...}.
std::string report_text(const nlohmann::ordered_json& report, bool color, int width = 100);

}  // namespace deft::doctor
