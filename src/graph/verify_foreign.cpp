#include "graph/verify_foreign.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "core/describe.h"
#include "graph/regions.h"
#include "graph/symbolic.h"
#include "ops/elementwise.h"
#include "ops/elementwise_chain.h"
#include "ops/fused_rows.h"
#include "ops/op_table.h"
#include "ops/packed_linear.h"
#include "ops/param_fields.h"

namespace deft::graph {

namespace {

using Chain = ElementwiseChain;

// Inputs that may be missing, by op: bit i for input i.
struct Optional {
  std::string_view op;
  uint32_t inputs;
};
constexpr Optional kOptional[] = {{"linear", 4},
                                  {"fused_linear", 12},
                                  {"convolution", 4},
                                  {"fused_convolution", 12},
                                  {"conv_transpose", 4},
                                  {"layer_norm", 6},
                                  {"rms_norm", 2},
                                  {"group_norm", 6},
                                  {"batch_norm", 30},
                                  {"fused_batch_norm", 62},
                                  {"scaled_dot_product_attention", 8}};

// Ops whose kernels may write their first input; elementwise ones may as well.
constexpr std::string_view kInPlace[] = {"copy_", "fill_", "uniform_", "normal_", "randint_", "elementwise_chain"};
// The first parameter is the number of spatial dimensions, all others are counts of elements.
constexpr std::string_view kWindows[] = {"convolution", "fused_convolution", "conv_transpose", "max_pool", "avg_pool"};
constexpr std::string_view kResizes[] = {"interpolate", "pad", "unfold", "fold"};
// Ops of gradients: their rules rely on checks of the forward ops.
constexpr std::string_view kGradients[] = {"_backward", "_backward_weight", "_gradient", "_scatter", "_unpack"};

constexpr int64_t kMostElements = int64_t{1} << 20;  // of windows and paddings: no product of it overflows
constexpr int64_t kMost = int64_t{1} << 31;

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool same_walk(const Meta& a, const Meta& b) {
  if (!(a.sizes == b.sizes)) return false;
  for (int d = 0; d < a.rank(); ++d)
    if (a.sizes[d] > 1 && a.numel > 0 && a.strides[d] != b.strides[d]) return false;
  return true;
}

class Checker {
 public:
  explicit Checker(const Graph& graph) : g_(graph) {}

  void run() {
    for (const Value& v : g_.values) check_bounds(v);
    for (at_ = 0; at_ < g_.instructions.size(); ++at_) {  // before any rule reads it
      check_shape_of(g_.instructions[at_]);
      check_kind_of(g_.instructions[at_]);
    }
    verify(g_, "reading");
    check_inputs();
    for (at_ = 0; at_ < g_.instructions.size(); ++at_) check_results_of(g_.instructions[at_]);
  }

 private:
  void require(bool good, const std::string& what) const {
    DEFT_CHECK(good, ValueError, "{}{}",
               at_ < g_.instructions.size()
                   ? fmt::format("instruction {}, {}: ", at_, g_.instructions[at_].def->info.name)
                   : "",
               what);
  }
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }

  bool in_range(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < g_.values.size(); }
  void check_shape_of(const Instruction& x) const {
    const OpInfo& info = x.def->info;
    bool list = info.inputs == kListInput, rows = x.def == &op_def<FusedRows>;
    require(x.action != Action::call, "calls code outside the graph");
    require(list ? !x.inputs.empty() : static_cast<int>(x.inputs.size()) == info.inputs,
            "has too few or too many inputs");
    require(x.outputs.size() == (x.action == Action::make ? static_cast<size_t>(info.outputs) : 1) &&
                !x.outputs.empty() &&
                std::all_of(x.outputs.begin(), x.outputs.end(), [&](ValueId id) { return in_range(id); }),
            "has too few or too many results");
    uint32_t may_miss = 0;
    for (const Optional& o : kOptional)
      if (o.op == info.name) may_miss = o.inputs;
    for (size_t i = 0; i < x.inputs.size(); ++i)
      require(in_range(x.inputs[i]) || (x.inputs[i] == kNone && (rows || (!list && (may_miss >> i & 1)))),
              fmt::format("input {} is missing", i));
    require(x.params.size() == x.def->params_bytes, "the parameters have the wrong size");
    check_params(x);
  }

