// Rules of gradients that have a file of their own.
#pragma once

#include <memory>
#include <string>

#include "doctor/rule.h"

namespace deft::doctor {

std::unique_ptr<Rule> make_kept_graph_rule();       // D003
std::unique_ptr<Rule> make_unused_graph_rule();     // D004
std::unique_ptr<Rule> make_outside_no_grad_rule();  // D006
std::unique_ptr<Rule> make_not_finite_rule();       // D021

std::string megabytes(double bytes);  // "1.5 MB"

}  // namespace deft::doctor
