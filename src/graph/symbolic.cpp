#include "graph/symbolic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "core/describe.h"
#include "core/tensor_impl.h"
#include "graph/verify_foreign.h"
#include "ops/creation.h"
#include "ops/param_fields.h"

namespace deft::graph {

namespace {

constexpr size_t kCaptures = 8;                 // that a template learns from at most
constexpr int64_t kLargest = int64_t{1} << 52;  // of numbers that are sizes; doubles as bits are above it
constexpr int64_t kLimit = int64_t{1} << 62;    // of predicted numbers
constexpr size_t kDegree = 3;

// --- Tensors that the function fills anew each time: start, start + step, ...

struct Progression {
  double start = 0, step = 0;
};

std::optional<Progression> progression_of(const Buffer& b) {
  if (!b.constant.device().is_cpu()) return std::nullopt;
  const Storage& s = *b.constant.impl()->storage;
  auto n = static_cast<int64_t>(s.nbytes / size_of(b.constant.dtype()));
  std::optional<Progression> found;
  dispatch_all(b.constant.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(s.data);
    auto at = [&](int64_t i) {
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
        return static_cast<double>(static_cast<float>(p[i]));
      else
        return static_cast<double>(p[i]);
    };
    Progression made{n > 0 ? at(0) : 0, n > 1 ? at(1) - at(0) : 0};
    for (int64_t i = 0; i < n; ++i)
      if (!(at(i) == made.start + static_cast<double>(i) * made.step)) return;
    found = made;
  });
  return found;
}

// A whole number as itself, any other as its bits, which are beyond kLargest.
int64_t as_number(double v) {
  if (v == std::floor(v) && std::abs(v) < static_cast<double>(kLargest)) return static_cast<int64_t>(v);
  return std::bit_cast<int64_t>(v);
}
double as_double(int64_t n) { return std::abs(n) < kLargest ? static_cast<double>(n) : std::bit_cast<double>(n); }

Tensor filled(int64_t elements, DType dtype, Progression p) {
  if (p.step == 0) return full({elements}, p.start, {dtype});
  return arange(p.start, p.start + p.step * static_cast<double>(elements), p.step, TensorOptions(dtype));
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const Storage &x = *a.impl()->storage, &y = *b.impl()->storage;
  if (&x == &y) return true;
  if (x.nbytes != y.nbytes || a.dtype() != b.dtype() || !a.device().is_cpu() || !b.device().is_cpu()) return false;
  return std::memcmp(x.data, y.data, x.nbytes) == 0;
}

// --- The numbers of a graph, in a fixed order. f(number, value, instruction) gives what shall stand there; one of the
// two is null.

template <class G, class F>
void each_of_shape(G& shape, F f) {
  for (int d = 0; d < shape.size(); ++d) {
    int64_t n = f(shape[d]);
    if constexpr (!std::is_const_v<G>) shape[d] = n;
  }
}

// Single bytes are flags, or part of something else.
bool is_number(const ParamField& f) {
  return (f.kind == FieldKind::integer || f.kind == FieldKind::natural) && f.bytes >= 4;
}

template <class P, class F>
void each_of_params(const OpDef& def, P* params, F f) {
  for (const ParamField& field : param_fields(def)) {
    if (field.kind == FieldKind::shape) {
      Shape shape;
      std::memcpy(static_cast<void*>(&shape), params + field.offset, sizeof shape);
      each_of_shape(shape, f);
      if constexpr (!std::is_const_v<P>) std::memcpy(params + field.offset, &shape, sizeof shape);
    } else if (is_number(field)) {
      int64_t n = f(read_integer(field, params));
      if constexpr (!std::is_const_v<P>) write_integer(field, params, n);
    }
  }
}

template <class G, class F>
void each_number(G& g, F f) {
  for (auto& v : g.values) {
    auto of_value = [&](int64_t n) { return f(n, std::addressof(v), static_cast<const Instruction*>(nullptr)); };
    each_of_shape(v.meta.sizes, of_value);
    each_of_shape(v.meta.strides, of_value);
    int64_t offset = of_value(v.offset);
    if constexpr (!std::is_const_v<G>) v.offset = offset;
  }
  for (auto& x : g.instructions)
    each_of_params(*x.def, x.params.data(),
                   [&](int64_t n) { return f(n, static_cast<const Value*>(nullptr), std::addressof(x)); });
}

// Those of the graph, then start and step of each constant in `fills`.
std::vector<int64_t> numbers_of(const Graph& g, const std::vector<BufferId>& fills) {
  std::vector<int64_t> all;
  each_number(g, [&](int64_t n, auto*, auto*) {
    all.push_back(n);
    return n;
  });
  for (BufferId id : fills) {
    Progression p = progression_of(g.buffers[static_cast<size_t>(id)]).value_or(Progression());
    all.push_back(as_number(p.start));
    all.push_back(as_number(p.step));
  }
  return all;
}

// "the layout of [4, 8] f32, made by relu (net.cpp:3)"
std::string name_of_number(const Graph& g, size_t number) {
  std::string name = "a tensor that the function fills";
  size_t i = 0;
  each_number(g, [&](int64_t n, const Value* v, const Instruction* x) {
    if (i++ != number) return n;
    if (x) name = fmt::format("a parameter of {} ({})", x->def->info.name, to_string(x->site));
    if (!v) return n;
    name = fmt::format("the layout of {}", describe(v->meta));
    auto id = static_cast<ValueId>(v - g.values.data());
    for (const Instruction& maker : g.instructions) {
      if (std::find(maker.outputs.begin(), maker.outputs.end(), id) == maker.outputs.end()) continue;
      name += fmt::format(", made by {} ({})", maker.def->info.name, to_string(maker.site));
      break;
    }
    return n;
  });
  return name;
}

// --- What must be the same in all captures

bool same_but_for_numbers(const Value& a, const Value& b) {
  return a.buffer == b.buffer && a.meta.rank() == b.meta.rank() && a.meta.dtype == b.meta.dtype &&
         a.meta.device == b.meta.device && a.meta.wrapped_number == b.meta.wrapped_number;
}

bool same_but_for_numbers(const OpDef& def, std::vector<std::byte> a, const std::vector<std::byte>& b) {
  for (const ParamField& f : param_fields(def)) {
    if (f.kind == FieldKind::shape) {
      Shape x, y;
      std::memcpy(static_cast<void*>(&x), a.data() + f.offset, sizeof x);
      std::memcpy(static_cast<void*>(&y), b.data() + f.offset, sizeof y);
      if (x.size() != y.size()) return false;
    }
    if (f.kind == FieldKind::shape || is_number(f)) std::memcpy(a.data() + f.offset, b.data() + f.offset, f.bytes);
  }
  return same_params(def, a.data(), b.data());
}

std::string difference(const Instruction& a, const Instruction& b, size_t at) {
  if (a.def != b.def || a.action != b.action)
    return fmt::format("op {} is {} ({}) at one size and {} ({}) at another", at, a.def->info.name, to_string(a.site),
                       b.def->info.name, to_string(b.site));
  if (a.inputs != b.inputs || a.outputs != b.outputs)
    return fmt::format("op {}, {} ({}), has other inputs at another size", at, a.def->info.name, to_string(a.site));
  if (!same_but_for_numbers(*a.def, a.params, b.params))
    return fmt::format("op {}, {} ({}), has another parameter at another size that is no integer", at, a.def->info.name,
                       to_string(a.site));
  return {};
}

std::string difference(const Graph& a, const Graph& b) {
  for (size_t i = 0; i < std::min(a.instructions.size(), b.instructions.size()); ++i)
    if (std::string why = difference(a.instructions[i], b.instructions[i], i); !why.empty()) return why;
  if (a.instructions.size() != b.instructions.size())
    return fmt::format("{} ops at one size and {} at another", a.instructions.size(), b.instructions.size());
  if (a.values.size() != b.values.size() || a.buffers.size() != b.buffers.size() || a.inputs != b.inputs ||
      a.outputs != b.outputs)
    return "other tensors at another size";
  for (size_t i = 0; i < a.values.size(); ++i)
    if (!same_but_for_numbers(a.values[i], b.values[i]))
      return fmt::format("{} at one size is {} at another", describe(a.values[i].meta), describe(b.values[i].meta));
  for (size_t i = 0; i < a.buffers.size(); ++i)
    if (a.buffers[i].kind != b.buffers[i].kind || a.buffers[i].written != b.buffers[i].written)
      return "other tensors are written at another size";
  return {};
}

int64_t end_of(const Value& v) { return v.offset + v.meta.span() * static_cast<int64_t>(size_of(v.meta.dtype)); }

// Where the last of some values ends, by buffer.
class Ends {
 public:
  explicit Ends(const Graph& g) : ends_(g.buffers.size(), 0) {}
  void add(const Value& v) {
    int64_t& last = ends_[static_cast<size_t>(v.buffer)];
    last = std::max(last, end_of(v));
  }
  int64_t operator[](size_t buffer) const { return ends_[buffer]; }

