// PyTorch checkpoints (.pt, .pth, .bin): zip archives since PyTorch 1.6. Nothing in them is ever executed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/state.h"
#include "io/load_options.h"

namespace deft::io {

struct PickleValue;
struct PtContents;

// One value of a checkpoint. Cheap to copy; it keeps the checkpoint alive.
class PtValue {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    string,
    bytes,
    tuple,  // torch.Size too
    list,
    set,
    dict,    // OrderedDict and Counter too
    tensor,  // parameters too
    other,   // torch.float32, torch.device("cpu"), an integer of more than 64 bits: only text()
  };
  Kind kind() const;
  bool is(Kind k) const { return kind() == k; }

  // ValueError if the value is of another kind. An integer serves as double.
  bool to_bool() const;
  int64_t to_int() const;
  double to_double() const;
  std::string text() const;
  const Tensor& tensor() const;

  // Elements of a tuple, list or set; entries of a dict. 0 for all other kinds.
  size_t size() const;
  PtValue operator[](size_t i) const;              // the i-th element, or value of a dict
  PtValue key(size_t i) const;                     // the i-th key of a dict
  bool has(std::string_view key) const;            // in a dict
  PtValue operator[](std::string_view key) const;  // ValueError if this is no dict or the key is missing

 private:
  friend class PtFile;
  PtValue(std::shared_ptr<const PtContents> contents, const PickleValue* value)
      : contents_(std::move(contents)), value_(value) {}
  [[noreturn]] void fail_kind(const char* wanted) const;

  std::shared_ptr<const PtContents> contents_;
  const PickleValue* value_;
};

class PtFile {
 public:
  explicit PtFile(std::shared_ptr<const PtContents> contents) : contents_(std::move(contents)) {}
  PtValue root() const;
  // The tensors of the model's state dict, in its order: the dict itself, or the one under "state_dict", "model" or
  // "model_state_dict". Entries that are no tensors are left out. ValueError if there is no such dict.
  NamedTensors state_dict() const;

 private:
  std::shared_ptr<const PtContents> contents_;
};

// Tensors that shared their bytes still do, except views that PyTorch kept as "negative", which are computed; all lie
// on the CPU and require no grad. LoadError for what breaks the format or asks for code; UnsupportedError for what Deft
// cannot hold: other types, sparse and quantized tensors, TorchScript, and the format from before PyTorch 1.6.
PtFile load_pt(const std::string& path, const LoadOptions& options = {});
PtFile parse_pt(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options = {});

}  // namespace deft::io
