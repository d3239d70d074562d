// Files as reports name them: compilers write down whole paths, people and viewers want them from where they are.
#pragma once

#include <string>
#include <string_view>

namespace deft::doctor {

// From the folder the program runs in if it lies below that, else from the root of its sources; as it is given where
// neither holds, and where it is relative already.
std::string shown_path(const std::string& file);

// The same for viewers, which know the root of the sources better than where a program ran: `base` is the folder that
// `path` begins at, "" where that is not known.
struct RelativePath {
  std::string base, path;
};
RelativePath path_in_sources(const std::string& file);

// The folder above `file` that has a .git, or else the highest that has a CMakeLists.txt; "" where there is none.
std::string source_root(const std::string& file);

// What the compiler was given for Deft's sources: "/home/me/deft/src/".
std::string_view library_root();
// Of the library: nothing that its user could change.
bool is_library_file(const char* file);
// Of the library or of the program `deft`.
bool is_deft_file(const char* file);

}  // namespace deft::doctor
