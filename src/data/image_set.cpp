#include "data/image_set.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/check.h"
#include "ops/creation.h"
#include "runtime/parallel.h"
#ifdef DEFT_HAS_ZLIB
#include <zlib.h>
#endif

namespace deft::data {

namespace {

constexpr size_t kMostBytes = size_t{4} << 30;

// An image file and what it should be.
struct Source {
  const char* format;
  std::string path;
  template <class... Args>
  void check(bool good, const char* field, size_t offset, fmt::format_string<Args...> text, const Args&... args) const {
    if (!good) throw LoadError(format, path, field, offset, fmt::vformat(text, fmt::make_format_args(args...)));
  }
};

std::vector<uint8_t> read_plain(const Source& source) {
  std::ifstream in(source.path, std::ios::binary | std::ios::ate);
  source.check(in.good(), "file", 0, "cannot be opened for reading; check the path and its permissions");
  std::vector<uint8_t> bytes(static_cast<size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  source.check(in.good(), "file", 0, "reading its {} bytes failed", bytes.size());
  return bytes;
}

#ifdef DEFT_HAS_ZLIB
std::vector<uint8_t> read_gzip(const Source& source) {
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(source.path.c_str(), "rb"), gzclose);
  source.check(file != nullptr, "file", 0, "cannot be opened for reading; check the path and its permissions");
  std::vector<uint8_t> bytes;
  constexpr size_t kStep = 1 << 20;
  for (int got = kStep; got == kStep;) {
    size_t at = bytes.size();
    source.check(at < kMostBytes, "data", at, "unpacks to more than {} bytes", kMostBytes);
    bytes.resize(at + kStep);
    got = gzread(file.get(), bytes.data() + at, kStep);
    int code = Z_OK;
    const char* text = gzerror(file.get(), &code);
    source.check(got >= 0 && code != Z_BUF_ERROR, "data", at, "is not a whole gzip file: {}", text);
    bytes.resize(at + static_cast<size_t>(got));
  }
  return bytes;
}
#else
std::vector<uint8_t> read_gzip(const Source& source) {
  DEFT_FAIL(UnsupportedError, "{}: this build has no zlib; unpack the file with gunzip first", source.path);
}
#endif

// `name` in the folder, or `name`.gz.
std::string find_file(const char* format, const std::string& folder, const std::string& name) {
  std::string plain = folder + "/" + name;
  if (std::filesystem::exists(plain)) return plain;
  Source{format, folder}.check(std::filesystem::exists(plain + ".gz"), "folder", 0, "neither {} nor {}.gz is there",
                               name, name);
  return plain + ".gz";
}

uint32_t big_endian(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) << 24 | static_cast<uint32_t>(p[1]) << 16 | static_cast<uint32_t>(p[2]) << 8 |
         p[3];
}

void check_labels(const Source& source, const Tensor& labels, int64_t classes) {
  const int64_t* p = labels.data<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i)
    source.check(p[i] < classes, "labels", static_cast<size_t>(i), "found class {}, expected one below {}", p[i],
                 classes);
}

}  // namespace

Tensor read_idx(const std::string& path) {
  Source source{"idx", path};
  std::vector<uint8_t> bytes = path.ends_with(".gz") ? read_gzip(source) : read_plain(source);
  source.check(bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 8 && bytes[3] >= 1 && bytes[3] <= 4,
               "magic number", 0, "expected 00 00 08 (bytes) and 1 to 4 dimensions");
  size_t rank = bytes[3], header = 4 + 4 * rank, expected = 1;
  source.check(bytes.size() >= header, "sizes", 4, "the file ends at byte {}, inside its header", bytes.size());
  Shape sizes;
  for (size_t d = 0; d < rank; ++d) {
    uint32_t size = big_endian(bytes.data() + 4 + 4 * d);
    sizes.push_back(size);
    source.check(!__builtin_mul_overflow(expected, size, &expected), "sizes", 4 + 4 * d, "their product overflows");
  }
  source.check(bytes.size() - header == expected, "data", header, "has {} bytes, its sizes say {}",
               bytes.size() - header, expected);
  Tensor out = empty(sizes, DType::u8);
  std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end(), out.data<uint8_t>());
  return out;
}

