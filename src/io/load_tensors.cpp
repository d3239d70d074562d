#include "io/load_tensors.h"

#include <algorithm>

#include "io/checkpoint.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "io/npy.h"
#include "io/pt.h"
#include "io/safetensors.h"
#include "io/zip.h"

namespace deft::io {

namespace {

struct Extension {
  std::string_view ending;
  FileFormat format;
};
constexpr Extension kExtensions[] = {{".safetensors", FileFormat::safetensors},
                                     {".npy", FileFormat::npy},
                                     {".npz", FileFormat::zip},
                                     {".pt", FileFormat::zip},
                                     {".pth", FileFormat::zip},
                                     {".bin", FileFormat::zip},
                                     {".safetensors", FileFormat::zip},
                                     {".index.json", FileFormat::json}};

// An npz archive holds nothing but npy files.
bool is_npz(const InputFile& file) {
  ZipArchive zip(file);
  const auto& entries = zip.entries();
  return !entries.empty() &&
         std::all_of(entries.begin(), entries.end(), [](auto& e) { return e.name.ends_with(".npy"); });
}

}  // namespace

NamedTensors load_tensors(const std::string& path, const LoadOptions& options) {
  FileFormat format;
  bool npz = false;
  {
    LoadOptions first = options;
    first.sha256.clear();  // checked by the loader
    InputFile file(path, "file", first);
    format = detect_format(file);
    auto says =
        std::find_if(std::begin(kExtensions), std::end(kExtensions), [&](auto& e) { return path.ends_with(e.ending); });
    if (says != std::end(kExtensions) && format != FileFormat::legacy_pt) check_format(file, says->format);
    if (format == FileFormat::zip) npz = is_npz(file);
    if (format == FileFormat::zip && npz != path.ends_with(".npz") && says != std::end(kExtensions))
      file.source().fail("file", 0, "this is {}, which its extension denies",
                         npz ? "an npz archive" : "no npz archive");
    if (format == FileFormat::unknown)
      file.source().fail("file", 0, "this is neither safetensors, npy, npz nor a PyTorch checkpoint");
  }
  switch (format) {
    case FileFormat::safetensors: {
      SafetensorsFile file = load_safetensors(path, options);
      check_if_checkpoint(file, path);
      return std::move(file.tensors);
    }
    case FileFormat::json:
      return load_safetensors_index(path, options).tensors;
    case FileFormat::npy:
      return {{"array", load_npy(path, options)}};
    default:
      return npz ? load_npz(path, options) : load_pt(path, options).state_dict();
  }
}

}  // namespace deft::io
