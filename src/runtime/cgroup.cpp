#include "runtime/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "runtime/text_file.h"

namespace deft {

namespace {

bool list_has(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    size_t comma = list.find(',');
    if (list.substr(0, comma) == item) return true;
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
  }
  return false;
}

struct Mount {
  std::string top, point;  // which group is mounted, and where
  bool v2 = false;
};
// Blanks in mount paths are written \040.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char *first = text.data() + i + 1, *last = text.data() + std::min(i + 4, text.size());
    if (text[i] == '\\' && std::from_chars(first, last, code, 8).ec == std::errc()) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}
// Lines of mountinfo: id parent dev top point options... - type source super_options
std::vector<Mount> mounts_of(std::string_view controller, const std::string& root) {
  std::vector<Mount> mounts;
  std::istringstream in(read_text(root + "/proc/self/mountinfo"));
  for (std::string line; std::getline(in, line);) {
    size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::string skip, top, point, type, super;
    std::istringstream(line) >> skip >> skip >> skip >> top >> point;
    std::istringstream(line.substr(dash + 3)) >> type >> skip >> super;
    bool v2 = type == "cgroup2";
    if (v2 || (type == "cgroup" && list_has(super, controller))) mounts.push_back({unescape(top), unescape(point), v2});
  }
  return mounts;
}
// Lines of /proc/self/cgroup: id:controllers:path, where v2 has no controllers.
std::string own_group(bool v2, std::string_view controller, const std::string& root) {
  std::istringstream in(read_text(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(in, line);) {
    size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == line.npos || b == line.npos) continue;
    std::string_view controllers = std::string_view(line).substr(a + 1, b - a - 1);
    if (v2 ? controllers.empty() : list_has(controllers, controller)) return line.substr(b + 1);
  }
  return "/";
}

// The folders of the groups this process is in, outermost first.
std::vector<std::string> folders_of(const Mount& mount, std::string_view controller, const std::string& root) {
  std::string path = own_group(mount.v2, controller, root);
  // A mount that shows only part of the tree shows the part this process is in.
  if (mount.top != "/") {
    bool below = path.starts_with(mount.top) && (path.size() == mount.top.size() || path[mount.top.size()] == '/');
    path = below ? path.substr(mount.top.size()) : "";
  }
  if (path.find("/..") != path.npos) path.clear();  // outside of this namespace
  std::vector<std::string> folders{root + mount.point};
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '/');) {
    if (!part.empty()) folders.push_back(folders.back() + "/" + part);
  }
  return folders;
}

// The smallest of what `limit_of(folder, v2)` gives; 0 = no limit.
template <class LimitOf>
auto tightest(std::string_view controller, const std::string& root, const LimitOf& limit_of) {
  decltype(limit_of("", true)) least = 0;
  for (const Mount& mount : mounts_of(controller, root)) {
    for (const std::string& folder : folders_of(mount, controller, root)) {
      const auto limit = limit_of(folder, mount.v2);
      if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
    }
  }
  return least;
}

}  // namespace

double cgroup_cpu_quota(const std::string& root) {
  return tightest("cpu", root, [](const std::string& folder, bool v2) {
    std::istringstream in(v2 ? read_text(folder + "/cpu.max")
                             : read_text(folder + "/cpu.cfs_quota_us") + " " +
                                   read_text(folder + "/cpu.cfs_period_us"));
    double quota = 0, period = 0;  // "max" and -1 both mean none
    return in >> quota >> period && quota > 0 && period > 0 ? quota / period : 0.0;
  });
}

int64_t cgroup_memory_limit(const std::string& root) {
  return tightest("memory", root, [](const std::string& folder, bool v2) {
    constexpr int64_t kNoLimit = int64_t{1} << 60;  // v1 says "none" by the largest multiple of a page
    std::istringstream in(read_text(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")));
    int64_t bytes = 0;  // "max" is no number
    return in >> bytes && bytes < kNoLimit ? bytes : int64_t{0};
  });
}

}  // namespace deft
