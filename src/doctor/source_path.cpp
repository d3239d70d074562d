#include "doctor/source_path.h"

#include <filesystem>
#include <string_view>

namespace deft::doctor {

namespace {

namespace fs = std::filesystem;

// "" where it does not lie below the folder.
std::string below(const fs::path& folder, const fs::path& file) {
  if (folder.empty() || folder == folder.root_path()) return "";
  const fs::path rest = file.lexically_normal().lexically_relative(folder.lexically_normal());
  return rest.empty() || *rest.begin() == ".." || rest == "." ? "" : rest.string();
}

fs::path working_folder() {
  std::error_code none;
  return fs::current_path(none);
}

}  // namespace

std::string_view library_root() {
  constexpr std::string_view here = __FILE__, name = "doctor/source_path.cpp";
  static_assert(here.ends_with(name));
  return here.substr(0, here.size() - name.size());
}

std::string source_root(const std::string& file) {
  std::error_code none;
  const fs::path path(file);
  if (!path.is_absolute() || !fs::is_regular_file(path, none)) return "";
  std::string highest;
  for (fs::path folder = path.parent_path(); folder != folder.root_path(); folder = folder.parent_path()) {
    if (fs::exists(folder / ".git", none)) return folder.string();
    if (fs::exists(folder / "CMakeLists.txt", none)) highest = folder.string();
  }
  return highest;
}

std::string shown_path(const std::string& file) {
  if (!fs::path(file).is_absolute()) return file;
  if (std::string rest = below(working_folder(), file); !rest.empty()) return rest;
  if (std::string rest = below(source_root(file), file); !rest.empty()) return rest;
  return file;
}

RelativePath path_in_sources(const std::string& file) {
  std::error_code none;
  const fs::path here = working_folder();
  if (!fs::path(file).is_absolute()) return {fs::exists(here / file, none) ? here.string() : "", file};
  for (const std::string& folder : {source_root(file), here.string()})
    if (std::string rest = below(folder, file); !rest.empty()) return {folder, rest};
  return {"", file};
}

bool is_library_file(const char* file) {
  const std::string_view path(file);
  return path.starts_with(library_root()) || path.find("/include/deft/") != path.npos;
}

bool is_deft_file(const char* file) {
  const std::string_view root = library_root();
  const std::string program = std::string(root.substr(0, root.size() - std::string_view("src/").size())) + "apps/deft/";
  return is_library_file(file) || std::string_view(file).starts_with(program);
}

}  // namespace deft::doctor