 private:
  std::vector<int64_t> ends_;
};
// The ends of the values of callers and ops. Views have no memory of their own and must not reach beyond these ends.
Ends given_and_made(const Graph& g) {
  Ends ends(g);
  for (ValueId id : g.inputs) ends.add(g.value(id));
  for (const Instruction& x : g.instructions)
    for (ValueId id : x.outputs)
      if (x.action == Action::make) ends.add(g.value(id));
  return ends;
}

// Recomputes what follows from the numbers that were filled in.
void complete(Graph& g) {
  for (Value& v : g.values) {
    DEFT_CHECK(std::all_of(v.meta.sizes.begin(), v.meta.sizes.end(), [](int64_t n) { return n >= 0; }), ShapeError,
               "a tensor has the sizes {}", to_string(v.meta.sizes));
    v.meta.numel = checked_numel(v.meta.sizes, v.meta.dtype);
    v.meta.set_strides(Shape(v.meta.strides));
    DEFT_CHECK(std::all_of(v.meta.strides.begin(), v.meta.strides.end(), [](int64_t s) { return s >= 0; }), ShapeError,
               "{} has the strides {}", describe(v.meta), to_string(v.meta.strides));
    check_bounds(v);
  }
  const Ends end = given_and_made(g);
  for (size_t i = 0; i < g.buffers.size(); ++i)
    if (g.buffers[i].kind != BufferKind::constant) g.buffers[i].bytes = static_cast<size_t>(end[i]);
}
void fill(Graph& g, BufferId id, Progression p) {
  Buffer& b = g.buffers[static_cast<size_t>(id)];
  DType dtype = b.constant.dtype();
  auto size = static_cast<int64_t>(size_of(dtype));
  Ends ends(g);
  for (const Value& v : g.values) ends.add(v);
  b.constant = filled((ends[static_cast<size_t>(id)] + size - 1) / size, dtype, p);
  b.bytes = b.constant.impl()->storage->nbytes;
}

bool same_layout(const Meta& a, const Meta& b) {
  if (!(a.sizes == b.sizes) || a.dtype != b.dtype || !(a.device == b.device)) return false;
  for (int d = 0; d < a.rank(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

std::vector<Meta> metas_of_inputs(const Graph& g) {
  std::vector<Meta> metas;
  for (ValueId id : g.inputs) metas.push_back(g.value(id).meta);
  return metas;
}

bool same_sizes(const Graph& a, const Graph& b) {
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (!(a.value(a.inputs[i]).meta.sizes == b.value(b.inputs[i]).meta.sizes)) return false;
  return true;
}

// All products of up to kDegree symbols.
std::vector<std::vector<size_t>> products(size_t symbols) {
  std::vector<std::vector<size_t>> all, last = {{}};
  for (size_t degree = 1; degree <= kDegree; ++degree) {
    std::vector<std::vector<size_t>> next;
    for (const auto& shorter : last)
      for (size_t s = shorter.empty() ? 0 : shorter.back(); s < symbols; ++s) {
        next.push_back(shorter);
        next.back().push_back(s);
      }
    all.insert(all.end(), next.begin(), next.end());
    last = std::move(next);
  }
  return all;
}

__int128 product_of(const std::vector<size_t>& symbols, const std::vector<int64_t>& sizes) {
  __int128 product = 1;
  for (size_t s : symbols) product *= sizes[s];
  return product;
}

}  // namespace

bool same_kind(const std::vector<Meta>& a, const std::vector<Meta>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const Meta &x = a[i], &y = b[i];
    if (x.rank() != y.rank() || x.dtype != y.dtype || !(x.device == y.device) || x.contiguous != y.contiguous ||
        x.is_channels_last() != y.is_channels_last())
      return false;
    for (int d = 0; d < x.rank(); ++d)
      if (x.sizes[d] != y.sizes[d] && (x.sizes[d] < 2 || y.sizes[d] < 2)) return false;
  }
  return true;
}

bool trim_inputs(Graph& g) {
  std::vector<int64_t> first(g.buffers.size(), kLimit), last(g.buffers.size(), 0);
  for (ValueId id : g.inputs) {
    const Value& v = g.value(id);
    auto b = static_cast<size_t>(v.buffer);
    first[b] = std::min(first[b], v.offset);
    last[b] = std::max(last[b], end_of(v));
  }
  auto is_input = [&](const Value& v) { return g.buffers[static_cast<size_t>(v.buffer)].kind == BufferKind::input; };
  for (const Value& v : g.values) {
    auto b = static_cast<size_t>(v.buffer);
    if (is_input(v) && v.meta.numel > 0 && (v.offset < first[b] || end_of(v) > last[b])) return false;
  }
  for (Value& v : g.values)
    if (is_input(v)) v.offset = std::max<int64_t>(0, v.offset - first[static_cast<size_t>(v.buffer)]);
  for (size_t i = 0; i < g.buffers.size(); ++i)
    if (g.buffers[i].kind == BufferKind::input) g.buffers[i].bytes = static_cast<size_t>(last[i] - first[i]);
  return true;
}

Template::Template(Graph captured) {
  captures_.push_back(std::move(captured));
  if (!trim_inputs(captures_[0])) give_up("the function reaches memory around an input");
  for (const Instruction& x : captures_[0].instructions)
    if (x.action == Action::call) give_up(fmt::format("{} runs outside the graph", x.outside->name));
}

std::vector<Meta> Template::inputs() const { return metas_of_inputs(captures_[0]); }

void Template::give_up(std::string why) {
  fault_ = std::move(why);
  confirmed_ = false;
  over_ = true;
  captures_.resize(1);
}

void Template::add(Graph captured) {
  if (over_) return;
  if (!trim_inputs(captured)) return give_up("the function reaches memory around an input");
  for (const Graph& g : captures_)
    if (same_sizes(g, captured)) return;  // tells nothing
  std::string why;
  std::optional<Graph> foretold;
  if (fault_.empty()) foretold = instantiate(metas_of_inputs(captured), why);
  if (std::string other = difference(captures_[0], captured); !other.empty()) return give_up(std::move(other));
  if (foretold && numbers_of(*foretold, filled_) == numbers_of(captured, filled_) && constants_fit(captured)) {
    confirmed_ = true;
    for (size_t s = 0; s < symbols_.size(); ++s)
      if (!was_captured(s, metas_of_inputs(captured))) foretold_[s] = true;
    return;
  }
  confirmed_ = false;
  captures_.push_back(std::move(captured));
  if (captures_.size() > kCaptures) return give_up(fmt::format("{} captures did not settle {}", kCaptures, fault_));
  fault_.clear();
  find_filled();
  find_symbols();
  if (!over_) fit();
}

// Constants are the same memory in all captures, or the same bytes, or filled in the same way.
bool Template::constants_fit(const Graph& captured) const {
  for (size_t i = 0; i < captured.buffers.size(); ++i) {
    if (captured.buffers[i].kind != BufferKind::constant) continue;
    if (std::find(filled_.begin(), filled_.end(), static_cast<BufferId>(i)) != filled_.end()) {
      if (!progression_of(captured.buffers[i])) return false;
    } else if (!same_bytes(captures_[0].buffers[i].constant, captured.buffers[i].constant)) {
      return false;
    }
  }
  return true;
}

void Template::find_filled() {
  for (size_t i = 0; i < captures_[0].buffers.size(); ++i) {
    auto id = static_cast<BufferId>(i);
    const Buffer &first = captures_[0].buffers[i], &now = captures_.back().buffers[i];
    bool known = std::find(filled_.begin(), filled_.end(), id) != filled_.end();
    if (first.kind != BufferKind::constant || (!known && same_bytes(first.constant, now.constant))) continue;
    if (first.written || first.constant.dtype() != now.constant.dtype() || !progression_of(first) ||
        !progression_of(now))
      return give_up(fmt::format("a constant {} has other values at another size", describe(first.constant.meta())));
    if (!known) filled_.push_back(id);
  }
}

void Template::find_symbols() {
  symbols_.clear();
  std::vector<std::vector<int64_t>> seen;  // sizes of each symbol in all captures
  for (size_t i = 0; i < captures_[0].inputs.size(); ++i) {
    for (int d = 0; d < captures_[0].value(captures_[0].inputs[i]).meta.rank(); ++d) {
      std::vector<int64_t> sizes;
      for (const Graph& g : captures_) sizes.push_back(g.value(g.inputs[i]).meta.sizes[d]);
      if (std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == sizes[0]; })) continue;
      auto at = static_cast<size_t>(std::find(seen.begin(), seen.end(), sizes) - seen.begin());
      if (at == seen.size()) {
        seen.push_back(sizes);
        symbols_.emplace_back();
      }
      symbols_[at].push_back({i, d});
    }
  }
  foretold_.assign(symbols_.size(), false);
}

