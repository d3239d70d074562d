// For tests of rules: runs a piece of a program under a linter.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/observer.h"
#include "doctor/linter.h"

namespace deft::test {

struct Lint {
  std::vector<Finding> all;
  // Those of one rule.
  std::vector<Finding> of(const std::string& id) const {
    std::vector<Finding> some;
    std::ranges::copy_if(all, std::back_inserter(some), [&](const Finding& f) { return f.id == id; });
    return some;
  }
  std::string text() const {
    std::string lines;
    for (const Finding& f : all) lines += f.to_string() + "\n";
    return lines;
  }
};

// What the linter finds in `program`. Exceptions of the program end it and are findings' business, not the test's.
template <class F>
Lint lint(F&& program, doctor::LinterOptions options = {}) {
  doctor::Linter linter(std::move(options));
  set_observer(&linter);
  {
    ProfileScope watched("lint");
    try {
      program();
    } catch (const Error&) {
    }
  }
  set_observer(nullptr);
  return {linter.findings()};
}

inline std::string file_of(const Finding& f) { return f.file.substr(f.file.find_last_of('/') + 1); }

// Exactly one finding of `id`, at `line` of this file.
#define EXPECT_FINDING(result, id, at_line)                                             \
  do {                                                                                  \
    const auto found_ = (result).of(id);                                                \
    ASSERT_EQ(found_.size(), 1u) << "findings:\n" << (result).text();                   \
    EXPECT_EQ(found_[0].line, static_cast<uint32_t>(at_line)) << found_[0].to_string(); \
    EXPECT_EQ(found_[0].file, __FILE__);                                                \
  } while (false)
#define EXPECT_SILENT(result) EXPECT_TRUE((result).all.empty()) << (result).text()

}  // namespace deft::test
