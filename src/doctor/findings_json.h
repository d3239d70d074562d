// Findings as a part of the report.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "doctor/finding.h"

namespace deft::doctor {

using Json = nlohmann::ordered_json;

Json findings_json(const std::vector<Finding>& findings);

}  // namespace deft::doctor
