// Images as bytes become what a model takes: after the copy to the device, so that a quarter of the bytes are copied.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace deft::data {

// u8 [n, channels, height, width] in any memory order: (x / 255 - mean) / std, one mean and std per channel. A batch
// [n, height, width, channels] is passed as images.permute({0, 3, 1, 2}).
Tensor normalize_images(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& std,
                        DType dtype = DType::f32, MemoryFormat format = MemoryFormat::channels_last);

}  // namespace deft::data
