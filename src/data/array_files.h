// Samples in arrays on disk: npy, npz and safetensors files, of which only the rows that are asked for are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/dataset.h"
#include "io/load_options.h"

namespace deft::data {

class MappedFile;

// One field of the samples.
struct ArrayColumn {
  std::string field;
  std::string path;
  std::string array = {};  // in an npz or safetensors file; may be empty if there is only one
};

// The files are mapped; packed members of npz files are unpacked into memory. Big-endian numbers are converted row by
// row. The checksums of npz members that are not packed are not checked: that would take reading them.
class ArrayFiles final : public Dataset {
 public:
  // Row i of every array is a field of sample i. LoadError for what breaks the format, UnsupportedError for arrays in
  // Fortran order, whose rows are spread over the file, ShapeError if the arrays have different first sizes. Of the
  // options, `mmap` is taken as set.
  explicit ArrayFiles(const std::vector<ArrayColumn>& columns, const io::LoadOptions& options = {});
  // All arrays of a file under their names; that of an npy file is called "array".
  explicit ArrayFiles(const std::string& path, const io::LoadOptions& options = {});
  ~ArrayFiles() override;

  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  // LoadError if a file was changed or shortened since it was opened.
  void get(int64_t index, SampleWriter& out) const override;
  std::string describe(int64_t index) const override;

 private:
  struct Column {
    const char* data;  // of row 0
    bool swapped;      // big-endian
    Tensor memory;     // what `data` is part of, unless that is the file
    size_t file;       // in files_
    size_t row_bytes = 0;
  };
  void add(const std::string& name, DType dtype, Shape sizes, Column column);
  void copy_row(size_t column, int64_t index, char* to) const;

  int64_t size_ = 0;
  std::vector<Field> fields_;
  std::vector<Column> columns_;
  std::vector<std::unique_ptr<MappedFile>> files_;
};

}  // namespace deft::data
