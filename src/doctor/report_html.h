// The report of `deft doctor` as one page that needs nothing else: no network, no other file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace deft::doctor {

// Any part of the report may be missing or null: its section is left out, or says why. Any strings will do, also such
// that are no UTF-8. Without JavaScript everything but the three charts can be read.
std::string report_html(const nlohmann::ordered_json& report);

}  // namespace deft::doctor
