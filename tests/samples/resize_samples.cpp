#include "ops/resize.h"

#include <algorithm>

#include "ops/sample.h"
#include "samples/reference.h"

namespace deft {

namespace {

using List = std::vector<int64_t>;
using Mode = InterpolateMode;
using reference::python_list;

int64_t entry(const List& list, int d) { return list[list.size() == 1 ? 0 : static_cast<size_t>(d)]; }

// --- interpolate -----------------------------------------------------------------------------------------------

struct Tap {
  int64_t at;
  double weight;
};
using Taps = std::vector<Tap>;

double cubic_weight(double distance) {
  constexpr double a = -0.75;
  double d = std::fabs(distance);
  if (d >= 2) return 0;
  return d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1 : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a;
}

// What output o is made of. scale: the factor the caller gave, 0 if sizes were given.
Taps taps_of(Mode mode, bool align, int64_t in, int64_t out, double scale, int64_t o) {
  double step = scale > 0 ? 1 / scale : static_cast<double>(in) / static_cast<double>(out);
  if (mode == Mode::nearest || mode == Mode::nearest_exact) {
    int64_t half = mode == Mode::nearest_exact;
    int64_t at = scale > 0 ? static_cast<int64_t>((static_cast<double>(o) + 0.5 * static_cast<double>(half)) * step)
                           : (2 * o + half) * in / (2 * out);
    return {{std::min(at, in - 1), 1}};
  }
  double at = step * (static_cast<double>(o) + 0.5) - 0.5;
  if (align) at = out > 1 ? static_cast<double>(o * (in - 1)) / static_cast<double>(out - 1) : 0;
  Taps taps;
  if (mode == Mode::linear) at = std::clamp(at, 0.0, static_cast<double>(in - 1));
  auto low = static_cast<int64_t>(std::floor(at));
  for (int64_t i = low - 1; i <= low + 2; ++i) {
    double distance = at - static_cast<double>(i);
    double w = mode == Mode::linear ? std::max(0.0, 1 - std::fabs(distance)) : cubic_weight(distance);
    taps.push_back({std::clamp<int64_t>(i, 0, in - 1), w});
  }
  return taps;
}

struct Resize {
  Mode mode = Mode::nearest;
  bool align = false;
  List size{};                  // or
  std::vector<double> scale{};  // as the user gives it
};

Tensor naive_interpolate(const Tensor& x, const Resize& r) {
  int n = x.dim() - 2;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  double scale[3] = {};
  Shape sizes = x.sizes();
  for (int d = 0; d < n; ++d) {
    int k = 3 - n + d;
    in[k] = x.sizes()[d + 2];
    if (r.size.empty()) scale[k] = r.scale[r.scale.size() == 1 ? 0 : static_cast<size_t>(d)];
    sizes[d + 2] = out[k] =
        r.size.empty() ? static_cast<int64_t>(static_cast<double>(in[k]) * scale[k]) : entry(r.size, d);
  }
  auto taps = [&](int k, int64_t o) {
    return k < 3 - n ? Taps{{0, 1}} : taps_of(r.mode, r.align, in[k], out[k], scale[k], o);
  };
  Tensor y = zeros(sizes, DType::f64);
  double* to = y.data<double>();
  for (int64_t plane = 0; plane < x.sizes()[0] * x.sizes()[1]; ++plane)
    for (int64_t a = 0; a < out[0]; ++a)
      for (int64_t b = 0; b < out[1]; ++b)
        for (int64_t c = 0; c < out[2]; ++c, ++to)
          for (Tap z : taps(0, a))
            for (Tap v : taps(1, b))
              for (Tap u : taps(2, c))
                *to += z.weight * v.weight * u.weight *
                       x.data<double>()[((plane * in[0] + z.at) * in[1] + v.at) * in[2] + u.at];
  return y;
}

Tensors call_interpolate(const Tensors& t, const Resize& r) {
  if (r.size.empty()) return {interpolate_scale(t[0], r.scale, r.mode, r.align)};
  return {interpolate(t[0], r.size, r.mode, r.align)};
}

std::string torch_interpolate(const Resize& r, int n) {
  std::string s = "F.interpolate(a, ";
  std::string list;
  for (int d = 0; d < n; ++d) {
    list += d ? ", " : "";
    list += r.size.empty() ? std::to_string(r.scale[r.scale.size() == 1 ? 0 : static_cast<size_t>(d)])
                           : std::to_string(entry(r.size, d));
  }
  constexpr const char* linear[] = {"linear", "bilinear", "trilinear"};
  bool near = r.mode == Mode::nearest || r.mode == Mode::nearest_exact;
  std::string mode = r.mode == Mode::nearest         ? "nearest"
                     : r.mode == Mode::nearest_exact ? "nearest-exact"
                     : r.mode == Mode::bicubic       ? "bicubic"
                                                     : linear[n - 1];
  s += (r.size.empty() ? "scale_factor=(" : "size=(") + list + ",), mode='" + mode + "'";
  if (!near) s += std::string(", align_corners=") + (r.align ? "True" : "False");
  return s + ")";
}

}  // namespace

OpSamples Interpolate::samples() {
  // Source positions are computed in f32 for f32: their error grows with the size.
  OpSamples s{.op = "interpolate", .growth = 96};
  auto add = [&](std::string note, Shape sizes, Resize r) {
    s.good.push_back({note,
                      {real(sizes)},
                      [r](const Tensors& t) { return call_interpolate(t, r); },
                      [r](const Tensors& t) { return Tensors{naive_interpolate(t[0], r)}; },
                      torch_interpolate(r, sizes.size() - 2)});
  };
  for (Mode m : {Mode::nearest, Mode::nearest_exact, Mode::linear}) {
    std::string name = m == Mode::nearest ? "nearest" : m == Mode::nearest_exact ? "nearest_exact" : "linear";
    add(name + " 1d up", {2, 3, 5}, {.mode = m, .size = {7}});
    add(name + " 1d down", {1, 2, 9}, {.mode = m, .size = {4}});
    add(name + " 1d doubled", {2, 1, 4}, {.mode = m, .scale = {2}});
    add(name + " 1d factor", {1, 2, 7}, {.mode = m, .scale = {1.7}});
    add(name + " 2d up", {1, 2, 3, 4}, {.mode = m, .size = {5, 7}});
    add(name + " 2d down", {2, 1, 6, 7}, {.mode = m, .size = {4, 3}});
    add(name + " 2d both ways", {1, 3, 3, 8}, {.mode = m, .size = {8, 3}});
    add(name + " 2d one size", {1, 1, 4, 6}, {.mode = m, .size = {5}});
    add(name + " 2d factors", {1, 2, 4, 6}, {.mode = m, .scale = {2.3, 0.6}});
    add(name + " 2d halved", {2, 2, 6, 4}, {.mode = m, .scale = {0.5}});
    add(name + " 2d same", {1, 2, 3, 5}, {.mode = m, .size = {3, 5}});
    add(name + " 2d to one", {1, 2, 4, 5}, {.mode = m, .size = {1}});
    add(name + " 2d from one", {1, 2, 1, 1}, {.mode = m, .size = {3, 4}});
    add(name + " 2d no samples", {0, 2, 3, 3}, {.mode = m, .size = {5}});
    add(name + " 3d up", {1, 2, 2, 3, 2}, {.mode = m, .size = {3, 5, 4}});
    add(name + " 3d mixed", {2, 1, 4, 3, 3}, {.mode = m, .size = {2, 5, 3}});
    add(name + " 3d factor", {1, 1, 2, 3, 4}, {.mode = m, .scale = {1.5, 2, 0.75}});
  }
  add("linear 1d aligned", {2, 2, 5}, {.mode = Mode::linear, .align = true, .size = {8}});
  add("linear 1d aligned down", {1, 2, 8}, {.mode = Mode::linear, .align = true, .size = {3}});
  add("linear 1d aligned factor", {1, 2, 5}, {.mode = Mode::linear, .align = true, .scale = {1.7}});
  add("linear 2d aligned", {1, 2, 3, 4}, {.mode = Mode::linear, .align = true, .size = {6, 3}});
  add("linear 2d aligned to one", {1, 2, 3, 4}, {.mode = Mode::linear, .align = true, .size = {1, 5}});
  add("linear 2d aligned from one", {1, 2, 1, 4}, {.mode = Mode::linear, .align = true, .size = {3, 2}});
  add("linear 3d aligned", {1, 1, 2, 3, 4}, {.mode = Mode::linear, .align = true, .size = {4, 2, 5}});
  add("linear 2d large", {2, 9, 31, 33}, {.mode = Mode::linear, .size = {45, 50}});
  for (bool align : {false, true}) {
    std::string name = align ? "bicubic aligned" : "bicubic";
    add(name + " up", {1, 2, 4, 5}, {.mode = Mode::bicubic, .align = align, .size = {7, 9}});
    add(name + " down", {2, 1, 7, 6}, {.mode = Mode::bicubic, .align = align, .size = {3, 4}});
    add(name + " factor", {1, 2, 4, 5}, {.mode = Mode::bicubic, .align = align, .scale = {1.6, 0.7}});
    add(name + " doubled", {1, 1, 3, 4}, {.mode = Mode::bicubic, .align = align, .scale = {2}});
    add(name + " small", {1, 2, 1, 2}, {.mode = Mode::bicubic, .align = align, .size = {3, 5}});
    add(name + " to one", {1, 1, 4, 4}, {.mode = Mode::bicubic, .align = align, .size = {1}});
  }
  auto bad = [&](std::string note, Shape sizes, Resize r, std::string error, std::string text) {
    s.bad.push_back({note, {real(sizes)}, [r](const Tensors& t) { return call_interpolate(t, r); }, error, text});
  };
  bad("two dims", {3, 4}, {.size = {2}}, "ShapeError", "interpolate: needs N, C and 1 to 3 spatial dimensions");
  bad("0-d", {}, {.size = {2}}, "ShapeError", "interpolate: needs N, C");
  bad("six dims", {1, 1, 2, 2, 2, 2}, {.size = {2}}, "ShapeError", "interpolate: needs N, C");
  bad("bicubic 1d", {1, 1, 4}, {.mode = Mode::bicubic, .size = {2}}, "ShapeError", "bicubic needs 4 dimensions");
  bad("bicubic 3d", {1, 1, 4, 4, 4}, {.mode = Mode::bicubic, .size = {2}}, "ShapeError", "bicubic needs 4 dimensions");
  bad("nearest aligned", {1, 1, 4}, {.align = true, .size = {2}}, "ValueError", "align_corners has no meaning");
  bad("nearest_exact aligned", {1, 1, 4}, {.mode = Mode::nearest_exact, .align = true, .size = {2}}, "ValueError",
      "align_corners");
  bad("size 0", {1, 1, 4, 4}, {.size = {2, 0}}, "ShapeError", "sizes must be positive");
  bad("size negative", {1, 1, 4, 4}, {.size = {-2}}, "ShapeError", "sizes must be positive");
  bad("empty image", {1, 1, 0, 4}, {.size = {2}}, "ShapeError", "sizes must be positive");
  bad("size count", {1, 1, 4, 4}, {.size = {2, 2, 2}}, "ValueError", "3 sizes given for shape [1, 1, 4, 4]");
  bad("factor count", {1, 1, 4, 4}, {.scale = {2, 2, 2}}, "ValueError", "3 factors given for shape [1, 1, 4, 4]");
  bad("factor 0", {1, 1, 4}, {.scale = {0}}, "ValueError", "a factor must be positive, found 0");
  bad("factor NaN", {1, 1, 4}, {.scale = {NAN}}, "ValueError", "a factor must be positive");
  bad("factor infinite", {1, 1, 4}, {.scale = {HUGE_VAL}}, "ValueError", "a factor must be positive");
  bad("factor to nothing", {1, 1, 4}, {.scale = {0.2}}, "ShapeError", "sizes must be positive");
  bad("factor huge", {1, 1, 4}, {.scale = {1e300}}, "ShapeError", "too large");
  bad("size huge", {1, 1, 4, 4}, {.size = {INT64_MAX}}, "ShapeError", "");
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [](const Tensors& t) { return Tensors{interpolate(t[0], {2})}; },
                   "ValueError",
                   "undefined"});
  return s;
}

