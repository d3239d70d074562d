// deft bench gemm: GEMMs of BERT and ResNet-50, small batches, and one row against weights beyond the caches.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "bench/engine.h"
#include "bench/openblas.h"
#include "deft/deft.h"
#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::bench {

namespace {

struct GemmShape {
  const char* family;
  int64_t m, n, k;
};

std::vector<GemmShape> gemm_shapes(bool quick) {
  if (quick) return {{"bert", 16, 48, 32}, {"resnet50", 49, 24, 64}, {"small", 4, 48, 32}, {"gemv", 1, 96, 64}};
  std::vector<GemmShape> shapes;
  constexpr std::pair<int64_t, int64_t> kBert[] = {{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}};
  for (int64_t m : {128, 4096})
    for (auto [n, k] : kBert) shapes.push_back({"bert", m, n, k});
  // Positions x output channels x values under the kernel: the convolutions with at least 256 of these.
  for (GemmShape s : {GemmShape{"resnet50", 3136, 64, 256},
                      {"resnet50", 3136, 64, 576},
                      {"resnet50", 3136, 128, 256},
                      {"resnet50", 784, 128, 512},
                      {"resnet50", 784, 128, 1152},
                      {"resnet50", 784, 512, 256},
                      {"resnet50", 784, 256, 512},
                      {"resnet50", 196, 256, 1024},
                      {"resnet50", 196, 256, 2304},
                      {"resnet50", 196, 1024, 256},
                      {"resnet50", 196, 1024, 512},
                      {"resnet50", 196, 512, 1024},
                      {"resnet50", 49, 512, 2048},
                      {"resnet50", 49, 512, 4608},
                      {"resnet50", 49, 2048, 512},
                      {"resnet50", 49, 2048, 1024}})
    shapes.push_back(s);
  for (int64_t m : {4, 8, 16}) {
    shapes.push_back({"small", m, 768, 768});
    shapes.push_back({"small", m, 3072, 768});
  }
  for (int64_t m : {1, 2, 3, 4, 8, 16}) shapes.push_back({"gemv", m, 16384, 4096});
  return shapes;
}

struct GemmType {
  const char* name;
  DType a, b, c;
  Arithmetic arithmetic;
};
// bf16: activations come as f32 and are converted while they are packed, weights are stored in bf16. bf16bf16:
// activations and results in bf16, as between the layers of a bf16 model.
constexpr GemmType kTypes[] = {
    {"f32", f32, f32, f32, Arithmetic::f32},          {"bf16", f32, bf16, f32, Arithmetic::bf16},
    {"bf16bf16", bf16, bf16, bf16, Arithmetic::bf16}, {"f16", f16, f16, f32, Arithmetic::f16},
    {"u8s8", u8, i8, i8, Arithmetic::int8},           {"s8s8", i8, i8, i8, Arithmetic::int8}};

bool is_bytes(const GemmType& type) { return type.b == i8; }

const cpu::GemmTile* tile_of(const GemmType& type, int64_t m, int64_t n, int64_t k) {
  cpu::Panel panel = cpu::panel_for(type.b, m, n, k);
  if (is_bytes(type)) panel = type.a == u8 ? cpu::Panel::u8s8 : cpu::Panel::s8;
  return cpu::gemm_tiles(panel).empty() ? nullptr : &cpu::best_tile(panel, m, n);
}

// Large ones repeat after 4 M values: drawing them would take longer than the measurement.
Tensor random_matrix(int64_t rows, int64_t columns, DType dtype) {
  const int64_t count = rows * columns, drawn = std::min<int64_t>(count, int64_t{1} << 22);
  Tensor values = dtype == i8   ? randint(-127, 128, {drawn}, {i8})
                  : dtype == u8 ? randint(0, 256, {drawn}, {u8})
                                : randn({drawn}).to(dtype);
  if (drawn == count) return values.view({rows, columns});
  Tensor out = empty({rows, columns}, {dtype});
  const auto size = static_cast<int64_t>(size_of(dtype));
  for (int64_t at = 0; at < count; at += drawn)
    std::memcpy(static_cast<char*>(out.data_ptr()) + at * size, values.data_ptr(),
                static_cast<size_t>(std::min(drawn, count - at) * size));
  return out;
}

// The operands of one GEMM and everything it needs. Scales are powers of two, so that the store is exact and bytes
// can be compared with ==.
struct Operands {
  Operands(const GemmShape& shape, const GemmType& kind)
      : s(shape),
        type(kind),
        a(random_matrix(s.m, s.k, kind.a)),
        b(is_gemv() ? random_matrix(s.n, s.k, kind.b).t() : random_matrix(s.k, s.n, kind.b)),
        c(empty({s.m, s.n}, {kind.c})),
        side_a({kind.a, a.data_ptr(), s.k, 1}),
        side_b({kind.b, b.data_ptr(), b.strides()[1], b.strides()[0]}) {
    for (int64_t j = 0; j < s.n; ++j) scale.push_back(j % 2 ? 0.5f : 1.0f);
  }

