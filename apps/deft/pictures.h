// Images in files as a model takes them.
#pragma once

#include <string>
#include <vector>

#include "image_data.h"

namespace deft::cli {

struct ImageForm {
  int64_t channels = 3, height = 224, width = 224;
  int64_t resize = 256;  // of the shorter side, before the middle is cut out
  PixelScale scale;
};
// That of the images of a data set.
ImageForm image_form(const std::string& data, int64_t channels, int64_t height, int64_t width);
// By what a checkpoint says, "1x28x28" for channels, height and width, or "": by its data set.
ImageForm image_form(const TaskOptions& options, int64_t channels, const std::string& said);

// JPEG and PNG: [n, channels, height, width] on `device`. LoadError that names the file for what is none of them.
Tensor read_image_files(const std::vector<std::string>& files, const ImageForm& form, Device device);

}  // namespace deft::cli
