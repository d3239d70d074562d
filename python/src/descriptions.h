// One sentence on each bound function.
#pragma once

#include <string>

namespace deft::python {

// What help() says of a function of this name; empty if nothing is known.
std::string description_of(const std::string& name);

}  // namespace deft::python
