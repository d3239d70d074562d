// Tensors as text, numbers first, in PyTorch's style.
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/capture_hook.h"
#include "core/core_ops.h"
#include "core/graph_stats.h"
#include "core/tensor.h"

namespace deft {

namespace {

constexpr int64_t kSummarizeAbove = 1000;
constexpr int64_t kEdgeItems = 3;
constexpr int64_t kLineWidth = 80;

// Calls f(i) for the shown indices of a dim, and f(-1) where items are left out.
template <class F>
void for_shown(int64_t size, bool summarize, F&& f) {
  if (!summarize || size <= 2 * kEdgeItems) {
    for (int64_t i = 0; i < size; ++i) f(i);
    return;
  }
  for (int64_t i = 0; i < kEdgeItems; ++i) f(i);
  f(-1);
  for (int64_t i = size - kEdgeItems; i < size; ++i) f(i);
}

struct Printer {
  const Tensor& t;
  bool summarize = t.numel() > kSummarizeAbove;
  bool whole = true;  // all shown values are whole numbers
  bool scientific = false;
  size_t width = 0;

  template <class V>
  V read(int64_t at) const {
    return dispatch_all(t.dtype(), [&]<class T>() -> V {
      const T& v = static_cast<const T*>(t.data_ptr())[at];
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
        return static_cast<V>(static_cast<float>(v));
      else
        return static_cast<V>(v);
    });
  }

  template <class F>
  void each(int dim, int64_t at, F&& f) const {
    if (dim == t.dim()) return f(at);
    for_shown(t.sizes()[dim], summarize, [&](int64_t i) {
      if (i >= 0) each(dim + 1, at + i * t.strides()[dim], f);
    });
  }

  void choose_format() {
    if (is_floating(t.dtype())) {
      double high = 0, low = INFINITY;
      each(0, 0, [&](int64_t at) {
        double v = std::abs(read<double>(at));
        if (!std::isfinite(v) || v == 0) return;
        high = std::max(high, v);
        low = std::min(low, v);
        whole &= v == std::ceil(v);
      });
      if (high > 0) scientific = high / low > 1000 || high > 1e8 || (!whole && low < 1e-4);
    }
    each(0, 0, [&](int64_t at) { width = std::max(width, number(at).size()); });
  }

  std::string number(int64_t at) const {
    if (t.dtype() == DType::boolean) return read<int64_t>(at) ? "True" : "False";
    if (!is_floating(t.dtype())) return std::to_string(read<int64_t>(at));
    double v = read<double>(at);
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    if (scientific) return fmt::format("{:.4e}", v);
    return whole ? fmt::format("{:.0f}.", v) : fmt::format("{:.4f}", v);
  }

  void row(std::string& out, int64_t at, int indent) const {
    int64_t per_line = std::max<int64_t>(1, (kLineWidth - indent) / static_cast<int64_t>(width + 2));
    int64_t written = 0;
    out += '[';
    for_shown(t.sizes().back(), summarize, [&](int64_t i) {
      if (written) out += written % per_line == 0 ? ",\n" + std::string(static_cast<size_t>(indent) + 1, ' ') : ", ";
      ++written;
      out += i < 0 ? " ..." : fmt::format("{:>{}}", number(at + i * t.strides().back()), width);
    });
    out += ']';
  }

  void block(std::string& out, int dim, int64_t at) const {
    if (dim == t.dim() - 1) return row(out, at, dim);
    std::string gap = "," + std::string(static_cast<size_t>(t.dim() - dim - 1), '\n') +
                      std::string(static_cast<size_t>(dim) + 1, ' ');
    bool first = true;
    out += '[';
    for_shown(t.sizes()[dim], summarize, [&](int64_t i) {
      if (!first) out += gap;
      first = false;
      if (i < 0)
        out += "...";
      else
        block(out, dim + 1, at + i * t.strides()[dim]);
    });
    out += ']';
  }
};

std::string numbers(const Tensor& t) {
  if (t.numel() == 0) return t.dim() == 1 ? "[]" : "[], size=" + to_string(t.sizes());
  Printer p{t};
  p.choose_format();
  if (t.dim() == 0) return p.number(0);
  std::string out;
  p.block(out, 0, 0);
  return out;
}

}  // namespace

std::string Tensor::to_string(Site site) const {
  if (!defined()) return "(undefined)";
  note_host_read("to_string", *this, site);
  std::string out;
  if (device().is_cpu()) {
    out = numbers(*this);
  } else {
    out = numbers(detail::to_host(detach(), "printing", site));
  }
  if (dtype() != DType::f32 && dtype() != DType::i64 && dtype() != DType::boolean)
    out += ", dtype=" + std::string(name_of(dtype()));
  if (!device().is_cpu()) out += ", device=" + deft::to_string(device());
  if (requires_grad()) {
    const char* made_by = grad_fn_name();
    out += *made_by ? ", grad_fn=<" + std::string(made_by) + ">" : ", requires_grad";
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, SitedTensor t) { return out << t.tensor.to_string(t.site); }

}  // namespace deft