  void check_params(const Instruction& x) const {
    std::string_view name = x.def->info.name;
    bool windows = is_one_of(name, kWindows), counts = windows || is_one_of(name, kResizes);
    bool free = x.def->elementwise || is_one_of(name, kInPlace) || x.action == Action::view;
    int64_t most = counts ? kMostElements : kMost;
    bool first = true;
    for (const ParamField& f : param_fields(*x.def)) {
      require(is_valid(f, x.params.data()), "a parameter is no value of its type");
      if (f.kind == FieldKind::integer || f.kind == FieldKind::natural) {
        int64_t n = read_integer(f, x.params.data());
        require(free || (n >= -most && n <= most), fmt::format("the parameter {} is too large", n));
        require(!first || !windows || (n >= 1 && n <= 3), fmt::format("{} spatial dimensions", n));
        first = false;
      } else if (f.kind == FieldKind::shape && !free) {
        Shape s;
        std::memcpy(static_cast<void*>(&s), x.params.data() + f.offset, sizeof s);
        for (int64_t n : s) require(n >= -most && n <= most, fmt::format("the parameter {} is too large", n));
      } else if (f.kind == FieldKind::real && name == "interpolate") {
        double v;
        std::memcpy(&v, x.params.data() + f.offset, sizeof v);
        require(v >= 0 && v <= static_cast<double>(kMostElements), fmt::format("the scale {} is out of bounds", v));
      }
    }
  }

  // A caller gives the memory of his inputs, and nothing around them.
  void check_inputs() const {
    Graph trimmed;
    trimmed.buffers = g_.buffers;
    trimmed.values = g_.values;
    trimmed.inputs = g_.inputs;
    DEFT_CHECK(trim_inputs(trimmed), ValueError, "a value lies outside of the inputs");
    std::vector<bool> given(g_.buffers.size(), false);
    for (ValueId id : g_.inputs) given[static_cast<size_t>(g_.value(id).buffer)] = true;
    for (size_t i = 0; i < g_.buffers.size(); ++i)
      DEFT_CHECK(g_.buffers[i].kind != BufferKind::input || given[i], ValueError, "no input gives the buffer {}", i);
  }

  void check_kind_of(const Instruction& x) const {
    if (x.action == Action::view) {
      require(x.def->info.fusion == Fusion::view, "is no view");
      require(meta(x.inputs[0]).dtype == meta(x.outputs[0]).dtype, "a view has another type");
      return;
    }
    require(x.def->infer, "the shape of its result depends on values");
    std::string_view name = x.def->info.name;
    for (std::string_view end : kGradients) require(!name.ends_with(end), "belongs to gradients; save inference only");
    for (ValueId id : x.inputs)
      require(id == kNone || meta(id).device == meta(x.outputs[0]).device || meta(id).wrapped_number,
              "its inputs are on several devices");
    if (x.def == &op_def<FusedRows>) return check_rows(x);
    const Meta& first = meta(x.inputs[0]);
    require(first.wrapped_number || x.def->info.dtypes.contains(first.dtype),
            fmt::format("does not take {}", name_of(first.dtype)));
    const Device device = meta(x.outputs[0]).device;
    if (!device.is_cpu()) require_backend(device, "plan");
    require(x.def->kernel(device.type), "has no kernel for its device");
    if (name == "scaled_dot_product_attention") check_attention(x);
    if (x.def == &op_def<FusedLinear>) check_one_row(x);
    if (x.def == &op_def<Chain>) check_chain(x);
    check_dims(x);
  }
  void check_results_of(const Instruction& x) const {
    if (x.action == Action::make) check_made(x);
    if (x.action == Action::write) check_written(x);
  }

  // Bits that stand for dimensions.
  void check_dims(const Instruction& x) const {
    for (const ParamField& f : param_fields(*x.def))
      if (f.kind == FieldKind::natural && f.bytes == 4)
        require(read_integer(f, x.params.data()) < int64_t{1} << std::max(1, meta(x.inputs[0]).rank()),
                "names a dimension that its input does not have");
  }

  void infer(const Instruction& x, Meta* out) const {
    static const Meta undefined = Meta::undefined();
    std::vector<const Meta*> in;
    for (ValueId id : x.inputs) in.push_back(id == kNone ? &undefined : &meta(id));
    std::vector<std::byte> params = x.params;
    params.resize(std::max<size_t>(1, params.size()));
    x.def->infer(in.data(), static_cast<int>(in.size()), params.data(), out);
    require(same_params(*x.def, params.data(), x.params.data()), "its parameters are not what its rule makes of them");
  }

  void check_made(const Instruction& x) const {
    Meta out[kMaxOutputs];
    infer(x, out);
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      BufferId buffer = g_.value(x.outputs[i]).buffer;
      // Elementwise kernels follow the given strides.
      require(x.def->elementwise || same_walk(meta(x.outputs[i]), out[i]),
              fmt::format("a result has the strides {}, its kernel writes {}", to_string(meta(x.outputs[i]).strides),
                          to_string(out[i].strides)));
      for (ValueId id : x.inputs) require(id == kNone || g_.value(id).buffer != buffer, "a result lies in an input");
      for (size_t k = 0; k < i; ++k)
        require(g_.value(x.outputs[k]).buffer != buffer, "two results lie in the same memory");
    }
  }

