// The table of all rules.
#pragma once

#include <span>
#include <string_view>

#include "doctor/rule.h"

namespace deft::doctor {

std::span<const RuleInfo> all_rules();
const RuleInfo* find_rule(std::string_view id);  // "D003" or "graph-kept-across-steps"; null: there is none

}  // namespace deft::doctor
