// Typed errors. Every message is one sentence: what was found, what was expected, what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace deft {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bad arguments from the caller.
struct ShapeError : Error {
  using Error::Error;
};
struct DTypeError : Error {
  using Error::Error;
};
struct DeviceError : Error {
  using Error::Error;
};
struct IndexError : Error {
  using Error::Error;
};
struct ValueError : Error {
  using Error::Error;
};
// The call is fine but this build, device or dtype has no kernel for it.
struct UnsupportedError : Error {
  using Error::Error;
};

// Autograd misuse.
struct GradError : Error {
  using Error::Error;
};
struct InplaceError : GradError {
  using GradError::GradError;
};
struct InferenceError : GradError {
  using GradError::GradError;
};

// The host would have to wait for a device where SyncGuard forbids it.
struct SyncError : Error {
  using Error::Error;
};
struct OutOfMemoryError : Error {
  using Error::Error;
};
// A bug in Deft itself, never the caller's fault.
struct InternalError : Error {
  using Error::Error;
};

}  // namespace deft
