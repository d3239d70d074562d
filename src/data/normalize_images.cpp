#include "data/normalize_images.h"

#include "base/check.h"
#include "core/grad_mode.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "runtime/parallel.h"

namespace deft::data {

namespace {

constexpr int64_t kByteValues = 256;

// Every byte has one result per channel: the pass is a look-up, whatever the type.
template <class T>
std::vector<T> make_table(const std::vector<double>& mean, const std::vector<double>& std) {
  std::vector<T> table;
  for (size_t c = 0; c < mean.size(); ++c)
    for (int64_t v = 0; v < kByteValues; ++v) {
      double x = (static_cast<double>(v) / 255 - mean[c]) / std[c];
      if constexpr (std::is_same_v<T, double>)
        table.push_back(x);
      else
        table.push_back(T(static_cast<float>(x)));
    }
  return table;
}

// One row of one image: of all channels side by side, or of one.
struct Row {
  const uint8_t* from;
  int64_t width, step, channels, channel_step;
};
template <class T>
void write_interleaved(const Row& r, const T* table, T* to) {
  for (int64_t x = 0; x < r.width; ++x)
    for (int64_t c = 0; c < r.channels; ++c) *to++ = table[c * kByteValues + r.from[x * r.step + c * r.channel_step]];
}
template <class T>
void write_plane(const Row& r, const T* table, T* to) {
  for (int64_t x = 0; x < r.width; ++x) to[x] = table[r.from[x * r.step]];
}

template <class T>
void on_cpu(const Tensor& images, const std::vector<T>& table, bool interleaved, Tensor& out) {
  const Shape &size = images.sizes(), &step = images.strides();
  int64_t channels = size[1], height = size[2], width = size[3];
  const uint8_t* from = images.data<uint8_t>();
  T* to = static_cast<T*>(out.data_ptr());
  auto row = [&](int64_t n, int64_t c, int64_t y) {
    return Row{from + n * step[0] + c * step[1] + y * step[2], width, step[3], channels, step[1]};
  };
  int64_t rows = interleaved ? height : channels * height;  // of an image, in the order of memory
  int64_t length = interleaved ? width * channels : width;
  parallel_for(
      0, size[0] * rows, std::max<int64_t>(16384 / std::max<int64_t>(length, 1), 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          int64_t n = i / rows, y = i % rows;
          if (interleaved)
            write_interleaved(row(n, 0, y), table.data(), to + i * length);
          else
            write_plane(row(n, y / height, y % height), table.data() + y / height * kByteValues, to + i * length);
        }
      });
}

// Without the host waiting.
Tensor per_channel(const std::vector<double>& values, Device device) {
  std::vector<float> floats(values.begin(), values.end());
  return tensor(floats).pin_memory().to(device, true).view({1, -1, 1, 1});
}

Tensor on_device(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std, DType dtype,
                 MemoryFormat format) {
  std::vector<double> scale, shift;
  for (size_t c = 0; c < mean.size(); ++c) {
    scale.push_back(1 / (255 * std[c]));
    shift.push_back(-mean[c] / std[c]);
  }
  Tensor x = images.contiguous(format).to(DType::f32);
  return x.mul_(per_channel(scale, images.device())).add_(per_channel(shift, images.device())).to(dtype);
}

}  // namespace

Tensor normalize_images(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std,
                        DType dtype, MemoryFormat format) {
  DEFT_CHECK(images.defined() && images.dtype() == DType::u8 && images.dim() == 4, ValueError,
             "normalize_images: expected u8 [n, channels, height, width], found {}",
             images.defined() ? fmt::format("{} {}", name_of(images.dtype()), to_string(images.sizes())) : "nothing");
  auto channels = static_cast<size_t>(images.sizes()[1]);
  DEFT_CHECK(mean.size() == channels && std.size() == channels, ValueError,
             "normalize_images: {} channels, {} means and {} stds; give one of each per channel", channels, mean.size(),
             std.size());
  for (double s : std) DEFT_CHECK(s > 0, ValueError, "normalize_images: std must be above 0, found {}", s);
  DEFT_CHECK(is_floating(dtype), DTypeError, "normalize_images: the result has to be a floating type, found {}",
             name_of(dtype));
  NoGradGuard no_grad;
  if (!images.device().is_cpu()) return on_device(images, mean, std, dtype, format);
  Meta meta = Meta::dense(images.sizes(), dtype, kCPU);
  bool interleaved = format == MemoryFormat::channels_last ||
                     (format == MemoryFormat::preserve && images.is_contiguous(MemoryFormat::channels_last));
  if (interleaved) meta.set_strides(channels_last_strides(images.sizes()));
  Tensor out(make_tensor(meta));
  dispatch_floating(dtype, [&]<class T>() { on_cpu(images, make_table<T>(mean, std), interleaved, out); });
  return out;
}

}  // namespace deft::data