bool Template::was_captured(size_t symbol, const std::vector<Meta>& inputs) const {
  const auto [input, dim] = symbols_[symbol][0];
  return std::any_of(captures_.begin(), captures_.end(), [&](const Graph& g) {
    return g.value(g.inputs[input]).meta.sizes[dim] == inputs[input].sizes[dim];
  });
}
bool Template::confirmed_for(const std::vector<Meta>& inputs) const {
  if (!confirmed()) return false;
  for (size_t s = 0; s < symbols_.size(); ++s)
    if (!foretold_[s] && !was_captured(s, inputs)) return false;
  return true;
}

bool Template::follows(InputDim d) const {
  return std::any_of(symbols_.begin(), symbols_.end(),
                     [&](const auto& dims) { return std::find(dims.begin(), dims.end(), d) != dims.end(); });
}

void Template::fit() {
  terms_.clear();
  std::vector<std::vector<int64_t>> numbers, sizes;
  for (const Graph& g : captures_) {
    numbers.push_back(numbers_of(g, filled_));
    sizes.emplace_back();
    for (const auto& dims : symbols_) {
      const InputDim& first = dims.front();
      sizes.back().push_back(g.value(g.inputs[first.input]).meta.sizes[first.dim]);
    }
  }
  auto candidates = products(symbols_.size());
  for (size_t i = 0; i < numbers[0].size(); ++i) {
    std::vector<int64_t> values;
    for (const auto& of_capture : numbers) values.push_back(of_capture[i]);
    if (std::all_of(values.begin(), values.end(), [&](int64_t n) { return n == values[0]; })) continue;
    if (std::string why = fit_number(i, values, sizes, candidates); !why.empty()) {
      fault_ = fmt::format("{} {}", name_of_number(captures_[0], i), why);
      return;
    }
  }
}