  cpu::BlockedGemm problem(const cpu::GemmTile& tile) const {
    cpu::BlockedGemm p{.tile = &tile, .m = s.m, .n = s.n, .k = s.k};
    p.a = &side_a;
    p.b = &side_b;
    p.c = c.data_ptr();
    p.c_dtype = type.c;
    p.c_row = s.n;
    if (is_bytes(type)) {
      p.epilogue.scale = scale.data();
      p.epilogue.out_scale = out_scale();
    }
    return p;
  }
  // Weights as layers keep them, n x k, where they are read in place.
  bool is_gemv() const { return s.family == std::string_view("gemv"); }
  // Sums of k products of bytes, a few of which saturate.
  float out_scale() const { return std::exp2(std::round(std::log2(80 * std::sqrt(static_cast<float>(s.k))))); }

  GemmShape s;
  GemmType type;
  Tensor a, b, c;
  cpu::StridedSource side_a, side_b;
  std::vector<float> scale;
};

// Values as f64, whatever the type.
class Values {
 public:
  // `as`: the type in which GEMMs read them.
  Values(const Tensor& x, DType as) : wide_(x.to(as).to(f64)), data_(wide_.data<double>()), row_(x.size(1)) {}
  double at(int64_t i, int64_t j) const { return data_[i * row_ + j]; }

 private:
  Tensor wide_;
  const double* data_;
  int64_t row_;
};

// c against exact sums on a sample of its elements. Bytes must be the exact ones; otherwise the error over the sum of
// |a| |b|, which k roundings bound: of half a unit each for a chain of multiply-adds, of a whole one where an
// instruction sums groups in its own way.
Accuracy accuracy_of(const Operands& o, const cpu::GemmTile& tile) {
  constexpr int64_t kLayerRows = 5, kColumns = 13;
  // Where the CPU has no bf16 instructions, panels hold f32 and activations are not rounded.
  const DType seen = !is_bytes(o.type) && size_of(tile.panel) == 2 ? o.type.b : o.type.a;
  std::vector<int64_t> rows, columns;
  for (int64_t r = 0; r < std::min(kLayerRows, o.s.m); ++r)
    rows.push_back(r * (o.s.m - 1) / std::max<int64_t>(1, kLayerRows - 1));
  for (int64_t j = 0; j < kColumns; ++j) columns.push_back(j * (o.s.n - 1) / (kColumns - 1));
  Accuracy accuracy;
  accuracy.bound = is_bytes(o.type) ? 0 : static_cast<double>(o.s.k) * (o.type.b == bf16 ? 0x1p-23 : 0x1p-24);
  if (o.type.c == bf16) accuracy.bound += 0x1p-9;  // the result is rounded
  for (int64_t i : rows) {
    Values a(o.a.narrow(0, i, 1), seen), c(o.c.narrow(0, i, 1), o.type.c);
    for (int64_t j : columns) {
      Values b(o.b.narrow(1, j, 1), o.type.b);
      double sum = 0, size = 0;
      for (int64_t p = 0; p < o.s.k; ++p) {
        double term = a.at(0, p) * b.at(p, 0);
        sum += term;
        size += std::abs(term);
      }
      double error = std::abs(c.at(0, j) - sum) / size;
      if (is_bytes(o.type)) {
        double q = std::nearbyint(sum * o.scale[static_cast<size_t>(j)] / o.out_scale());
        error = std::abs(c.at(0, j) - std::clamp(q, -128.0, 127.0));
      }
      accuracy.error = std::max(accuracy.error, error);
    }
  }
  return accuracy;
}

EngineRow row_of(const GemmShape& s, const GemmType& type, const char* variant) {
  EngineRow row{.name = fmt::format("gemm {} {}x{}x{}", type.name, s.m, s.n, s.k),
                .family = s.family,
                .dtype = type.name,
                .variant = variant,
                .flops = 2.0 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k),
                .arithmetic = type.arithmetic};
  if (row.family == "gemv")
    row.bytes = static_cast<double>(s.n * s.k) * static_cast<double>(size_of(type.b));  // the rest is in the caches
  return row;
}