  void check_written(const Instruction& x) const {
    require(x.def->elementwise || is_one_of(x.def->info.name, kInPlace), "has no form in place");
    Meta out[kMaxOutputs];
    infer(x, out);
    const Meta& target = meta(x.outputs[0]);
    auto kind = [](DType t) { return is_floating(t) ? 2 : is_integral(t) ? 1 : 0; };
    require(out[0].sizes == target.sizes && kind(out[0].dtype) <= kind(target.dtype), "writes something else in place");
    require(x.def != &op_def<Chain> || (out[0].dtype == target.dtype && same_walk(out[0], target)),
            "writes something else in place");
    for (size_t i = 1; i < x.inputs.size(); ++i)
      require(x.inputs[i] == kNone || x.inputs[i] == x.inputs[0] ||
                  g_.value(x.inputs[i]).buffer != g_.value(x.inputs[0]).buffer ||
                  are_apart(g_.value(x.inputs[i]), g_.value(x.inputs[0])),
              "reads what it writes");
  }

  void check_one_row(const Instruction& x) const {
    FusedLinear::Params p;
    std::memcpy(static_cast<void*>(&p), x.params.data(), sizeof p);
    require(!p.one_row || FusedLinear::fits_one_row(meta(x.inputs[0]), meta(x.inputs[1])), "its input is not one row");
    for (size_t i : {2, 3})
      require(!p.one_row || x.inputs[i] == kNone || meta(x.inputs[i]).contiguous, "its bias is not contiguous");
  }

  void check_attention(const Instruction& x) const {
    const Meta &q = meta(x.inputs[0]), &k = meta(x.inputs[1]), &v = meta(x.inputs[2]);
    require(q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2, "takes no vectors");
    require(k.dtype == q.dtype && v.dtype == q.dtype, "its inputs are of several types");
    int64_t queries = q.sizes[q.rank() - 2], keys = k.sizes[k.rank() - 2];
    require(q.sizes.back() == k.sizes.back() && v.sizes[v.rank() - 2] == keys, "its inputs do not belong together");
    if (x.inputs[3] == kNone) return;
    const Meta& mask = meta(x.inputs[3]);
    require(mask.dtype == DType::boolean || mask.dtype == q.dtype, "its mask is of another type");
    Shape whole = meta(x.outputs[0]).sizes;  // which its rule confirms
    require(whole.size() >= 2, "its result is no matrix");
    whole[whole.size() - 2] = queries;
    whole[whole.size() - 1] = keys;
    require(broadcast_shapes(mask.sizes, whole, "mask") == whole, "its mask does not fit");
  }

  static bool is_read_in_rows(const Meta& m) {
    return m.is_dense() || (m.device.is_cpu() && Chain::rows_of(m).length > 0);
  }
  // Steps were checked when they were read: here is what depends on the tensors.
  void check_chain(const Instruction& x) const {
    Chain::Params p;
    std::memcpy(&p, x.params.data(), sizeof p);
    require(p.inputs == static_cast<int>(x.inputs.size()) && p.inputs <= Chain::kInputs, "has too many inputs");
    require(p.period[p.like] == 0, "its like repeats");
    const Meta& like = meta(x.inputs[static_cast<size_t>(p.like)]);
    require(is_read_in_rows(like), "its like has holes");
    for (int i = 0; i < p.inputs; ++i) {
      const Meta& in = meta(x.inputs[static_cast<size_t>(i)]);
      int64_t reads = p.period[i] == 0 ? like.numel : p.period[i];
      require(p.period[i] >= 0 && in.numel == reads &&
                  (in.numel <= 1 || in.is_dense() || (p.period[i] == 0 && is_read_in_rows(in))),
              fmt::format("input {} {} does not repeat after {} elements", i, describe(in), p.period[i]));
    }
    require(x.action == Action::make || p.period[0] == 0, "writes an input that repeats");
    for (int s = 0; s < p.steps; ++s) require(p.step[s].op >= 0, "belongs to gradients; save inference only");
  }

