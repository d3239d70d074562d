// Comparisons for the cases made from samples. Functions return "" when all is well, otherwise what is wrong.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <regex>
#include <string>
#include <typeinfo>

#include "base/error.h"
#include "ops/sample_inputs.h"

namespace deft::testing {

inline std::string place(const Shape& sizes, int64_t flat) {
  Shape index = sizes;
  for (int i = sizes.size() - 1; i >= 0; --i) {
    index[i] = flat % sizes[i];
    flat /= sizes[i];
  }
  return to_string(index);
}

inline double largest_of(DType t) {
  switch (t) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f32:
      return 0x1.fffffep127;
    default:
      return HUGE_VAL;
  }
}

// `want` as an element of the integer type t, wrapped around as the kernels do.
inline double wrapped(double want, DType t) {
  if (t == DType::boolean) return want != 0;
  int64_t v = Scalar(want).to_int64();
  return dispatch_all(t, [&]<class T>() -> double {
    if constexpr (std::is_integral_v<T>) return static_cast<double>(static_cast<T>(v));
    return want;
  });
}

struct Bound {
  double growth = 8, scale = 1;
  double of(double eps, double want) const { return eps * growth * (std::fabs(want) + scale); }
};

// Elements of floating type: |got - want| <= bound; NaN equals NaN and an infinity itself. Others: equal.
inline std::string compare(const std::vector<double>& got, DType dtype, const Shape& sizes,
                           const std::vector<double>& want, Bound bound) {
  if (got.size() != want.size()) return fmt::format("{} elements, want {}", got.size(), want.size());
  double eps = epsilon_of(dtype);
  for (size_t i = 0; i < got.size(); ++i) {
    double g = got[i], w = want[i];
    double tol = 0;
    if (is_floating(dtype)) {
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      if (std::isinf(g) && std::fabs(w) > largest_of(dtype) * (1 - eps) && std::signbit(g) == std::signbit(w)) continue;
      tol = std::isfinite(w) ? bound.of(eps, w) : 0;
    } else {
      w = wrapped(w, dtype);
    }
    if (!(std::fabs(g - w) <= tol))
      return fmt::format("at {} of {} {}: got {}, want {}, error {}, allowed {} (eps {} * {} * (|want| + {}))",
                         place(sizes, static_cast<int64_t>(i)), name_of(dtype), to_string(sizes), g, w,
                         std::fabs(g - w), tol, eps, bound.growth, bound.scale);
  }
  return "";
}

inline std::string compare(const Tensor& got, const Tensor& want, Bound bound) {
  if (!(got.sizes() == want.sizes()))
    return fmt::format("shape {}, want {}", to_string(got.sizes()), to_string(want.sizes()));
  return compare(got.to_vector<double>(), got.dtype(), got.sizes(), want.to_vector<double>(), bound);
}

inline std::string bytes_of(const Tensor& t) {
  Tensor c = t.detach().to(kCPU).contiguous();
  return {static_cast<const char*>(c.data_ptr()), static_cast<size_t>(c.numel()) * c.element_size()};
}
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() && bytes_of(a) == bytes_of(b);
}

// Inputs of a case: as they are given to the op, and the same on the host.
struct CaseInputs {
  Tensors host, given;
  CaseInputs(const std::vector<Arg>& args, DType dtype, uint64_t seed, Layout layout, Device device)
      : host(make_inputs(args, dtype, seed, layout)), given(device.is_cpu() ? host : on_device(host, device)) {}
};

// Remembers the bytes of whole storages, so that writes next to an input are found as well.
class Unchanged {
 public:
  explicit Unchanged(const CaseInputs& in) : Unchanged(in.given, in.host) {}
  // `host`: the same storages in host memory.
  Unchanged(const Tensors& inputs, const Tensors& host) : inputs_(inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& t = inputs[i];
      entries_.push_back(
          {storage_bytes(host[i]), t.defined() ? t.version() : 0, t.defined() ? t.meta().strides : Shape{}});
    }
  }
  // With `written_allowed`, nothing is said about inputs that an op wrote to on purpose.
  std::string problem(bool written_allowed = false) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].defined()) continue;
      bool written = inputs_[i].version() != entries_[i].version;
      if (written && written_allowed) continue;
      if (storage_bytes(inputs_[i]) != entries_[i].bytes) return fmt::format("the bytes of input {} changed", i);
      if (written) return fmt::format("the version of input {} changed", i);
      if (!(inputs_[i].strides() == entries_[i].strides)) return fmt::format("the strides of input {} changed", i);
    }
    return "";
  }

 private:
  struct Entry {
    std::string bytes;
    uint32_t version;
    Shape strides;
  };
  static std::string storage_bytes(const Tensor& t) {
    if (!t.defined()) return {};
    const Storage& s = *t.impl()->storage;
    if (s.device.is_cpu()) return {static_cast<const char*>(s.data), s.nbytes};
    int64_t count = static_cast<int64_t>(s.nbytes / t.element_size());
    return bytes_of(Tensor(make_alias(*t.impl(), Meta::dense({count}, t.dtype(), s.device), -t.storage_offset())));
  }
  Tensors inputs_;
  std::vector<Entry> entries_;
};

// The exact class of an error.
inline std::string class_of(const std::exception& e) {
#define DEFT_CLASS(name) \
  if (typeid(e) == typeid(name)) return #name;
  DEFT_CLASS(ShapeError)
  DEFT_CLASS(DTypeError)
  DEFT_CLASS(DeviceError)
  DEFT_CLASS(IndexError)
  DEFT_CLASS(ValueError)
  DEFT_CLASS(UnsupportedError)
  DEFT_CLASS(GradError)
  DEFT_CLASS(InplaceError)
  DEFT_CLASS(InferenceError)
  DEFT_CLASS(SyncError)
  DEFT_CLASS(OutOfMemoryError)
  DEFT_CLASS(InternalError)
  DEFT_CLASS(Error)
#undef DEFT_CLASS
  return typeid(e).name();
}

// Which of several bad values a kernel reports first is not said on a device.
inline std::string without_places(const std::string& text) {
  static const std::regex place_text(R"((position|element) (\([0-9, ]*\)|[0-9]+))");
  return std::regex_replace(text, place_text, "$1 #");
}

// A message is one sentence that begins with who is speaking.
inline std::string sentence_problem(const std::string& text) {
  if (text.find('\n') != text.npos) return "the message has several lines: " + text;
  if (text.find(": ") == text.npos) return "the message does not begin with the op's name: " + text;
  if (text.find(". ") != text.npos || text.back() == '.') return "the message is more than one bare sentence: " + text;
  if (text.find("{}") != text.npos) return "the message has an unfilled place: " + text;
  return "";
}

}  // namespace deft::testing
