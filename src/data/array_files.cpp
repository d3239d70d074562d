#include "data/array_files.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "core/state.h"
#include "data/mapped_file.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/npy_header.h"
#include "io/safetensors.h"
#include "io/zip.h"
#include "ops/creation.h"

namespace deft::data {

namespace {

// Where an array lies. `memory` holds it if the file does not.
struct Array {
  std::string name;
  DType dtype;
  Shape sizes;
  const char* data;
  bool swapped = false, fortran = false;
  Tensor memory = {};
};

std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s)); }

Array read_npy(std::string name, std::string_view bytes, const io::Source& source, const io::LoadLimits& limits) {
  io::NpyHeader h = io::parse_npy_header(bytes_of(bytes), bytes.size(), source, limits);
  return {std::move(name), h.dtype, h.sizes, bytes.data() + h.data, h.swapped, h.fortran && h.sizes.size() > 1};
}

std::vector<Array> read_npz(const io::InputFile& in, std::string_view bytes) {
  io::ZipArchive zip(in);
  std::vector<Array> arrays;
  for (const io::ZipEntry& e : zip.entries()) {
    if (!e.name.ends_with(".npy") || e.name.size() == 4)
      in.source().fail({"name", e.name}, e.header, "every member of an npz archive is called NAME.npy");
    std::string name(e.name.substr(0, e.name.size() - 4));
    io::Source source = zip.source_of(e, "npy");
    if (!e.deflated) {
      arrays.push_back(read_npy(std::move(name), bytes.substr(e.data, e.size), source, in.limits()));
      continue;
    }
    Tensor memory = empty({static_cast<int64_t>(e.size)}, DType::u8);
    zip.read(e, memory.data_ptr());
    std::string_view unpacked(static_cast<const char*>(memory.data_ptr()), e.size);
    arrays.push_back(read_npy(std::move(name), unpacked, source, in.limits()));
    arrays.back().memory = memory;
  }
  return arrays;
}

std::vector<Array> read_arrays(const MappedFile& file, io::LoadOptions options) {
  io::InputFile in(bytes_of(file.bytes()), file.path(), file.format(), options);
  std::vector<Array> arrays;
  switch (io::detect_format(in)) {
    case io::FileFormat::npy:
      return {read_npy("array", file.bytes(), in.source(), in.limits())};
    case io::FileFormat::zip:
      return read_npz(in, file.bytes());
    case io::FileFormat::safetensors:
      options.mmap = true;
      options.sha256.clear();  // checked above
      for (const NamedTensor& t : io::load_safetensors(file.path(), options).tensors)
        arrays.push_back({t.name, t.tensor.dtype(), t.tensor.sizes(), static_cast<const char*>(t.tensor.data_ptr()),
                          false, false, t.tensor});
      return arrays;
    default:
      in.source().fail("file", 0, "this is neither npy, npz nor safetensors");
  }
}

std::string names_of(const std::vector<Array>& arrays) {
  std::string names;
  for (const Array& a : arrays) names += (names.empty() ? "" : ", ") + a.name;
  return names;
}

const Array& find(const std::vector<Array>& arrays, const ArrayColumn& column) {
  if (column.array.empty()) {
    DEFT_CHECK(arrays.size() == 1, ValueError, "ArrayFiles: {} holds the arrays {}; say which one is the field '{}'",
               column.path, names_of(arrays), column.field);
    return arrays[0];
  }
  auto found = std::find_if(arrays.begin(), arrays.end(), [&](const Array& a) { return a.name == column.array; });
  DEFT_CHECK(found != arrays.end(), ValueError, "ArrayFiles: {} has no array '{}', only {}", column.path, column.array,
             names_of(arrays));
  return *found;
}

const Array& with_rows(const Array& a, const std::string& path) {
  DEFT_CHECK(!a.sizes.empty(), ShapeError, "ArrayFiles: '{}' in {} is a single number and has no rows", a.name, path);
  DEFT_CHECK(!a.fortran, UnsupportedError,
             "ArrayFiles: '{}' in {} is in Fortran order, its rows are spread over the file; save it in C order",
             a.name, path);
  return a;
}

}  // namespace

ArrayFiles::~ArrayFiles() = default;

ArrayFiles::ArrayFiles(const std::vector<ArrayColumn>& columns, const io::LoadOptions& options) {
  DEFT_CHECK(!columns.empty(), ValueError, "ArrayFiles: no columns were given");
  std::vector<std::vector<Array>> arrays;  // of files_
  for (const ArrayColumn& c : columns) {
    size_t file = 0;
    while (file < files_.size() && files_[file]->path() != c.path) ++file;
    if (file == files_.size()) {
      files_.push_back(std::make_unique<MappedFile>(c.path, "array file"));
      arrays.push_back(read_arrays(*files_.back(), options));
    }
    const Array& a = with_rows(find(arrays[file], c), c.path);
    add(c.field, a.dtype, a.sizes, {a.data, a.swapped, a.memory, file});
  }
}

ArrayFiles::ArrayFiles(const std::string& path, const io::LoadOptions& options) {
  files_.push_back(std::make_unique<MappedFile>(path, "array file"));
  for (const Array& a : read_arrays(*files_[0], options))
    add(a.name, a.dtype, with_rows(a, path).sizes, {a.data, a.swapped, a.memory, 0});
  DEFT_CHECK(!columns_.empty(), ValueError, "ArrayFiles: there are no arrays in {}", path);
}

void ArrayFiles::add(const std::string& name, DType dtype, Shape sizes, Column column) {
  const std::string& path = files_[column.file]->path();
  if (columns_.empty()) size_ = sizes[0];
  DEFT_CHECK(sizes[0] == size_, ShapeError,
             "ArrayFiles: '{}' in {} has {} rows, but '{}' has {}; give the columns by name", name, path, sizes[0],
             fields_[0].name, size_);
  sizes.erase(0);
  column.row_bytes = static_cast<size_t>(checked_numel(sizes, dtype)) * size_of(dtype);
  columns_.push_back(std::move(column));
  fields_.push_back({name, dtype, sizes});
}

void ArrayFiles::get(int64_t index, SampleWriter& out) const {
  DEFT_CHECK(index >= 0 && index < size_, IndexError, "ArrayFiles: row {} of {}", index, size_);
  for (auto& file : files_) file->check_unchanged();
  for (size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].row_bytes) copy_row(i, index, out.fixed<char>(static_cast<int>(i)));
}

void ArrayFiles::copy_row(size_t column, int64_t index, char* to) const {
  const Column& c = columns_[column];
  DType dtype = fields_[column].dtype;
  const char* from = c.data + static_cast<size_t>(index) * c.row_bytes;
  std::memcpy(to, from, c.row_bytes);
  if (size_t width = size_of(dtype); c.swapped && width > 1)
    for (char* p = to; p < to + c.row_bytes; p += width) std::reverse(p, p + width);
  if (dtype != DType::boolean) return;
  const char* bad = std::find_if(from, from + c.row_bytes, [](char b) { return b & ~1; });
  if (bad == from + c.row_bytes) return;
  const MappedFile& file = *files_[c.file];
  const char* start = c.memory.defined() ? c.data : file.bytes().data();
  io::Source{"array file", file.path()}.fail({"data", fields_[column].name}, static_cast<uint64_t>(bad - start),
                                             "a bool is 0 or 1, found {}", static_cast<uint8_t>(*bad));
}

std::string ArrayFiles::describe(int64_t index) const {
  std::string paths;
  for (auto& file : files_) paths += (paths.empty() ? "" : ", ") + file->path();
  return fmt::format("{}, row {}", paths, index);
}

}  // namespace deft::data