std::string Template::fit_number(size_t number, const std::vector<int64_t>& values,
                                 const std::vector<std::vector<int64_t>>& sizes,
                                 const std::vector<std::vector<size_t>>& candidates) {
  std::vector<Term> found[4];  // the simplest first: a size, a product; then with something added
  bool integers = std::all_of(values.begin(), values.end(), [](int64_t n) { return std::abs(n) < kLargest; });
  for (const auto& symbols : candidates) {
    if (!integers) break;
    __int128 first = product_of(symbols, sizes[0]);
    size_t other = 1;
    while (other < values.size() && product_of(symbols, sizes[other]) == first) ++other;
    if (other == values.size()) continue;
    __int128 rise = product_of(symbols, sizes[other]) - first, by = values[other] - values[0];
    if (by % rise != 0) continue;
    __int128 factor = by / rise, base = values[0] - factor * first;
    bool fits = true;
    for (size_t c = 0; c < values.size(); ++c) fits &= base + factor * product_of(symbols, sizes[c]) == values[c];
    if (!fits || base > kLimit || base < -kLimit) continue;
    found[(base != 0) * 2 + (symbols.size() > 1)].push_back(
        {number, static_cast<int64_t>(base), static_cast<int64_t>(factor), symbols});
  }
  for (auto& terms : found) {
    if (terms.size() > 1)
      return fmt::format("may follow one size or another ({} and {} so far): more sizes will tell", values[0],
                         values[1]);
    if (terms.size() == 1) {
      terms_.push_back(std::move(terms[0]));
      return {};
    }
  }
  return fmt::format("is {} and {}, which does not follow from the sizes of the inputs", values[0], values[1]);
}