// --- pad -------------------------------------------------------------------------------------------------------

namespace {

int64_t pad_source(PadMode mode, int64_t i, int64_t n) {
  int64_t period = mode == PadMode::reflect ? 2 * (n - 1) : n;
  switch (mode) {
    case PadMode::constant:
      return i >= 0 && i < n ? i : -1;
    case PadMode::replicate:
      return std::clamp<int64_t>(i, 0, n - 1);
    default:
      break;
  }
  if (period == 0) return 0;
  int64_t m = (i % period + period) % period;
  return m < n ? m : period - m;
}

Tensor naive_pad(const Tensor& x, const List& amounts, PadMode mode, double value) {
  Shape sizes = x.sizes();
  int rank = x.dim();
  List before(static_cast<size_t>(rank));
  for (size_t i = 0; i < amounts.size() / 2; ++i) {
    int d = rank - 1 - static_cast<int>(i);
    before[static_cast<size_t>(d)] = amounts[2 * i];
    sizes[d] += amounts[2 * i] + amounts[2 * i + 1];
  }
  Tensor y = empty(sizes, DType::f64);
  for (int64_t n = 0; n < y.numel(); ++n) {
    int64_t rest = n, at = 0, step = 1;
    bool inside = true;
    for (int d = rank - 1; d >= 0; --d) {
      int64_t from = pad_source(mode, rest % sizes[d] - before[static_cast<size_t>(d)], x.sizes()[d]);
      inside = inside && from >= 0;
      at += from * step;
      step *= x.sizes()[d];
      rest /= sizes[d];
    }
    y.data<double>()[n] = inside ? x.data<double>()[at] : value;
  }
  return y;
}

}  // namespace

