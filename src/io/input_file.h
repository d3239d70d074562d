// A file, or bytes in memory, to read from at any offset. Reads are checked against the size found at the start.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "io/load_options.h"
#include "io/source.h"

namespace deft::io {

class InputFile {
 public:
  // LoadError unless it is a regular file that can be read, is not empty and has the hash of the options.
  InputFile(const std::string& path, const char* format, const LoadOptions& options = {});
  // The bytes must outlive the object and, with options.mmap, the tensors.
  InputFile(std::span<const std::byte> bytes, std::string name, const char* format, const LoadOptions& options = {});
  ~InputFile();
  InputFile(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  const Source& source() const { return source_; }
  const LoadOptions& options() const { return options_; }
  const LoadLimits& limits() const { return options_.limits; }

  // LoadError naming `field` if that is not in the file, or the file became shorter. Safe to call from several threads.
  void read(uint64_t offset, void* to, uint64_t bytes, Field field) const;
  std::vector<std::byte> read(uint64_t offset, uint64_t bytes, Field field) const;
  // Called after the last read: LoadError if the file is not the one that was opened any more.
  void check_unchanged() const;

  // Elements that lie one after the other from `offset`; the caller has checked that they are in the file. With
  // options.mmap the tensor is a private mapping of the file, else it is memory to be filled by a later read().
  struct Place {
    Tensor tensor;
    bool filled;
  };
  Place place(uint64_t offset, const Shape& sizes, DType dtype) const;

 private:
  struct Mapping;
  void check_size_and_hash();
  const std::shared_ptr<Mapping>& mapping() const;

  Source source_;
  LoadOptions options_;
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t modified_ns_ = 0;
  std::span<const std::byte> bytes_;
  mutable std::shared_ptr<Mapping> mapping_;
};

// Tensors of a file whose bytes are still to be read: large ones in pieces, on all threads of the pool.
class PendingReads {
 public:
  void add(void* to, uint64_t offset, uint64_t bytes);
  void run(const InputFile& file) const;

 private:
  struct Piece {
    char* to;
    uint64_t offset, bytes;
  };
  std::vector<Piece> pieces_;
};

// LoadError if a byte is neither 0 nor 1: reading it as a bool would be undefined.
void check_bools(const Tensor& t, const Source& source, Field field, uint64_t offset);

}  // namespace deft::io
