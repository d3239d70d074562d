// Findings in the form that code hosts and editors show beside the lines: SARIF 2.1.0.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"

namespace deft::doctor {

std::string sarif(const std::vector<Finding>& findings);

}  // namespace deft::doctor
