// What a path given to `deft data` holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/transforms.h"

namespace deft::cli {

enum class SourceKind : uint8_t { image_folder, tar, text, arrays };
const char* name_of(SourceKind kind);

struct DataSource {
  SourceKind kind = SourceKind::image_folder;
  std::shared_ptr<const data::Dataset> set;           // all but tar
  std::shared_ptr<const data::StreamDataset> stream;  // tar
};
// A folder of folders of images; a folder of tar files, or one; lines of text (.txt and anything else); npy, npz,
// safetensors. LoadError or ValueError for anything else.
DataSource open_source(const std::string& path, const data::ImageOptions& images);

}  // namespace deft::cli
