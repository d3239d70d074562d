#include "write_file.h"

#include "io/atomic_file.h"

namespace deft::cli {

void write_file(const std::string& path, const std::string& text) {
  io::AtomicFile file(path, text.size());
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace deft::cli