OpSamples Pad::samples() {
  OpSamples s{.op = "pad", .dtypes = kAllTypes};
  auto add = [&](std::string note, Shape sizes, List amounts, PadMode mode = PadMode::constant, double value = 0,
                 bool in_torch = true) {
    constexpr const char* names[] = {"constant", "reflect", "replicate", "circular"};
    std::string name = names[static_cast<int>(mode)];
    std::string torch = "F.pad(a, " + python_list(amounts) + ", mode='" + name + "'" +
                        (mode == PadMode::constant ? ", value=" + std::to_string(value) : "") + ")";
    s.good.push_back({name + " " + note,
                      {real(sizes)},
                      [=](const Tensors& t) { return Tensors{pad(t[0], amounts, mode, value)}; },
                      [=](const Tensors& t) { return Tensors{naive_pad(t[0], amounts, mode, value)}; },
                      in_torch ? torch : ""});
  };
  add("vector", {5}, {2, 1});
  add("last dim", {3, 4}, {1, 2});
  add("two dims", {2, 3, 4}, {1, 0, 2, 3});
  add("all dims", {2, 3, 2}, {1, 1, 0, 2, 3, 0}, PadMode::constant, 1.5);
  add("value", {2, 3}, {2, 2, 1, 0}, PadMode::constant, 3);
  add("image", {2, 3, 5, 4}, {1, 2, 3, 4});
  add("crop", {4, 7}, {-2, -1, -1, 0});
  add("crop and pad", {5, 6}, {-2, 3, 1, -1}, PadMode::constant, 2);
  add("crop to nothing", {3, 4}, {-2, -2});
  add("nothing to do", {2, 3}, {0, 0});
  add("no amounts", {2, 3}, {}, PadMode::constant, 0, false);
  add("0-d", {}, {}, PadMode::constant, 0, false);
  add("from nothing", {0, 3}, {0, 1, 2, 1}, PadMode::constant, 1);
  add("of nothing", {0, 3}, {1, 1});
  add("five dims", {1, 2, 1, 3, 2}, {1, 0, 0, 1, 2, 1, 0, 1, 1, 0});
  add("long lines", {3, 517}, {9, 14, 1, 1}, PadMode::constant, 0.5);
  for (PadMode m : {PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    add("1d", {2, 3, 5}, {2, 4}, m);
    add("1d one side", {1, 2, 6}, {0, 3}, m);
    add("2d", {2, 1, 4, 5}, {1, 3, 2, 0}, m);
    add("2d all", {1, 2, 3, 4}, {3, 3, 2, 2}, m);
    add("3d", {1, 2, 3, 2, 4}, {2, 1, 1, 0, 2, 2}, m);
    add("vector", {5}, {2, 3}, m, 0, false);
    add("rows of two dims", {4, 3}, {0, 0, 1, 2}, m, 0, false);
    add("nothing to do", {1, 2, 3}, {0, 0}, m);
    add("no samples", {0, 2, 4}, {1, 2}, m, 0, false);
    add("large", {4, 5, 40, 37}, {3, 2, 4, 1}, m);
  }
  for (PadMode m : {PadMode::reflect, PadMode::replicate}) {
    add("crop", {1, 2, 4}, {-1, 0}, m);
    add("crop and pad", {1, 2, 4, 5}, {2, -1, -2, 1}, m);
  }
  add("far", {1, 2, 2, 3}, {7, 5, 0, 9}, PadMode::replicate);
  add("size one", {1, 1, 1}, {2, 3}, PadMode::replicate);
  add("size one", {1, 1, 1}, {1, 1}, PadMode::circular);
  add("whole turn", {1, 2, 4}, {4, 4}, PadMode::circular);

  auto bad = [&](std::string note, Shape sizes, List amounts, PadMode mode, std::string error, std::string text) {
    s.bad.push_back(
        {note, {real(sizes)}, [=](const Tensors& t) { return Tensors{pad(t[0], amounts, mode)}; }, error, text});
  };
  bad("odd count", {2, 3}, {1, 1, 1}, PadMode::constant, "ShapeError",
      "pad: 3 amounts do not fit a tensor of shape [2, 3]");
  bad("too many", {3}, {1, 1, 1, 1}, PadMode::constant, "ShapeError", "pad: 4 amounts do not fit");
  bad("0-d", {}, {1, 1}, PadMode::constant, "ShapeError", "pad: 2 amounts do not fit");
  bad("crop too much", {2, 3}, {-2, -2}, PadMode::constant, "ShapeError", "leave a negative size at dimension 1");
  bad("huge", {2, 3}, {INT64_MAX, 1}, PadMode::constant, "ShapeError", "too large");
  bad("large", {2, 3}, {int64_t{1} << 59, 0, int64_t{1} << 59, 0}, PadMode::constant, "ShapeError", "");
  bad("reflect too far", {1, 2, 3}, {3, 0}, PadMode::reflect, "ShapeError",
      "pad: amounts 3 and 0 do not work for size 3");
  bad("circular too far", {1, 2, 3}, {0, 4}, PadMode::circular, "ShapeError",
      "pad: amounts 0 and 4 do not work for size 3");
  bad("reflect of nothing", {1, 2, 0}, {1, 0}, PadMode::reflect, "ShapeError", "do not work for size 0");
  bad("replicate of nothing", {1, 2, 0}, {1, 0}, PadMode::replicate, "ShapeError", "do not work for size 0");
  bad("circular of nothing", {1, 2, 0}, {0, 1}, PadMode::circular, "ShapeError", "do not work for size 0");
  bad("replicate crop to nothing", {1, 2, 4}, {-2, -2}, PadMode::replicate, "ShapeError", "leave nothing");
  bad("four dims", {1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}, PadMode::replicate, "ShapeError",
      "at most 3 dimensions, found 4");
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [](const Tensors& t) {
                     return Tensors{pad(t[0], {1, 1})};
                   },
                   "ValueError",
                   "undefined"});
  return s;
}