ImageSet read_mnist(const std::string& folder, bool train) {
  std::string set = train ? "train" : "t10k";
  Source label_source{"idx", find_file("idx", folder, set + "-labels-idx1-ubyte")};
  Tensor images = read_idx(find_file("idx", folder, set + "-images-idx3-ubyte")), labels = read_idx(label_source.path);
  label_source.check(images.dim() == 3 && labels.dim() == 1 && images.size(0) == labels.size(0), "sizes", 4,
                     "labels of shape {} do not match images of shape {}", to_string(labels.sizes()),
                     to_string(images.sizes()));
  ImageSet out{images.unsqueeze(1), labels.to(DType::i64), 10};
  check_labels(label_source, out.labels, out.classes);
  return out;
}

namespace {

std::vector<std::string> cifar_files(bool hundred, bool train) {
  if (hundred) return {train ? "train.bin" : "test.bin"};
  if (!train) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

}  // namespace

ImageSet read_cifar(const std::string& folder, bool train) {
  constexpr size_t kPixels = 3 * 32 * 32;
  bool hundred = std::filesystem::exists(folder + "/train.bin");
  size_t head = hundred ? 2 : 1, record = head + kPixels;  // the hundred have a coarse label before the fine one
  std::vector<uint8_t> bytes;
  for (const std::string& name : cifar_files(hundred, train)) {
    Source source{"cifar", folder + "/" + name};
    std::vector<uint8_t> part = read_plain(source);
    source.check(part.size() % record == 0, "data", 0,
                 "found {} bytes, expected a multiple of the image record, {} bytes", part.size(), record);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  int64_t n = static_cast<int64_t>(bytes.size() / record);
  ImageSet out{empty({n, 3, 32, 32}, DType::u8), empty({n}, DType::i64), hundred ? 100 : 10};
  uint8_t* images = out.images.data<uint8_t>();
  int64_t* labels = out.labels.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t* p = bytes.data() + static_cast<size_t>(i) * record;
    labels[i] = p[head - 1];
    std::copy(p + head, p + record, images + static_cast<size_t>(i) * kPixels);
  }
  check_labels({"cifar", folder}, out.labels, out.classes);
  return out;
}

std::string fashion_folder() {
  const std::string debian = "/usr/share/datasets/fashion-mnist";
  DEFT_CHECK(
      std::filesystem::exists(debian), ValueError,
      "Fashion-MNIST is not in {}; install the package dataset-fashion-mnist (./dev setup does), or give its folder",
      debian);
  return debian;
}

Tensor take_images(const ImageSet& set, const std::vector<int64_t>& rows, Normalization normalization) {
  Shape sizes = set.images.sizes();
  int64_t pixels = sizes[1] * sizes[2] * sizes[3];
  sizes[0] = static_cast<int64_t>(rows.size());
  Tensor out = empty(sizes);
  const uint8_t* from = set.images.data<uint8_t>();
  float* to = out.data<float>();
  float scale = 1 / (255 * normalization.std), shift = -normalization.mean / normalization.std;
  for (int64_t row : rows)
    DEFT_CHECK(row >= 0 && row < set.size(), IndexError, "take_images: row {} of a set of {}", row, set.size());
  parallel_for(0, sizes[0], 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t* p = from + rows[static_cast<size_t>(i)] * pixels;
      float* q = to + i * pixels;
      for (int64_t k = 0; k < pixels; ++k) q[k] = static_cast<float>(p[k]) * scale + shift;
    }
  });
  return out;
}

Tensor take_labels(const ImageSet& set, const std::vector<int64_t>& rows) {
  Tensor out = empty({static_cast<int64_t>(rows.size())}, DType::i64);
  const int64_t* from = set.labels.data<int64_t>();
  int64_t* to = out.data<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i) {
    DEFT_CHECK(rows[i] >= 0 && rows[i] < set.size(), IndexError, "take_labels: row {} of a set of {}", rows[i],
               set.size());
    to[i] = from[rows[i]];
  }
  return out;
}

}  // namespace deft::data
