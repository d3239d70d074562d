// Tensors to and from other libraries without a copy, through DLPack (ABI of version 0.8).
#pragma once

#include <cstdint>

#include "core/tensor.h"

extern "C" {

// The layout is DLPack's; the names are ours, so that its own header may be included beside this one.
struct DeftDLDevice {
  int32_t device_type;  // 1: CPU, 2: CUDA
  int32_t device_id;
};
struct DeftDLDataType {
  uint8_t code;  // 0: int, 1: uint, 2: float, 4: bfloat, 6: bool
  uint8_t bits;
  uint16_t lanes;
};
struct DeftDLTensor {
  void* data;
  DeftDLDevice device;
  int32_t ndim;
  DeftDLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null means row-major
  uint64_t byte_offset;
};
struct DeftDLManagedTensor {
  DeftDLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DeftDLManagedTensor* self);
};

}  // extern "C"

namespace deft {

// Shares the bytes; they live until the consumer calls the deleter. A tensor that requires grad is an error: detach()
// it.
DeftDLManagedTensor* to_dlpack(const Tensor& t, Site site = Site::current());
// Takes over `managed`: its deleter is called when the last tensor that uses the bytes is gone. On error it stays the
// caller's.
Tensor from_dlpack(DeftDLManagedTensor* managed, Site site = Site::current());

}  // namespace deft