// --- unfold, fold ----------------------------------------------------------------------------------------------

namespace {

struct Blocks {
  List kernel, dilation{1}, padding{0}, stride{1};
};

// Calls f(flat element of the image, flat element of the columns) for every pair that unfold copies. Gives the shape
// [C kh kw, positions].
template <class F>
std::pair<int64_t, int64_t> for_each_copy(const Blocks& b, int64_t n, int64_t channels, int64_t h, int64_t w, F f) {
  auto count = [&](int64_t size, int d) {
    return (size + 2 * entry(b.padding, d) - entry(b.dilation, d) * (entry(b.kernel, d) - 1) - 1) / entry(b.stride, d) +
           1;
  };
  int64_t kh = entry(b.kernel, 0), kw = entry(b.kernel, 1), oh = count(h, 0), ow = count(w, 1);
  int64_t column = 0;
  for (int64_t plane = 0; plane < n * channels; ++plane)
    for (int64_t i = 0; i < kh; ++i)
      for (int64_t j = 0; j < kw; ++j)
        for (int64_t p = 0; p < oh * ow; ++p, ++column) {
          int64_t y = p / ow * entry(b.stride, 0) - entry(b.padding, 0) + i * entry(b.dilation, 0);
          int64_t x = p % ow * entry(b.stride, 1) - entry(b.padding, 1) + j * entry(b.dilation, 1);
          if (y >= 0 && y < h && x >= 0 && x < w) f((plane * h + y) * w + x, column);
        }
  return {channels * kh * kw, oh * ow};
}

Tensor naive_unfold(const Tensor& x, const Blocks& b) {
  bool batched = x.dim() == 4;
  int64_t n = batched ? x.sizes()[0] : 1, c = x.size(-3), h = x.size(-2), w = x.size(-1);
  auto [rows, positions] = for_each_copy(b, 0, c, h, w, [](int64_t, int64_t) {});
  Tensor y = zeros(batched ? Shape{n, rows, positions} : Shape{rows, positions}, DType::f64);
  for_each_copy(b, n, c, h, w, [&](int64_t from, int64_t to) { y.data<double>()[to] = x.data<double>()[from]; });
  return y;
}

Tensor naive_fold(const Tensor& columns, const List& output, const Blocks& b) {
  bool batched = columns.dim() == 3;
  int64_t n = batched ? columns.sizes()[0] : 1, c = columns.size(-2) / (entry(b.kernel, 0) * entry(b.kernel, 1));
  int64_t h = entry(output, 0), w = entry(output, 1);
  Tensor y = zeros(batched ? Shape{n, c, h, w} : Shape{c, h, w}, DType::f64);
  for_each_copy(b, n, c, h, w, [&](int64_t to, int64_t from) { y.data<double>()[to] += columns.data<double>()[from]; });
  return y;
}

std::string torch_blocks(const Blocks& b) {
  auto text = [](const List& l) { return l.size() == 1 ? std::to_string(l[0]) : python_list(l); };
  return text(b.kernel) + ", " + text(b.dilation) + ", " + text(b.padding) + ", " + text(b.stride) + ")";
}

}  // namespace

