// cuBLASLt: its handles and its errors.
#pragma once

#include <cublasLt.h>

#include <string>

#include "runtime/device.h"

namespace deft::cuda {

std::string cublas_version();  // "13.0.0"

// One handle per device, made when first asked for and kept until the process ends. The device is the current one.
cublasLtHandle_t cublas_handle(Device device, const char* op);

// DeviceError "op: what was tried: cuBLAS's text".
void check(cublasStatus_t status, const char* op, const char* what);

}  // namespace deft::cuda
