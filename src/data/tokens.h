// Windows of tokens from flat binary files, as trainers of language models use them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace deft::data {

class MappedFile;

struct TokenOptions {
  int64_t length = 1024;  // of inputs and of targets: a window has one token more
  // From one window to the next; 0: length. A rest that is too short for a window is left out.
  int64_t stride = 0;
  // Instead of all windows: this many from random places, different in every epoch.
  int64_t random_windows = 0;
  int token_bytes = 2;       // u16; 4: u32. Little-endian
  int64_t header_bytes = 0;  // before the tokens of each file
  int64_t vocabulary = 0;    // LoadError for a token that is not below it; 0: not checked
  DType dtype = DType::i64;  // of the fields; or i32
};

// Fields "inputs" and "targets" [length]: targets are one token ahead. The files are mapped, and no window reaches from
// one to the next.
class TokenWindows final : public Dataset {
 public:
  TokenWindows(const std::vector<std::string>& paths, const TokenOptions& options);
  ~TokenWindows() override;

  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  // LoadError if the file was changed or shortened since it was opened.
  void get(int64_t index, SampleWriter& out) const override;
  std::string describe(int64_t index) const override;
  int64_t tokens() const;  // in all files

 private:
  struct Place {
    const MappedFile* file;
    int64_t token;
  };
  int64_t tokens_in(const MappedFile& file) const;
  Place place(int64_t window) const;
  template <class Token, class Out>
  void copy(const Place& place, SampleWriter& out) const;

  TokenOptions options_;
  int64_t step_ = 1, size_ = 0, windows_ = 0;
  std::vector<Field> fields_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<int64_t> first_;  // window of each file, at distances of step_
};

}  // namespace deft::data