OpSamples Unfold::samples() {
  OpSamples s{.op = "unfold", .dtypes = kNumbers};
  auto add = [&](std::string note, Shape sizes, Blocks b) {
    s.good.push_back(
        {note,
         {real(sizes)},
         [=](const Tensors& t) { return Tensors{unfold(t[0], b.kernel, b.dilation, b.padding, b.stride)}; },
         [=](const Tensors& t) { return Tensors{naive_unfold(t[0], b)}; },
         "F.unfold(a, " + torch_blocks(b)});
  };
  add("one number", {2, 3, 4, 5}, {{2}});
  add("kernel of all", {1, 2, 3, 4}, {{3, 4}});
  add("kernel 1", {2, 2, 3, 3}, {{1}});
  add("uneven kernel", {1, 2, 5, 4}, {{3, 2}});
  add("stride", {1, 2, 6, 7}, {{2}, {1}, {0}, {2, 3}});
  add("padding", {2, 1, 3, 4}, {{3, 2}, {1}, {2, 1}});
  add("dilation", {1, 2, 6, 5}, {{2}, {3, 2}});
  add("all different", {2, 2, 5, 6}, {{3, 2}, {1, 2}, {2, 1}, {2, 1}});
  add("padding wider than kernel", {1, 1, 2, 3}, {{2}, {1}, {3}, {2}});
  add("unbatched", {2, 4, 5}, {{2, 3}, {1}, {1}, {2}});
  add("size one", {1, 1, 1, 1}, {{1}});
  add("large", {3, 5, 24, 23}, {{3}, {1}, {1}});
  s.good.push_back({"no samples",
                    {real({0, 2, 4, 4})},
                    [](const Tensors& t) { return Tensors{unfold(t[0], {2})}; },
                    [](const Tensors& t) { return Tensors{naive_unfold(t[0], {{2}})}; }});
  auto bad = [&](std::string note, Shape sizes, Blocks b, std::string error, std::string text) {
    s.bad.push_back({note,
                     {real(sizes)},
                     [=](const Tensors& t) { return Tensors{unfold(t[0], b.kernel, b.dilation, b.padding, b.stride)}; },
                     error,
                     text});
  };
  bad("two dims", {4, 4}, {{2}}, "ShapeError", "unfold: needs N, C, H, W");
  bad("five dims", {1, 1, 4, 4, 4}, {{2}}, "ShapeError", "unfold: needs N, C, H, W");
  bad("kernel 0", {1, 1, 4, 4}, {{0}}, "ValueError", "unfold: kernel 0");
  bad("stride 0", {1, 1, 4, 4}, {{2}, {1}, {0}, {1, 0}}, "ValueError", "stride 0");
  bad("dilation 0", {1, 1, 4, 4}, {{2}, {0}}, "ValueError", "dilation 0");
  bad("padding negative", {1, 1, 4, 4}, {{2}, {1}, {-1}}, "ValueError", "padding -1");
  bad("huge", {1, 1, 4, 4}, {{2}, {INT64_MAX}}, "ValueError", "below 2^31");
  bad("does not fit", {1, 1, 4, 3}, {{2, 3}, {1, 2}}, "ShapeError",
      "unfold: kernel 3 with dilation 2 does not fit into size 3");
  bad("list", {1, 1, 4, 4}, {{2, 2, 2}}, "ValueError", "lists take 1 or 2 numbers, found 3");
  bad("empty list", {1, 1, 4, 4}, {{2}, {}}, "ValueError", "lists take 1 or 2 numbers, found 0");
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [](const Tensors& t) { return Tensors{unfold(t[0], {2})}; },
                   "ValueError",
                   "undefined"});
  return s;
}