std::vector<Contestant> library_peers(const EngineOptions& options, const Operands& o) {
  const OpenBlas* blas = options.library_peers && o.type.b == f32 ? open_blas() : nullptr;
  if (!blas) return {};
  blas->set_threads(options.threads);
  auto call = [blas, &o, c = empty({o.s.m, o.s.n})] {
    // For one row the weights have the better layout if their rows are columns of B; their values are random.
    if (o.s.m == 1) return blas->sgemv(o.s.n, o.s.k, o.b.data<float>(), o.a.data<float>(), c.data<float>());
    blas->sgemm(o.s.m, o.s.n, o.s.k, o.a.data<float>(), o.b.data<float>(), false, c.data<float>());
  };
  return {{blas->name, call}};
}

// Each variant with the peers: a row of its own, so all its sides are measured at the same time.
void measure_shape(EngineRun& run, const GemmShape& s, const GemmType& type) {
  const cpu::GemmTile* tile = tile_of(type, s.m, s.n, s.k);
  if (!tile) return;  // this CPU lacks the instructions, so the engine has no GEMM of this type
  Operands operands(s, type);
  std::vector<Contestant> others = library_peers(run.options(), operands);
  auto measure = [&](const cpu::BlockedGemm& problem, const char* variant) {
    EngineRow row = row_of(s, type, variant);
    if (!run.go_on(fmt::format("{} {}", row.name, variant))) return;
    auto call = [&] { cpu::run_blocked_gemm(problem); };
    std::memset(operands.c.data_ptr(), 0x55, static_cast<size_t>(operands.c.numel()) * operands.c.element_size());
    call();
    row.accuracy = accuracy_of(operands, *tile);
    run.add(row, call, others);
    bool square = s.m == 4096 && s.n == 768 && s.k == 768;
    if (square || (run.options().quick && row.family == "bert")) run.add_scaling(row, call);
  };
  cpu::BlockedGemm problem = operands.problem(*tile);
  {
    cpu::PackedMatrix packed(*tile, cpu::Side::b, operands.side_b, s.n, s.k);
    cpu::BlockedGemm prepacked = problem;
    prepacked.b = nullptr;
    prepacked.packed_b = &packed;
    measure(prepacked, "prepacked");
  }
  // With few rows packing is most of the work, and who has few rows packs before.
  if (s.m >= 32 || run.options().quick) measure(problem, "packed in the call");
  if (is_bytes(type) && operands.is_gemv()) measure(problem, "in place");
}

