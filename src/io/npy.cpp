#include "io/npy.h"

#include <algorithm>

#include "io/atomic_file.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/npy_header.h"
#include "io/zip.h"
#include "io/zip_writer.h"
#include "ops/creation.h"

namespace deft::io {

namespace {

Shape stored_sizes(const NpyHeader& h) {
  Shape sizes = h.sizes;
  if (h.fortran) std::reverse(sizes.data(), sizes.data() + sizes.size());
  return sizes;
}

void swap_bytes(const Tensor& t) {
  size_t width = t.element_size();
  auto* p = static_cast<char*>(t.data_ptr());
  for (int64_t i = 0; i < t.numel(); ++i, p += width) std::reverse(p, p + width);
}

// `t` holds the elements in the order of the file.
Tensor finished(Tensor t, const NpyHeader& h, const Source& source) {
  if (h.swapped) swap_bytes(t);
  check_bools(t, source, "data", h.data);
  if (!h.fortran || t.dim() < 2) return t;
  std::vector<int64_t> order;
  for (int i = t.dim() - 1; i >= 0; --i) order.push_back(i);
  return t.permute(order);
}

Tensor read_npy(const InputFile& file) {
  check_format(file, FileFormat::npy);
  auto start = file.read(0, std::min(file.size(), npy_header_room(file.limits())), "header");
  NpyHeader h = parse_npy_header(start, file.size(), file.source(), file.limits());
  auto [tensor, filled] = file.place(h.data, stored_sizes(h), h.dtype);
  if (!filled) {
    PendingReads reads;
    reads.add(tensor.data_ptr(), h.data, h.bytes);
    reads.run(file);
  }
  file.check_unchanged();
  return finished(tensor, h, file.source());
}

// The member is unpacked once; the tensor lies in these bytes, behind the header.
Tensor load_member(const ZipArchive& zip, const ZipEntry& e) {
  Source source = zip.source_of(e, "npy");
  if (e.size == 0) source.fail("magic", 0, "the member is empty");
  Tensor all = empty({static_cast<int64_t>(e.size)}, DType::u8);
  zip.read(e, all.data_ptr());
  std::span bytes(static_cast<const std::byte*>(all.data_ptr()), e.size);
  NpyHeader h = parse_npy_header(bytes, e.size, source, zip.file().limits());
  char* data = static_cast<char*>(all.data_ptr()) + h.data;
  Meta meta = Meta::dense(stored_sizes(h), h.dtype, kCPU);
  if (reinterpret_cast<uintptr_t>(data) % size_of(h.dtype) == 0 && meta.numel)
    return finished(Tensor(make_external(data, meta, [all] {})), h, source);
  Tensor t = empty(meta.sizes, h.dtype);
  if (meta.numel) std::copy_n(data, h.bytes, static_cast<char*>(t.data_ptr()));
  return finished(t, h, source);
}

NamedTensors load_archive(const InputFile& file) {
  check_format(file, FileFormat::zip);
  ZipArchive zip(file);
  if (zip.entries().size() > file.limits().tensors)
    file.source().fail("directory", 0, "{} members; the limit is {}", zip.entries().size(), file.limits().tensors);
  NamedTensors tensors;
  for (const ZipEntry& e : zip.entries()) {
    if (!e.name.ends_with(".npy") || e.name.size() == 4)
      file.source().fail({"name", e.name}, e.header, "every member of an npz archive is called NAME.npy");
    tensors.push_back({std::string(e.name.substr(0, e.name.size() - 4)), load_member(zip, e)});
  }
  file.check_unchanged();
  return tensors;
}

// What is written for a tensor: dense, on the host, of a type that NumPy has.
Tensor as_array(const Tensor& t, std::string_view name) {
  DEFT_CHECK(t.defined(), ValueError, "save: the tensor '{}' is undefined", name);
  Tensor x = t.detach();
  if (x.dtype() == DType::bf16) x = x.to(DType::f32);
  return x.cpu().contiguous();
}

std::span<const std::byte> bytes_of(const Tensor& x) {
  return {static_cast<const std::byte*>(x.data_ptr()), static_cast<size_t>(x.numel()) * x.element_size()};
}

}  // namespace

Tensor load_npy(const std::string& path, const LoadOptions& options) {
  return read_npy(InputFile(path, "npy", options));
}

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options) {
  return read_npy(InputFile(bytes, name, "npy", options));
}

NamedTensors load_npz(const std::string& path, const LoadOptions& options) {
  return load_archive(InputFile(path, "npz", options));
}

NamedTensors parse_npz(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options) {
  return load_archive(InputFile(bytes, name, "npz", options));
}

void save_npy(const std::string& path, const Tensor& tensor) {
  Tensor x = as_array(tensor, path);
  std::string header = npy_header_text(x.dtype(), x.sizes());
  auto data = bytes_of(x);
  AtomicFile file(path, header.size() + data.size());
  file.write(header.data(), header.size());
  file.write(data.data(), data.size());
  file.commit();
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  uint64_t total = 0;
  for (const NamedTensor& t : tensors) {
    DEFT_CHECK(t.tensor.defined(), ValueError, "save: the tensor '{}' is undefined", t.name);
    total += static_cast<uint64_t>(t.tensor.numel()) * (t.tensor.dtype() == DType::bf16 ? 4 : t.tensor.element_size());
  }
  ZipWriter zip(path, total);
  for (const NamedTensor& t : tensors) {
    Tensor x = as_array(t.tensor, t.name);
    std::string header = npy_header_text(x.dtype(), x.sizes());
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(header)), bytes_of(x)};
    zip.add(t.name + ".npy", parts);
  }
  zip.commit();
}

}  // namespace deft::io
