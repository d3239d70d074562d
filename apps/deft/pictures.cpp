#include "pictures.h"

#include <algorithm>
#include <charconv>

#include "data/image_folder.h"
#include "data/normalize_images.h"
#include "data/transforms.h"
#include "ops/all_ops.h"

namespace deft::cli {

ImageForm image_form(const std::string& data, int64_t channels, int64_t height, int64_t width) {
  const int64_t side = std::min(height, width);
  const int64_t resize = data == "images" ? side * 256 / 224 : side;
  return {channels, height, width, resize, pixel_scale(data, channels)};
}

ImageForm image_form(const TaskOptions& o, int64_t channels, const std::string& said) {
  int64_t sizes[3] = {};
  const char *at = said.data(), *end = at + said.size();
  for (int64_t& size : sizes) {
    at = std::from_chars(at, end, size).ptr;
    if (at != end) ++at;  // the x
  }
  const bool known = sizes[0] > 0 && sizes[1] > 0 && sizes[2] > 0;
  if (known) return image_form(o.data, sizes[0], sizes[1], sizes[2]);
  const int64_t side = o.data == "images" ? o.image_size : o.data == "fashion" || o.data == "mnist" ? 28 : 32;
  return image_form(o.data, channels > 0 ? channels : 3, side, side);
}

Tensor read_image_files(const std::vector<std::string>& files, const ImageForm& f, Device device) {
  data::ImageOptions o = data::evaluation_images();
  o.height = f.height, o.width = f.width, o.resize = f.resize;
  o.dtype = DType::u8;
  o.decode.channels = static_cast<int>(f.channels);
  const data::ImageTransform transform(o);
  data::ImageWorkspace work;
  data::SampleRng rng;
  std::vector<uint8_t> bytes;
  Tensor pixels = empty({static_cast<int64_t>(files.size()), f.height, f.width, f.channels}, DType::u8);
  uint8_t* to = pixels.data<uint8_t>();
  for (const std::string& file : files) {
    data::read_image_file(file, o.decode.most_file_bytes, bytes);
    transform.decode({bytes, file}, rng, work);
    transform.write(work, to);
    to += f.height * f.width * f.channels;
  }
  return data::normalize_images(pixels.to(device).permute({0, 3, 1, 2}), f.scale.mean, f.scale.std);
}

}  // namespace deft::cli
