#include "core/dlpack.h"

#include <algorithm>

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "runtime/stream.h"

namespace deft {

namespace {

static_assert(sizeof(DeftDLTensor) == 48 && sizeof(DeftDLManagedTensor) == 64);

struct TypeCode {
  DType dtype;
  uint8_t code, bits;
};
constexpr TypeCode kTypeCodes[] = {{DType::f32, 2, 32}, {DType::f64, 2, 64}, {DType::bf16, 4, 16},
                                   {DType::f16, 2, 16}, {DType::i8, 0, 8},   {DType::u8, 1, 8},
                                   {DType::i32, 0, 32}, {DType::i64, 0, 64}, {DType::boolean, 6, 8}};

struct Exported {
  DeftDLManagedTensor managed{};
  Tensor tensor;
  int64_t shape[kMaxDims], strides[kMaxDims];
};

constexpr int32_t kDLCpu = 1, kDLCuda = 2, kDLCudaHost = 3;

Device device_from(const DeftDLDevice& d) {
  if (d.device_type == kDLCpu || d.device_type == kDLCudaHost) return kCPU;
  DEFT_CHECK(d.device_type == kDLCuda, DeviceError,
             "from_dlpack: device type {} is not supported; the CPU (1), CUDA (2) and pinned memory (3) are",
             d.device_type);
  DEFT_CHECK(d.device_id >= 0 && d.device_id < device_count(DeviceType::cuda), DeviceError,
             "from_dlpack: there is no device cuda:{}; found {} of them", d.device_id, device_count(DeviceType::cuda));
  return {DeviceType::cuda, static_cast<int8_t>(d.device_id)};
}

}  // namespace

DeftDLManagedTensor* to_dlpack(const Tensor& t, Site site) {
  DEFT_CHECK(t.defined(), ValueError, "to_dlpack: the tensor is undefined");
  DEFT_CHECK(!t.requires_grad(), GradError,
             "to_dlpack: the tensor {} requires grad, which other libraries cannot see (at {}); detach() it",
             describe(t.meta()), to_string(site));
  note_host_read("to_dlpack", t, site);
  // The consumer does not know our streams: the values must be computed before it gets the tensor.
  if (!t.device().is_cpu()) {
    Stream stream = current_stream(t.device());
    order_read(*t.impl()->storage->memory, stream.id());
    stream.synchronize(site);
  }
  keep_nothing_derived(*t.impl()->storage);
  auto* e = new Exported;
  e->tensor = t;
  std::copy(t.sizes().begin(), t.sizes().end(), e->shape);
  std::copy(t.strides().begin(), t.strides().end(), e->strides);
  DeftDLTensor& d = e->managed.dl_tensor;
  d.data = t.impl()->data;
  d.device = {t.device().is_cpu() ? kDLCpu : kDLCuda, t.device().index};
  d.ndim = t.dim();
  auto code = std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes), [&](auto& c) { return c.dtype == t.dtype(); });
  d.dtype = {code->code, code->bits, 1};
  d.shape = e->shape;
  d.strides = e->strides;
  d.byte_offset = 0;
  e->managed.manager_ctx = e;
  e->managed.deleter = [](DeftDLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &e->managed;
}

Tensor from_dlpack(DeftDLManagedTensor* managed, Site site) {
  DEFT_CHECK(managed, ValueError, "from_dlpack: the pointer is null (at {})", to_string(site));
  const DeftDLTensor& d = managed->dl_tensor;
  Device device = device_from(d.device);
  DEFT_CHECK(d.ndim >= 0 && d.ndim <= kMaxDims && (d.ndim == 0 || d.shape), ShapeError,
             "from_dlpack: {} dimensions are not supported; at most {} are", d.ndim, kMaxDims);
  auto code = std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes), [&](auto& c) {
    return c.code == d.dtype.code && c.bits == d.dtype.bits && d.dtype.lanes == 1;
  });
  DEFT_CHECK(code != std::end(kTypeCodes), DTypeError,
             "from_dlpack: element type (code {}, {} bits, {} lanes) is not supported", d.dtype.code, d.dtype.bits,
             d.dtype.lanes);
  auto rank = static_cast<size_t>(d.ndim);
  Meta m = Meta::dense(Shape(IntList(d.shape, rank)), code->dtype, device);
  if (d.strides && d.ndim) {
    for (size_t i = 0; i < rank; ++i)
      DEFT_CHECK(d.strides[i] >= 0, ShapeError, "from_dlpack: a stride must not be negative, found {}", d.strides[i]);
    m.set_strides(Shape(IntList(d.strides, rank)));
  }
  DEFT_CHECK(d.data || m.numel == 0, ValueError, "from_dlpack: the data pointer is null but shape {} has {} elements",
             to_string(m.sizes), m.numel);
  return Tensor(make_external(static_cast<char*>(d.data) + d.byte_offset, m, [managed] {
    if (managed->deleter) managed->deleter(managed);
  }));
}

}  // namespace deft
