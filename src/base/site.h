// Where in the user's program something happened. One pointer; free to pass along.
#pragma once

#include <source_location>
#include <string>

namespace deft {

using Site = std::source_location;

// "train.cpp:88", or "an unknown place" for a default-constructed site.
std::string to_string(const Site& site);

}  // namespace deft
