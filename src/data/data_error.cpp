#include "data/data_error.h"

#include <fmt/format.h>

namespace deft::data {

namespace {

std::string text_of(int64_t index, const std::string& file, int worker, const std::string& found) {
  if (index < 0) return fmt::format("data loader: worker {}: {}", worker, found);
  if (file.empty()) return fmt::format("data loader: sample {}, worker {}: {}", index, worker, found);
  return fmt::format("data loader: sample {} ({}), worker {}: {}", index, file, worker, found);
}

}  // namespace

DataError::DataError(int64_t index_, std::string file_, int worker_, std::string found_, std::exception_ptr cause_)
    : Error(text_of(index_, file_, worker_, found_)),
      index(index_),
      file(std::move(file_)),
      worker(worker_),
      found(std::move(found_)),
      cause(std::move(cause_)) {}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception was thrown";
  }
}

}  // namespace deft::data