std::optional<std::vector<int64_t>> Template::sizes_of(const std::vector<Meta>& inputs, std::string& why) const {
  std::vector<Meta> base = this->inputs();
  if (!same_kind(base, inputs)) {
    why = "the inputs are of another kind";
    return std::nullopt;
  }
  std::vector<int64_t> sizes;
  for (const auto& dims : symbols_) {
    sizes.push_back(inputs[dims[0].input].sizes[dims[0].dim]);
    for (const InputDim& d : dims) {
      if (inputs[d.input].sizes[d.dim] != sizes.back())
        why = fmt::format("dimension {} of input {} was always dimension {} of input {}", d.dim, d.input, dims[0].dim,
                          dims[0].input);
      base[d.input].sizes[d.dim] = inputs[d.input].sizes[d.dim];
    }
  }
  for (size_t i = 0; i < base.size(); ++i)
    if (!(base[i].sizes == inputs[i].sizes))
      why = fmt::format("a size of input {} that was always the same is another", i);
  if (!why.empty()) return std::nullopt;
  return sizes;
}

int64_t Template::value_of(const Term& t, const std::vector<int64_t>& sizes) {
  int64_t value = t.factor;
  bool over = false;
  for (size_t s : t.symbols) over |= __builtin_mul_overflow(value, sizes[s], &value);
  over |= __builtin_add_overflow(value, t.base, &value);
  DEFT_CHECK(!over && value < kLimit && value > -kLimit, ShapeError, "a number is too large");
  return value;
}

