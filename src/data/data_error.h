// What went wrong with a sample, and where.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "base/error.h"

namespace deft::data {

struct DataError : Error {
  DataError(int64_t index_, std::string file_, int worker_, std::string found_, std::exception_ptr cause_ = nullptr);
  int64_t index;             // of the sample; -1: no sample, the worker itself
  std::string file;          // Dataset::describe(), the name of the record, or empty
  int worker;                // 0 where the loader has none
  std::string found;         // the original message
  std::exception_ptr cause;  // what was thrown; null after a timeout
};

// what() of what was thrown, whatever it is.
std::string message_of(const std::exception_ptr& error);

}  // namespace deft::data
