#include "base/site.h"

#include <string_view>

namespace deft {

std::string to_string(const Site& site) {
  std::string_view file = site.file_name();
  if (file.empty()) return "an unknown place";
  if (auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(site.line());
}

}  // namespace deft