std::optional<Graph> Template::instantiate(const std::vector<Meta>& inputs, std::string& why) const {
  why = fault_;
  if (!why.empty()) return std::nullopt;
  auto sizes = sizes_of(inputs, why);
  if (!sizes) return std::nullopt;
  size_t i = 0, next = 0;
  auto number = [&](int64_t n) {
    if (next == terms_.size() || terms_[next].number != i++) return n;
    return value_of(terms_[next++], *sizes);
  };
  try {
    Graph g = captures_[0];
    each_number(g, [&](int64_t n, auto*, auto*) { return number(n); });
    complete(g);
    for (BufferId id : filled_) {
      Progression p = *progression_of(g.buffers[static_cast<size_t>(id)]);
      double start = as_double(number(as_number(p.start))), step = as_double(number(as_number(p.step)));
      fill(g, id, {start, step});
    }
    for (size_t k = 0; k < inputs.size(); ++k)
      DEFT_CHECK(same_layout(g.value(g.inputs[k]).meta, inputs[k]), ShapeError, "input {} has other strides", k);
    verify(g, "instantiation");
    if (check_) check_(g);
    return g;
  } catch (const Error& e) {
    why = e.what();
    return std::nullopt;
  }
}

std::string Template::fault_of_rules() const {
  const Graph& g = captures_[0];
  for (BufferId id : filled_) {
    const Buffer& b = g.buffers[index(id)];
    if (b.kind != BufferKind::constant || b.written || !progression_of(b))
      return fmt::format("buffer {} is not filled in steps", id);
  }
  for (size_t i = 1; i < terms_.size(); ++i)
    if (terms_[i].number <= terms_[i - 1].number) return "terms must be in order";
  if (!terms_.empty() && terms_.back().number >= numbers_of(g, filled_).size())
    return fmt::format("there is no number {}", terms_.back().number);
  for (const Term& t : terms_)
    if (t.symbols.size() > kDegree) return fmt::format("more than {} sizes are multiplied", kDegree);
  return {};
}

}  // namespace deft::graph
