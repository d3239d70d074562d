#include <bit>
#include <vector>

#include "kernels/cuda/device/read_back.h"
#include "kernels/cuda/elementwise/multi_tensor.h"
#include "ops/optimizer_update_cuda.h"
#include "runtime/context.h"
#include "runtime/stream.h"
#include "runtime/sync.h"

namespace deft::detail {

namespace {

// The plain data of those the kernels take, ready to be read or written on the encoder's stream.
std::vector<cuda::TensorData> plain_data(const cuda::Encoder& e, std::span<const Tensor> tensors, bool written) {
  std::vector<cuda::TensorData> list;
  list.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (t.device() != e.device() || !is_cuda_data(t)) continue;
    DeviceMemory& memory = *t.impl()->storage->memory;
    written ? order_write(memory, e.stream_id()) : order_read(memory, e.stream_id());
    list.push_back({t.numel(), t.data_ptr(), t.dtype(), static_cast<int32_t>(i)});
  }
  return list;
}

// A number that a kernel leaves for the host. Asks whether the host may wait, before anything is enqueued.
template <class T>
class Result {
 public:
  Result(const cuda::Encoder& e, const Site& site) : encoder_(e), memory_(asked(e, site), 2 * sizeof(T)) {}
  T* device() { return memory_.template as<T>(); }
  T* second() { return device() + 1; }  // room for one that stays on the device
  T read() const { return std::bit_cast<T>(cuda::read_back(encoder_, memory_.template as<const int64_t>())); }

 private:
  static const cuda::Encoder& asked(const cuda::Encoder& e, const Site& site) {
    count_sync(e.op(), effective_site(site));
    return e;
  }
  const cuda::Encoder& encoder_;
  cuda::Workspace memory_;
};

}  // namespace

double cuda_l2_norm(Device device, std::span<const Tensor> tensors, const Site& site) {
  cuda::Encoder e(device, "total_norm");
  Result<double> norm(e, site);
  const std::vector<cuda::TensorData> list = plain_data(e, tensors, false);
  cuda::l2_norm(e, list.data(), static_cast<int64_t>(list.size()), norm.device());
  return norm.read();
}

double cuda_clip_norm(Device device, std::span<const Tensor> tensors, double max_norm, const Site& site) {
  cuda::Encoder e(device, "clip_norm_");
  Result<double> norm(e, site);
  double* factor = norm.second();
  const std::vector<cuda::TensorData> list = plain_data(e, tensors, true);
  const auto count = static_cast<int64_t>(list.size());
  cuda::l2_norm(e, list.data(), count, norm.device(), factor, max_norm);
  cuda::scale_tensors(e, list.data(), count, static_cast<const double*>(factor));
  return norm.read();
}

int64_t cuda_first_not_finite(Device device, std::span<const Tensor> tensors, double factor, const Site& site) {
  cuda::Encoder e(device, "first_not_finite");
  Result<int64_t> found(e, site);
  const std::vector<cuda::TensorData> list = plain_data(e, tensors, factor != 1);
  cuda::check_finite(e, list.data(), static_cast<int64_t>(list.size()), found.device(), factor);
  const int64_t value = found.read();
  return value ? cuda::kFoundBase - value : -1;
}

void cuda_scale(Device device, std::span<const Tensor> tensors, double factor) {
  cuda::Encoder e(device, "scale_tensors_");
  const std::vector<cuda::TensorData> list = plain_data(e, tensors, true);
  cuda::scale_tensors(e, list.data(), static_cast<int64_t>(list.size()), factor);
}

}  // namespace deft::detail