// The op as users call it: weights as layers keep them, n x k.
void measure_op(EngineRun& run, const GemmShape& s, const GemmType& type, bool packed) {
  if (is_bytes(type) || s.m >= 32) return;
  EngineRow row = row_of(s, type, packed ? "PackedLinear" : "linear");
  if (!run.go_on(fmt::format("{} {}", row.name, row.variant))) return;
  NoGradGuard guard;
  Tensor x = random_matrix(s.m, s.k, type.b), w = random_matrix(s.n, s.k, type.b);
  const PackedLinear layer(w);
  Tensor y = packed ? layer(x) : linear(x, w), exact = linear(x.to(f64), w.narrow(0, 0, 32).to(f64));
  Tensor size = linear(x.to(f64).abs(), w.narrow(0, 0, 32).to(f64).abs());
  row.accuracy.error = ((y.narrow(1, 0, 32).to(f64) - exact).abs() / size).amax().item();
  row.accuracy.bound = static_cast<double>(s.k) * 0x1p-23 + (type.b == f32 ? 0 : type.b == f16 ? 0x1p-11 : 0x1p-8);
  std::vector<Contestant> others;
  if (const OpenBlas* blas = run.options().library_peers && type.b == f32 && !packed ? open_blas() : nullptr) {
    blas->set_threads(run.options().threads);
    others.push_back({blas->name, [=, c = empty({s.m, s.n})] {
                        if (s.m == 1) return blas->sgemv(s.n, s.k, w.data<float>(), x.data<float>(), c.data<float>());
                        blas->sgemm(s.m, s.n, s.k, x.data<float>(), w.data<float>(), true, c.data<float>());
                      }});
  }
  run.add(
      row, [&] { y = packed ? layer(x) : linear(x, w); }, others);
}

void add_gemm_bars(EngineRun& run) {
  enum class Width { any, narrow, wide };
  auto gemms = [](std::initializer_list<std::string> dtypes, std::string variant, Width width = Width::any) {
    return [names = std::vector<std::string>(dtypes), variant, width](const Json& row) {
      bool large = row["family"] == "bert" || row["family"] == "resnet50";
      bool narrow = row["case"].get<std::string>().find("x64x") != std::string::npos;
      return large && row["variant"] == variant &&
             std::find(names.begin(), names.end(), row["dtype"].get<std::string>()) != names.end() &&
             (width == Width::any || narrow == (width == Width::narrow));
    };
  };
  run.add_bar({"f32 GEMM", "% of FMA peak", 88, 94}, gemms({"f32"}, "prepacked"));
  run.add_bar({"f32 GEMM over the peer", "times faster", 1.2, 1.25, "peer_ratio"}, gemms({"f32"}, "prepacked"));
  run.add_bar({"f32 GEMM over the peer, packed in the call", "times faster", 1.2, 1.25, "peer_ratio"},
              gemms({"f32"}, "packed in the call"));
  run.add_bar({"bf16 GEMM, N >= 128", "% of bf16 peak", 72, 88}, gemms({"bf16"}, "prepacked", Width::wide));
  run.add_bar({"bf16 GEMM, N = 64", "% of bf16 peak", 60, 88}, gemms({"bf16"}, "prepacked", Width::narrow));
  run.add_bar({"int8 GEMM", "% of int8 peak", 70, 88}, gemms({"u8s8", "s8s8"}, "prepacked"));
  // Floats as linear() runs them, bytes from packed weights and in place.
  run.add_bar({"GEMV, weights beyond the caches", "% of read bandwidth", 80, 95}, [](const Json& row) {
    bool bytes = row["dtype"] == "u8s8" || row["dtype"] == "s8s8";
    if (bytes ? row["variant"] == "packed in the call" : row["variant"] != "linear") return false;
    return row["family"] == "gemv" && row["peak"] == "read" &&
           row["case"].get<std::string>().find(" 1x") != std::string::npos;
  });
  run.add_bar({"threads", "times as fast as 1", 1.85, 1.95, "scaling"}, [](const Json&) { return true; });
}

Report measure_gemm(const EngineOptions& options) {
  EngineRun run(options);
  for (const GemmType& type : kTypes) {
    for (const GemmShape& s : gemm_shapes(options.quick)) {
      if (!run.wanted(s.family, type.name)) continue;
      measure_shape(run, s, type);
      measure_op(run, s, type, false);
      if (s.family == std::string_view("gemv")) measure_op(run, s, type, true);
    }
  }
  add_gemm_bars(run);
  return run.finish();
}

}  // namespace

EngineBench gemm_bench() {
  return {
      "gemm",       "GEMM", {"bert", "resnet50", "small", "gemv"}, {"f32", "bf16", "bf16bf16", "f16", "u8s8", "s8s8"},
      measure_gemm, true};
}

}  // namespace deft::bench
