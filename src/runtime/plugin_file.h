// Looks at the file of a plug-in before it is loaded: the loader of the system crashes on files that were cut off, and
// would load a second copy of the library for a plug-in of another version.
#pragma once

#include <cstdint>
#include <string>

namespace deft {

// The version, and a hash of the headers that library and plug-in share; the type of the build, too.
const char* build_identity();

// A note in the ELF file of a plug-in (man elf, "Notes").
struct IdentityNote {
  static constexpr uint32_t kType = 1;
  static constexpr char kName[] = "Deft";
  uint32_t name_bytes = sizeof kName, identity_bytes = sizeof identity, type = kType;
  char name[8] = "Deft";
  char identity[64];
};

// Half a sentence that says why the file cannot be this library's plug-in; "" if it can.
std::string what_is_wrong_with_plugin(const std::string& path);

}  // namespace deft
