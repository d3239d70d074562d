#include "data/dataset.h"

namespace deft::data {

std::string Dataset::describe(int64_t) const { return {}; }

int64_t RecordStream::skip(int64_t count) {
  Record record;
  int64_t skipped = 0;
  while (skipped < count && next(record)) ++skipped;
  return skipped;
}

}  // namespace deft::data
