#include <algorithm>
#include <numeric>

#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/sample_inputs.h"
#include "ops/view.h"
#include "runtime/random.h"

namespace deft {

namespace {

constexpr double kMargin = 0.05;  // distance from kinks, and between distinct values

bool is_real(const Arg& a) { return a.kind == Arg::Kind::real; }

double uniform(uint64_t seed, uint64_t draw, int64_t i) {
  auto bits = philox({seed, draw}, static_cast<uint64_t>(i));
  return uniform_from_bits(bits[0], bits[1]);
}

double keep_away(const Arg& a, double x) {
  if (std::isnan(a.away_from)) return x;
  double center = a.away_from;
  if (a.period > 0) center += a.period * std::round((x - a.away_from) / a.period);
  double d = x - center;
  if (std::fabs(d) >= kMargin) return x;
  double out = center + (d < 0 ? -1 : 1) * (kMargin + std::fabs(d));
  return out > a.high ? center - kMargin : out < a.low ? center + kMargin : out;
}

std::vector<int64_t> shuffled(int64_t n, uint64_t seed, uint64_t draw) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(uniform(seed, draw, i) * static_cast<double>(i + 1))]);
  return order;
}

// Values of a real argument, before rounding to a floating type.
std::vector<double> real_values(const Arg& a, int64_t n, DType dtype, uint64_t seed, uint64_t draw) {
  std::vector<double> v(static_cast<size_t>(n));
  bool whole = is_integral(dtype);
  std::vector<int64_t> order;
  if (a.distinct) order = shuffled(n, seed, draw);
  double step = std::max(whole ? 1.0 : 2 * kMargin, (a.high - a.low) / static_cast<double>(std::max<int64_t>(n, 1)));
  for (int64_t i = 0; i < n; ++i) {
    double u = uniform(seed, draw + 1000, i);
    double& x = v[static_cast<size_t>(i)];
    if (a.distinct) {
      x = a.low + step * (static_cast<double>(order[static_cast<size_t>(i)]) + (whole ? 0 : 0.5 * u));
    } else {
      x = keep_away(a, a.low + u * (a.high - a.low));
    }
    if (whole) {
      x = std::round(x);
      if (dtype == DType::u8) x = std::fabs(x);
      if (a.period == 0 && x == a.away_from) x += 1;
    }
    if (dtype == DType::boolean) x = u < 0.5;
  }
  return v;
}

std::vector<double> values_of(const Arg& a, int64_t n, DType dtype, uint64_t seed, uint64_t draw) {
  if (is_real(a)) return real_values(a, n, dtype, seed, draw);
  std::vector<double> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    double u = uniform(seed, draw, i);
    v[static_cast<size_t>(i)] =
        a.kind == Arg::Kind::boolean ? u < 0.5 : std::min(a.high, std::floor(a.low + u * (a.high - a.low + 1)));
  }
  if (a.kind == Arg::Kind::index && a.distinct) {
    auto order = shuffled(static_cast<int64_t>(a.high - a.low) + 1, seed, draw);
    for (size_t i = 0; i < v.size() && i < order.size(); ++i) v[i] = a.low + static_cast<double>(order[i]);
  }
  return v;
}

// A dimension along which an argument may repeat its values; -1 if none.
int repeat_dim(const Arg& a) {
  if (!is_real(a) || a.distinct) return -1;
  for (int i = 0; i < a.sizes.size(); ++i)
    if (a.sizes[i] > 1) return i;
  return -1;
}

// Memory of the wanted layout, holding arbitrary values.
Tensor make_room(const Shape& sizes, DType dtype, Layout layout) {
  int rank = sizes.size();
  if (layout == Layout::transposed && rank >= 2) {
    Shape reversed = sizes, dims = sizes;
    for (int i = 0; i < rank; ++i) {
      reversed[i] = sizes[rank - 1 - i];
      dims[i] = rank - 1 - i;
    }
    return zeros(reversed, dtype).permute(dims);
  }
  if (layout == Layout::channels_last && rank >= 3 && rank <= 5) {
    Meta m = Meta::dense(sizes, dtype, kCPU);
    m.set_strides(channels_last_strides(sizes));
    return Tensor(make_tensor(m));
  }
  if (layout == Layout::sliced) {
    // Every other element of rows of odd length, from the second one on.
    Shape room = sizes;
    if (rank == 0) return zeros({3}, dtype).select(0, 1);
    room[rank - 1] = 2 * sizes[rank - 1] + 1;
    return zeros(room, dtype).slice(-1, Slice(1, {}, 2));
  }
  return zeros(sizes, dtype);
}

