// The images of a data set, with what a model needs to know of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "task.h"

namespace deft::cli {

// (x / 255 - mean) / std of an image's bytes, by channel.
struct PixelScale {
  std::vector<double> mean, std;
};
PixelScale pixel_scale(const std::string& data, int64_t channels);

struct ImageData {
  std::shared_ptr<const data::Dataset> train, test;  // images as bytes
  int64_t channels = 3, height = 0, width = 0, classes = 0;
  std::vector<std::string> names;  // of the classes
  bool channels_last = false;      // an image is [height, width, channels]
  bool in_memory = true;
  PixelScale scale;
  std::function<uint32_t()> content;  // changes with the images: of folders with names and sizes of the files
};
// As options.data, path and sizes say. ValueError where they do not fit together, LoadError for bad files.
ImageData read_images(const TaskOptions& options);

}  // namespace deft::cli
