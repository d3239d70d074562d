#include "source_dir.h"

namespace deft::test {

const std::string& source_dir() {
  static const std::string path = DEFT_SOURCE_DIR;
  return path;
}

}  // namespace deft::test
