// deft doctor SCRIPT.py: PyTorch scripts are examined by the Python package, under the user's own Python.
#pragma once

#include <string>
#include <vector>

namespace deft::cli {

// Whether the arguments, without the program's name, ask to examine a script: `doctor ... SCRIPT.py ...`.
bool is_doctor_of_script(const std::vector<std::string>& arguments);

// Becomes that Python. Returns only if it cannot: throws UnsupportedError.
[[noreturn]] void run_doctor_of_script(const std::vector<std::string>& arguments);

}  // namespace deft::cli
