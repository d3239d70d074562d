#include "kernels/cuda/nothing.h"

namespace deft::cuda {

namespace {
__global__ void nothing(int) {}
}  // namespace

void launch_nothing(Encoder& e) { e.launch(nothing, 1, 32, 0, 0); }

}  // namespace deft::cuda
