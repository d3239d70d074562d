// The machine and the build, as every benchmark reports them.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace deft::bench {

using Json = nlohmann::ordered_json;  // keys stay in the order they are written

struct BuildInfo {
  const char* version;
  const char* commit;      // "unknown" outside of a git checkout
  const char* build_type;  // "Release"
  const char* compiler;    // "GNU 12.2.0"
  const char* flags;
};
BuildInfo build_info();

Json machine_json();

}  // namespace deft::bench
