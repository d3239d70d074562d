// Typed errors. Every message is one sentence: what was found, what was expected, what to do.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

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
// A function that cannot be captured into a graph, with the op and the line.
struct CaptureError : Error {
  using Error::Error;
};
struct OutOfMemoryError : Error {
  using Error::Error;
};
// A file that cannot be read or breaks its format. Nothing of it was loaded.
struct LoadError : Error {
  LoadError(std::string format_, std::string file_, std::string field_, uint64_t offset_, const std::string& found)
      : Error(format_ + ": " + file_ + ": " + field_ + " at byte " + std::to_string(offset_) + ": " + found),
        format(std::move(format_)),
        file(std::move(file_)),
        field(std::move(field_)),
        offset(offset_) {}
  std::string format;  // "safetensors"
  std::string file;    // as given; "model.npz/weight.npy" for a member of an archive
  std::string field;   // the part of the format: "header length", "shape of 'conv1.weight'"
  uint64_t offset;     // of that part, in bytes from the start of the file
};
// A file that cannot be written. What was at its path before is still there.
struct SaveError : Error {
  using Error::Error;
};
// A bug in Deft itself, never the caller's fault.
struct InternalError : Error {
  using Error::Error;
};

}  // namespace deft
