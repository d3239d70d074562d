#include "data_source.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "data/array_files.h"
#include "data/image_folder.h"
#include "data/tar_dataset.h"
#include "data/text_lines.h"

namespace deft::cli {

namespace fs = std::filesystem;

namespace {

bool is_tar(const fs::path& p) {
  std::string name = p.filename().string();
  return name.ends_with(".tar") || name.ends_with(".tar.gz") || name.ends_with(".tgz");
}

std::vector<std::string> shards_in(const std::string& path) {
  std::vector<std::string> shards;
  std::error_code error;
  for (const fs::directory_entry& e : fs::directory_iterator(path, error))
    if (is_tar(e.path())) shards.push_back(e.path().string());
  std::sort(shards.begin(), shards.end());
  return shards;
}

DataSource tar_source(const std::vector<std::string>& shards, const data::ImageOptions& images) {
  std::vector<data::TarField> fields = {data::image_field(images), data::label_field()};
  return {SourceKind::tar, nullptr, std::make_shared<data::TarDataset>(shards, std::move(fields))};
}

}  // namespace

const char* name_of(SourceKind kind) {
  constexpr const char* names[] = {"image folder", "tar shards", "lines of text", "arrays"};
  return names[static_cast<int>(kind)];
}

DataSource open_source(const std::string& path, const data::ImageOptions& images) {
  std::error_code error;
  DEFT_CHECK(fs::exists(path, error), ValueError, "found nothing at {}, expected a file or folder; check the path",
             path);
  if (fs::is_directory(path, error)) {
    if (auto shards = shards_in(path); !shards.empty()) return tar_source(shards, images);
    return {SourceKind::image_folder, std::make_shared<data::ImageFolder>(path, images), nullptr};
  }
  if (is_tar(path)) return tar_source({path}, images);
  for (const char* end : {".npy", ".npz", ".safetensors"})
    if (path.ends_with(end)) return {SourceKind::arrays, std::make_shared<data::ArrayFiles>(path), nullptr};
  return {SourceKind::text, std::make_shared<data::TextLines>(path), nullptr};
}

}  // namespace deft::cli