OpSamples Fold::samples() {
  OpSamples s{.op = "fold", .dtypes = kNumbers};
  auto add = [&](std::string note, Shape sizes, List output, Blocks b) {
    auto text = output.size() == 1 ? "(" + std::to_string(output[0]) + ",) * 2" : python_list(output);
    s.good.push_back(
        {note,
         {real(sizes)},
         [=](const Tensors& t) { return Tensors{fold(t[0], output, b.kernel, b.dilation, b.padding, b.stride)}; },
         [=](const Tensors& t) { return Tensors{naive_fold(t[0], output, b)}; },
         "F.fold(a, " + text + ", " + torch_blocks(b)});
  };
  add("one number", {2, 12, 9}, {4}, {{2}});
  add("kernel of all", {1, 24, 1}, {3, 4}, {{3, 4}});
  add("kernel 1", {2, 2, 9}, {3}, {{1}});
  add("uneven kernel", {1, 12, 9}, {5, 4}, {{3, 2}});
  add("stride leaves gaps", {1, 8, 6}, {6, 7}, {{2}, {1}, {0}, {2, 3}});
  add("padding", {2, 6, 25}, {3, 4}, {{3, 2}, {1}, {2, 1}});
  add("dilation", {1, 8, 9}, {6, 5}, {{2}, {3, 2}});
  add("all different", {1, 12, 24}, {5, 6}, {{3, 2}, {1, 2}, {2, 1}, {2, 1}});
  add("unbatched", {12, 6}, {4, 6}, {{2, 3}, {1}, {1}, {2, 3}});
  add("size one", {1, 1, 1}, {1}, {{1}});
  add("large", {2, 27, 400}, {20}, {{3}, {1}, {1}});
  s.good.push_back({"no samples",
                    {real({0, 8, 9})},
                    [](const Tensors& t) { return Tensors{fold(t[0], {4}, {2})}; },
                    [](const Tensors& t) { return Tensors{naive_fold(t[0], {4}, {{2}})}; }});
  auto bad = [&](std::string note, Shape sizes, List output, Blocks b, std::string error, std::string text) {
    s.bad.push_back(
        {note,
         {real(sizes)},
         [=](const Tensors& t) { return Tensors{fold(t[0], output, b.kernel, b.dilation, b.padding, b.stride)}; },
         error,
         text});
  };
  bad("one dim", {4}, {3}, {{2}}, "ShapeError", "fold: needs N, C kh kw, positions");
  bad("four dims", {1, 1, 4, 4}, {3}, {{2}}, "ShapeError", "fold: needs N, C kh kw, positions");
  bad("rows", {1, 7, 9}, {4}, {{2}}, "ShapeError", "7 rows are not a multiple of the 4 kernel positions");
  bad("positions", {1, 8, 8}, {4}, {{2}}, "ShapeError", "found 8 positions, expected 3 x 3");
  bad("kernel 0", {1, 8, 9}, {4}, {{0}}, "ValueError", "fold: kernel 0");
  bad("stride 0", {1, 8, 9}, {4}, {{2}, {1}, {0}, {0}}, "ValueError", "stride 0");
  bad("does not fit", {1, 8, 9}, {1}, {{2}}, "ShapeError", "fold: kernel 2 with dilation 1 does not fit");
  bad("output negative", {1, 8, 9}, {-4}, {{2}}, "ShapeError", "a size must not be negative");
  bad("output list", {1, 8, 9}, {4, 4, 4}, {{2}}, "ValueError", "lists take 1 or 2 numbers, found 3");
  bad("huge", {1, 8, 9}, {4}, {{INT64_MAX}}, "ValueError", "below 2^31");
  s.bad.push_back({"undefined",
                   {missing_arg()},
                   [](const Tensors& t) { return Tensors{fold(t[0], {4}, {2})}; },
                   "ValueError",
                   "undefined"});
  return s;
}

}  // namespace deft
