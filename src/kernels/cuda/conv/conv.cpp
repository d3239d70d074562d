// Convolutions for cuDNN: cut into parts that 32-bit element counts can hold.
#include "kernels/cuda/conv/conv.h"

#include <algorithm>

#include "kernels/cuda/conv/conv_direct.h"
#include "kernels/cuda/conv/cudnn_plan.h"

namespace deft::cuda {

namespace {

constexpr int64_t kMaxElements = INT32_MAX;

int64_t volume(const int64_t* sizes, int count) {
  int64_t total = 1;
  for (int d = 0; d < count; ++d) total *= sizes[d];
  return total;
}

}  // namespace

size_t bytes_of_y(const ConvCall& call) {
  return static_cast<size_t>(call.n * call.c_out * volume(call.out, call.spatial)) * size_of(call.dtype);
}

ResidualApart::ResidualApart(Encoder& e, ConvCall& call) {
  if (!in_place(call)) return;
  copy_.emplace(e, bytes_of_y(call));
  e.copy(copy_->as(), call.residual, bytes_of_y(call));
  call.residual = copy_->as();
}

ConvCall with_three_dims(const ConvCall& call) {
  ConvCall c = call;
  int missing = 3 - call.spatial;
  for (int d = 0; d < 3; ++d) {
    int from = d - missing;
    bool has = from >= 0;
    c.in[d] = has ? call.in[from] : 1;
    c.kernel[d] = has ? call.kernel[from] : 1;
    c.out[d] = has ? call.out[from] : 1;
    c.stride[d] = has ? call.stride[from] : 1;
    c.pad[d] = has ? call.pad[from] : 0;
    c.dilation[d] = has ? call.dilation[from] : 1;
  }
  c.spatial = 3;
  return c;
}

bool conv_library(Encoder& e, ConvKind kind, ConvCall call) {
  int64_t x_sample = call.c_in * volume(call.in, call.spatial), y_sample = call.c_out * volume(call.out, call.spatial);
  if (call.n <= 0 || x_sample == 0 || y_sample == 0) return false;
  int64_t most = kMaxElements / std::max(x_sample, y_sample);
  if (most == 0) return false;
  std::optional<ResidualApart> apart;
  if (most < call.n) apart.emplace(e, call);  // a later part may be refused
  auto bytes = static_cast<int64_t>(size_of(call.dtype));
  for (int64_t at = 0; at < call.n; at += most) {
    ConvCall part = call;
    part.n = std::min(most, call.n - at);
    part.x = static_cast<char*>(call.x) + at * x_sample * bytes;
    part.y = static_cast<char*>(call.y) + at * y_sample * bytes;
    if (call.residual) part.residual = static_cast<const char*>(call.residual) + at * y_sample * bytes;
    bool accumulate = kind == ConvKind::backward_weight && at > 0;
    if (!cudnn_conv(e, kind, with_three_dims(part), accumulate)) return false;
  }
  return true;
}

}  // namespace deft::cuda