Tensor placed(const Tensor& x, Device device) {
  if (!x.defined()) return {};
  Meta meta = x.meta();
  meta.device = device;
  int64_t count = static_cast<int64_t>(x.impl()->storage->nbytes / x.element_size());
  if (count == x.numel()) {
    Tensor copy(make_tensor(meta));
    return copy.copy_(x);
  }
  // The whole storage as one line, then the tensor's part of it.
  int64_t offset = x.storage_offset();
  Tensor line(make_alias(*x.impl(), Meta::dense({count}, x.dtype(), kCPU), -offset));
  Tensor copy(make_tensor(Meta::dense({count}, x.dtype(), device)));
  copy.copy_(line);
  return Tensor(make_alias(*copy.impl(), meta, offset));
}

}  // namespace

const char* name_of(Layout layout) {
  constexpr const char* names[kLayoutCount] = {"contiguous", "transposed", "sliced", "expanded", "channels_last"};
  return names[static_cast<int>(layout)];
}

uint64_t seed_of(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return h;
}

bool has_layout(const std::vector<Arg>& args, Layout layout) {
  for (const Arg& a : args) {
    if (a.kind == Arg::Kind::missing) continue;
    int rank = a.sizes.size();
    int64_t n = checked_numel(a.sizes, DType::f64);
    if (layout == Layout::contiguous || (layout == Layout::sliced && n > 0)) return true;
    if (layout == Layout::transposed && rank >= 2 && n > 1) return true;
    if (layout == Layout::channels_last && rank >= 4 && rank <= 5 && n > 1) return true;
    if (layout == Layout::expanded && repeat_dim(a) >= 0) return true;
  }
  return layout == Layout::contiguous;
}

Tensors make_inputs(const std::vector<Arg>& args, DType dtype, uint64_t seed, Layout layout, Device device) {
  Tensors inputs;
  for (size_t i = 0; i < args.size(); ++i) {
    const Arg& a = args[i];
    if (a.kind == Arg::Kind::missing) {
      inputs.emplace_back();
      continue;
    }
    DType own = is_real(a) ? dtype : a.kind == Arg::Kind::index ? DType::i64 : DType::boolean;
    int repeat = layout == Layout::expanded ? repeat_dim(a) : -1;
    Shape sizes = a.sizes;
    if (repeat >= 0) sizes[repeat] = 1;
    Tensor values = empty(sizes, DType::f64);
    auto v = values_of(a, values.numel(), own, seed, i);
    std::copy(v.begin(), v.end(), values.data<double>());
    Tensor t = layout == Layout::contiguous || repeat >= 0 ? values.to(own) : make_room(sizes, own, layout);
    if (layout != Layout::contiguous && repeat < 0) t.copy_(values);
    inputs.push_back(repeat >= 0 ? t.expand(a.sizes) : t);
  }
  return device.is_cpu() ? inputs : on_device(inputs, device);
}

Tensors on_device(const Tensors& inputs, Device device) {
  Tensors out;
  for (const Tensor& x : inputs) out.push_back(placed(x, device));
  return out;
}

Tensors as_reference(const std::vector<Arg>& args, const Tensors& inputs) {
  Tensors out;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!inputs[i].defined()) {
      out.emplace_back();
      continue;
    }
    Tensor x = inputs[i].detach().to(kCPU);
    if (is_real(args[i])) x = x.to(DType::f64);
    out.push_back(x.clone(MemoryFormat::contiguous));
  }
  return out;
}

}  // namespace deft