  // The parts as instructions on a strip of rows. What is right for three rows and for five is right for any number.
  void check_rows(const Instruction& x) const {
    FusedRows::Params p;
    std::memcpy(static_cast<void*>(&p), x.params.data(), sizeof p);
    require(
        p.like >= 0 && static_cast<size_t>(p.like) < x.inputs.size() && x.inputs[static_cast<size_t>(p.like)] != kNone,
        "has no like");
    const Meta& like = meta(x.inputs[static_cast<size_t>(p.like)]);
    int lead = like.rank() - p.row.size();
    bool good = lead >= 0 && p.part[1].op >= 0;
    for (int d = 0; good && d < p.row.size(); ++d) good = p.row[d] == like.sizes[lead + d];
    require(good, "its rows are no rows of its like");
    size_t count = 0;
    for (const FusedRows::Part& part : p.part) {
      require(part.inputs >= 0 && part.inputs <= 8 && (part.op >= 0 || part.inputs == 0), "a part has too many inputs");
      count += static_cast<size_t>(part.inputs);
    }
    require(count == x.inputs.size(), "has too few or too many inputs");
    for (int64_t rows : {3, 5}) verify_foreign(strip_of(x, p, like, rows));
  }
  Graph strip_of(const Instruction& x, const FusedRows::Params& p, const Meta& like, int64_t rows) const {
    Graph strip;
    Shape sizes = p.row;
    sizes.insert(0, rows);
    auto add = [&](const Meta& m, BufferKind kind) {
      return strip.add_value(m, strip.add_buffer(kind, static_cast<size_t>(m.span()) * size_of(m.dtype)));
    };
    size_t next = 0;
    ValueId last = kNone;
    for (const FusedRows::Part& part : p.part) {
      if (part.op < 0) continue;
      const OpDef* def = op_at(part.op);
      require(def && def->params_bytes <= FusedRows::kPartBytes && def != &op_def<FusedRows>, "a part is no op");
      Instruction step{def, Action::make, {}, {}, {}, {}};
      for (int i = 0; i < part.inputs; ++i, ++next) {
        ValueId given = x.inputs[next];
        bool is_last = part.from_last >> i & 1;
        step.inputs.push_back(is_last          ? last
                              : given == kNone ? kNone
                                               : add(in_strip(meta(given), like, sizes, p.row), BufferKind::input));
        if (!is_last && given != kNone) strip.inputs.push_back(step.inputs.back());
      }
      const bool reduced = &part == &p.part[1] && FusedRows::reduces(p);
      DType statistics = p.part[1].made == DType::f64 ? DType::f64 : DType::f32;
      for (int i = 0; i < def->info.outputs; ++i)
        step.outputs.push_back(add(i == 0 && !reduced
                                       ? Meta::dense(sizes, part.made, like.device)
                                       : Meta::dense({rows}, i == 0 ? part.made : statistics, like.device),
                                   BufferKind::temporary));
      last = step.outputs[0];
      const auto* bytes = reinterpret_cast<const std::byte*>(part.params.data());
      step.params.assign(bytes, bytes + def->params_bytes);
      strip.instructions.push_back(std::move(step));
    }
    strip.outputs = {last};
    return strip;
  }
  // As the kernel shows an input to a part.
  Meta in_strip(const Meta& given, const Meta& like, const Shape& sizes, const Shape& row) const {
    if (given.sizes == like.sizes) {
      require(given.contiguous, "an input is not row by row");
      return Meta::dense(sizes, given.dtype, given.device);
    }
    int64_t n = 1;
    for (int64_t size : row) n *= size;
    if (given.numel != n || given.rank() <= row.size()) return given;
    require(given.contiguous, "an input is not row by row");
    return Meta::dense(row, given.dtype, given.device);
  }

  const Graph& g_;
  size_t at_ = SIZE_MAX;
};

}  // namespace

void check_bounds(const Value& v) {
  auto bytes = static_cast<int64_t>(size_of(v.meta.dtype));
  constexpr int64_t kEnd = int64_t{1} << 60;
  __int128 last = v.offset;
  bool fits = v.offset >= 0 && v.offset < kEnd && v.offset % bytes == 0;
  for (int d = 0; fits && d < v.meta.rank(); ++d) {
    fits = v.meta.strides[d] >= 0 && v.meta.strides[d] < kEnd && v.meta.sizes[d] < kEnd;
    last += static_cast<__int128>(std::max<int64_t>(0, v.meta.sizes[d] - 1)) * v.meta.strides[d] * bytes;
    fits = fits && last < kEnd;
  }
  DEFT_CHECK(fits, ValueError, "a value {} with strides {} at byte {} is out of all bounds", describe(v.meta),
             to_string(v.meta.strides), v.offset);
  DEFT_CHECK(!v.meta.wrapped_number || v.meta.rank() == 0, ValueError, "a number {} has dimensions", describe(v.meta));
}

void verify_foreign(const Graph& graph) { Checker(graph).run(); }

}  // namespace deft::graph
