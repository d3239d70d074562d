// deft bench rows: what is bound by memory, on 64 MB, against a stream with the same mix of reads and writes.
#include <fmt/format.h>

#include <cmath>

#include "bench/engine.h"
#include "deft/deft.h"

namespace deft::bench {

namespace {

using Op = std::function<Tensor(const Tensor&)>;

// How an op's parameters are made: of type `computed`, with values of type `stored`. An f64 reference has the values of
// what it is compared with.
struct Types {
  DType stored, computed;
};

// Reads and writes in units of the input's size. `terms`: roundings of f32 that add up in one result, for the bound.
struct RowCase {
  const char* name;
  Shape sizes;         // of f32; 16-bit types have twice as many of the first size
  int reads, writes;   // that a forward pass cannot do without
  int backward_reads;  // 0: the gradient is not measured
  double terms, backward_terms;
  std::function<Op(const Shape&, Types)> make;
  int stores = 1;     // roundings to the type of the results
  bool sums = false;  // error relative to the result of |x|, as results near zero are differences of large sums
};

Tensor parameter(int64_t n, Types types, uint64_t draw) {
  RngScope scope({7, draw});
  return randn({n}).to(types.stored).to(types.computed);
}

// Roundings that add up in a sum of n values, whatever its order: n at most, and beyond 8 sqrt(n) with a probability
// below 1e-13, as they are as often up as down.
double roundings(int64_t n) {
  auto count = static_cast<double>(n);
  return std::min(count, 8 * std::sqrt(count));
}

std::vector<RowCase> row_cases(bool quick) {
  const int64_t rows = quick ? 64 : 16384, n = quick ? 64 : 1024, classes = quick ? 128 : 8192;
  const double length = roundings(n);
  const Shape matrix = {rows, n}, logits = {rows * n / classes, classes};
  const Shape images = quick ? Shape{4, 8, 8, 8} : Shape{16, 64, 128, 128};
  const double per_channel = roundings(images[0] * images[2] * images[3]);
  auto plain = [](auto f) { return [f](const Shape&, Types) -> Op { return f; }; };
  auto norm = [=](bool rms) {
    return [=](const Shape& s, Types types) -> Op {
      int64_t last = s[1];
      Tensor weight = parameter(last, types, 1), bias = parameter(last, types, 2);
      return [=](const Tensor& x) { return rms ? rms_norm(x, {last}, weight) : layer_norm(x, {last}, weight, bias); };
    };
  };
  auto batch = [](MemoryFormat format) {
    return [=](const Shape& s, Types types) -> Op {
      int64_t channels = s[1];
      Tensor weight = parameter(channels, types, 1), bias = parameter(channels, types, 2);
      Tensor mean = zeros({channels}, {types.computed}), var = ones({channels}, {types.computed});
      return [=](const Tensor& x) {
        return batch_norm(format == MemoryFormat::contiguous ? x : x.contiguous(format), mean, var, weight, bias, true);
      };
    };
  };
  auto entropy = [](const Shape& s, Types) -> Op {
    return [classes = s[1]](const Tensor& x) {
      RngScope scope({7, 3});
      return cross_entropy(x, randint(0, classes, {x.size(0)}));
    };
  };
  return {
      {"copy", matrix, 1, 1, 0, 0, 0, plain([](const Tensor& x) { return x.clone(); })},
      {"softmax", matrix, 1, 1, 2, length + 32, 2 * length + 64, plain([](const Tensor& x) { return x.softmax(-1); })},
      {"log_softmax", matrix, 1, 1, 2, length + 32, 2 * length + 64,
       plain([](const Tensor& x) { return x.log_softmax(-1); })},
      {"layer_norm", matrix, 1, 1, 2, 2 * length + 16, 4 * length + 64, norm(false)},
      {"rms_norm", matrix, 1, 1, 2, length + 16, 4 * length + 64, norm(true)},
      {"gelu", matrix, 1, 1, 2, 16, 32, plain([](const Tensor& x) { return gelu(x); })},
      {"batch_norm", images, 2, 1, 4, 2 * per_channel + 16, 4 * per_channel + 64, batch(MemoryFormat::contiguous)},
      {"batch_norm_last", images, 2, 1, 4, 2 * per_channel + 16, 4 * per_channel + 64,
       batch(MemoryFormat::channels_last)},
      {"cross_entropy", logits, 1, 0, 1, roundings(classes) + 64, 2 * roundings(classes) + 64, entropy,
       2},  // of the logarithms and of their mean
      {"sum_all", matrix, 1, 0, 0, roundings(rows * n), 0, plain([](const Tensor& x) { return x.sum(); }), 1, true},
      {"sum_rows", matrix, 1, 0, 0, length, 0, plain([](const Tensor& x) { return x.sum({-1}); }), 1, true},
      {"sum_columns", matrix, 1, 0, 0, roundings(rows), 0, plain([](const Tensor& x) { return x.sum({0}); }), 1, true},
      {"transpose", matrix, 1, 1, 0, 0, 0, plain([](const Tensor& x) { return x.t().contiguous(); })},
  };
}

double largest_of(const Tensor& x) { return x.to(f64).abs().amax().item(); }

// Both sides on the first sixteenth of the input: f64 of all of it would take longer than the measurement.
Tensor part_of(const Tensor& x) { return x.narrow(0, 0, std::max<int64_t>(1, x.size(0) / 16)).clone(); }

Accuracy compare(const Tensor& found, const Tensor& exact, const Tensor& size, double terms, int stores) {
  double bound = terms > 0 ? terms * 0x1p-23 + stores * (found.dtype() == bf16 ? 0x1p-8 : 0x1p-24) : 0;
  return {largest_of(found.to(f64) - exact) / largest_of(size), bound};
}

Accuracy forward_accuracy(const RowCase& c, const Tensor& x, DType dtype) {
  NoGradGuard guard;
  Tensor part = part_of(x), wide = part.to(f64);
  Op op = c.make(part.sizes(), {dtype, dtype}), reference = c.make(part.sizes(), {dtype, f64});
  Tensor exact = reference(wide);
  return compare(op(part), exact, c.sums ? reference(wide.abs()) : exact, c.terms, c.stores);
}

Accuracy backward_accuracy(const RowCase& c, const Tensor& x, DType dtype) {
  auto gradient = [&](const Tensor& at, DType type) {
    Tensor leaf = at.detach().requires_grad_();
    Tensor y = c.make(at.sizes(), {dtype, type})(leaf);
    RngScope scope({7, 4});
    Tensor g = y.dim() == 0 ? ones({}, {type}) : randn(y.sizes()).to(dtype).to(type);
    return grad({y}, {leaf}, {g})[0];
  };
  Tensor part = part_of(x), exact = gradient(part.to(f64), f64);
  return compare(gradient(part, dtype), exact, exact, c.backward_terms, c.stores);
}

void measure(EngineRun& run, const RowCase& c, DType dtype, const char* type) {
  std::vector<int64_t> list(c.sizes.begin(), c.sizes.end());
  if (dtype != f32) list[0] *= 2;
  const Shape sizes{IntList(list)};
  std::string name = fmt::format("{} {} {}", c.name, type, fmt::join(list, "x"));
  const bool forward = run.wanted("forward", type), backward = c.backward_reads > 0 && run.wanted("backward", type);
  if ((!forward && !backward) || !run.go_on(name)) return;
  Tensor x = randn(sizes).to(dtype);
  if (std::string_view(c.name).ends_with("_last")) x = x.contiguous(MemoryFormat::channels_last);
  const double bytes = static_cast<double>(x.numel()) * static_cast<double>(size_of(dtype));
  Op op = c.make(sizes, {dtype, dtype});
  if (forward) {
    NoGradGuard guard;
    EngineRow row{.name = name,
                  .family = "forward",
                  .dtype = type,
                  .bytes = bytes * (c.reads + c.writes),
                  .reads = c.reads,
                  .writes = c.writes};
    row.accuracy = forward_accuracy(c, x, dtype);
    run.add(row, [&] { Tensor y = op(x); });
  }
  if (!backward || !run.go_on(name + " backward")) return;
  EngineRow row{.name = fmt::format("{}_backward {} {}", c.name, type, fmt::join(list, "x")),
                .family = "backward",
                .dtype = type,
                .bytes = bytes * (c.backward_reads + 1),
                .reads = c.backward_reads,
                .writes = 1};
  row.accuracy = backward_accuracy(c, x, dtype);
  Tensor leaf = x.detach().requires_grad_();
  Tensor y = op(leaf), g = y.dim() == 0 ? ones({}, {dtype}) : randn(y.sizes()).to(dtype);
  if (std::string_view(c.name).ends_with("_last")) g = g.contiguous(MemoryFormat::channels_last);
  run.add(row, [&] { grad({y}, {leaf}, {g}, {.retain_graph = true}); });
}

Report measure_rows(const EngineOptions& options) {
  EngineRun run(options);
  const std::pair<const char*, DType> types[] = {{"f32", f32}, {"bf16", bf16}};
  for (auto [name, dtype] : types)
    for (const RowCase& c : row_cases(options.quick)) measure(run, c, dtype, name);
  auto rows = [](const char* op) {
    return [op = std::string(op)](const Json& row) {
      return row["dtype"] == "f32" && row["family"] == "forward" && row["case"].get<std::string>().starts_with(op);
    };
  };
  for (const char* op : {"softmax", "layer_norm", "gelu"}) run.add_bar({op, "% of bandwidth", 80, 95}, rows(op));
  return run.finish();
}

}  // namespace

EngineBench rows_bench() {
  return {"rows", "Rows, sums and transposes of 64 MB", {"forward", "backward"}, {"f32", "bf16"}, measure_rows};
}

}  // namespace deft::bench
