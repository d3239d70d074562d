// Where the checkout lies, for fixtures. One object file holds the path, so that the rest compiles the same in every
// checkout.
#pragma once

#include <string>

namespace deft::test {

const std::string& source_dir();

}  // namespace deft::test
