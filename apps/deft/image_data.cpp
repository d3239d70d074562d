#include "image_data.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "data/glyphs.h"
#include "data/image_folder.h"
#include "data/image_set.h"
#include "data/tensor_dataset.h"
#include "io/crc32.h"

namespace deft::cli {

namespace {

constexpr int64_t kGlyphTrain = 40'000, kGlyphTest = 8'000;

data::ImageSet first(data::ImageSet set, int64_t most) {
  if (most <= 0 || most >= set.size()) return set;
  return {set.images.narrow(0, 0, most), set.labels.narrow(0, 0, most), set.classes};
}

// `count` samples of a larger set, evenly spread: of folders, which are sorted, every class keeps its share.
class Spread final : public data::Dataset {
 public:
  Spread(std::shared_ptr<const data::Dataset> all, int64_t count) : all_(std::move(all)), count_(count) {}
  int64_t size() const override { return count_; }
  const std::vector<data::Field>& fields() const override { return all_->fields(); }
  void get(int64_t index, data::SampleWriter& out) const override { all_->get(place(index), out); }
  std::string describe(int64_t index) const override { return all_->describe(place(index)); }

 private:
  int64_t place(int64_t index) const {
    DEFT_CHECK(index >= 0 && index < count_, IndexError, "sample {} of {}", index, count_);
    return index * all_->size() / count_;
  }
  std::shared_ptr<const data::Dataset> all_;
  int64_t count_;
};

std::shared_ptr<const data::Dataset> at_most(std::shared_ptr<const data::Dataset> all, int64_t most) {
  if (most <= 0 || most >= all->size()) return all;
  return std::make_shared<Spread>(std::move(all), most);
}

uint32_t add(uint32_t crc, const Tensor& x) {
  const Tensor dense = x.contiguous();
  const size_t bytes = static_cast<size_t>(dense.numel()) * dense.element_size();
  return io::crc32(crc, {static_cast<const std::byte*>(dense.data_ptr()), bytes});
}

// Every name, and the sizes of some files: those of a million would take minutes on some disks.
uint32_t add(uint32_t crc, const data::ImageFolder& folder, const std::string& root) {
  constexpr int64_t kSizes = 4096;
  const int64_t step = std::max<int64_t>(1, folder.size() / kSizes);
  for (int64_t i = 0; i < folder.size(); ++i) {
    std::string text = folder.path(i).substr(root.size());
    if (i % step == 0) {
      std::error_code unknown;
      text += fmt::format(" {}", std::filesystem::file_size(folder.path(i), unknown));
    }
    crc = io::crc32(crc, std::as_bytes(std::span(text)));
  }
  return crc;
}

ImageData in_memory(const TaskOptions& o, const data::ImageSet& train, const data::ImageSet& test) {
  DEFT_CHECK(train.size() >= 1 && test.size() >= 1, ValueError, "the data set is empty");
  ImageData d;
  d.channels = train.images.size(1), d.height = train.images.size(2), d.width = train.images.size(3);
  d.classes = train.classes;
  d.scale = pixel_scale(o.data, d.channels);
  d.train = std::make_shared<data::TensorDataset>(data::image_dataset(train));
  d.test = std::make_shared<data::TensorDataset>(data::image_dataset(test));
  d.content = [train, test] { return add(add(add(add(0, train.images), train.labels), test.images), test.labels); };
  return d;
}

// root/train/class/... and root/val/class/..., as ImageNet is usually unpacked.
ImageData image_folders(const TaskOptions& o) {
  data::ImageOptions train = data::training_images(o.image_size);
  data::ImageOptions test = data::evaluation_images(o.image_size, o.image_size * 256 / 224);
  train.dtype = test.dtype = DType::u8;  // normalised on the device
  auto seen = std::make_shared<data::ImageFolder>(o.path + "/train", train);
  auto unseen = std::make_shared<data::ImageFolder>(o.path + "/val", test);
  DEFT_CHECK(seen->classes() == unseen->classes(), ValueError,
             "{}: train has {} classes and val {}, expected the same folders in both", o.path, seen->classes().size(),
             unseen->classes().size());
  ImageData d;
  d.height = d.width = o.image_size;
  d.names = seen->classes();
  d.classes = static_cast<int64_t>(d.names.size());
  d.channels_last = true;
  d.in_memory = false;
  d.scale = pixel_scale(o.data, d.channels);
  d.content = [seen, unseen, root = o.path] { return add(add(0, *seen, root), *unseen, root); };
  d.train = at_most(std::move(seen), o.train_size);
  d.test = at_most(std::move(unseen), o.test_size);
  return d;
}

std::vector<std::string> class_names(const std::string& data, int64_t classes) {
  std::vector<std::string> names;
  if (data == "fashion")
    names = {"T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"};
  if (data == "cifar" && classes == 10)
    names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  for (int64_t i = 0; data == "glyphs" && i < classes; ++i) names.emplace_back(1, data::glyph_name(i));
  for (int64_t i = 0; data == "mnist" && i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

PixelScale pixel_scale(const std::string& data, int64_t channels) {
  if (data == "images" && channels == 3) return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};  // ImageNet's
  auto all = [&](double mean, double std) {
    const auto n = static_cast<size_t>(channels);
    return PixelScale{std::vector<double>(n, mean), std::vector<double>(n, std)};
  };
  if (data == "cifar") return all(0.473, 0.251);
  if (data == "fashion" || data == "mnist") return all(0.286, 0.353);
  return all(0.5, 0.25);
}

ImageData read_images(const TaskOptions& o) {
  DEFT_CHECK(o.data == "glyphs" || o.data == "fashion" || !o.path.empty(), ValueError,
             "data set {} needs --path, the folder of its files", o.data);
  if (o.data == "images") return image_folders(o);
  ImageData d;
  if (o.data == "glyphs") {
    // Training and test images come from different streams.
    d = in_memory(o, data::make_glyphs(2 * o.seed, o.train_size ? o.train_size : kGlyphTrain),
                  data::make_glyphs(2 * o.seed + 1, o.test_size ? o.test_size : kGlyphTest));
  } else {
    const bool cifar = o.data == "cifar";
    const std::string folder = o.path.empty() ? data::fashion_folder() : o.path;
    auto read = [&](bool train) { return cifar ? data::read_cifar(folder, train) : data::read_mnist(folder, train); };
    d = in_memory(o, first(read(true), o.train_size), first(read(false), o.test_size));
  }
  d.names = class_names(o.data, d.classes);
  return d;
}

}  // namespace deft::cli
