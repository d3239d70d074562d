// The rule of waiting for data, with a clock of the caller's.
#pragma once

#include <functional>
#include <memory>

#include "doctor/rule.h"

namespace deft::doctor {

// D020. `seconds` is the time since some moment.
std::unique_ptr<Rule> make_data_bound_rule(std::function<double()> seconds);

}  // namespace deft::doctor
