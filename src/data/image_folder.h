// Images in folders named after their classes: root/class/anything.jpg, also deeper; PyTorch's layout.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/transforms.h"

namespace deft::data {

// Fields: "image", as ImageTransform writes it; "label", i64. Classes are the folders in root in the order of their
// bytes; samples are sorted by class, folder and name, so that numbers mean the same everywhere.
class ImageFolder : public Dataset {
 public:
  // Lists the files. .jpg, .jpeg and .png count, in any case; what they really are, their first bytes say. Links are
  // followed; a folder inside itself is entered once. LoadError if root or a folder in it cannot be read or a class has
  // no images.
  explicit ImageFolder(const std::string& root, const ImageOptions& options = {});

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  const std::vector<Field>& fields() const override { return fields_; }
  // LoadError with the path for a file that cannot be read or decoded.
  void get(int64_t index, SampleWriter& out) const override;
  std::string describe(int64_t index) const override { return path(index); }

  const std::vector<std::string>& classes() const { return classes_; }
  std::string path(int64_t index) const;
  int64_t label(int64_t index) const;
  // Files below root that are no images, and folders left out because they contain themselves.
  int64_t skipped_files() const { return skipped_files_; }
  int64_t skipped_loops() const { return skipped_loops_; }

 private:
  struct Sample {
    std::string path;  // below root
    int32_t label;
  };
  const Sample& sample(int64_t index) const;

  std::string root_;
  ImageTransform transform_;
  std::vector<Field> fields_;
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  int64_t skipped_files_ = 0, skipped_loops_ = 0;
};

// The bytes of a file, into memory that is reused. LoadError if it cannot be read or is longer than `most`.
void read_image_file(const std::string& path, int64_t most, std::vector<uint8_t>& bytes);

}  // namespace deft::data
