#include "ops/param_fields.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "ops/all_ops.h"
#include "ops/op_table.h"

namespace deft {

namespace {

// --- How many members an aggregate has: as many as it can be initialised from.

struct Anything {
  template <class T>
  operator T() const;
};
constexpr size_t kMostMembers = 12;

template <class T, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), Anything())...}; };
}
template <class T, size_t N = kMostMembers>
constexpr size_t member_count() {
  if constexpr (N == 0 || takes<T>(std::make_index_sequence<N>()))
    return N;
  else
    return member_count<T, N - 1>();
}

// f(member) for each.
template <class T, class F>
void each_member(T& x, F f) {
  constexpr size_t n = member_count<T>();
  static_assert(!takes<T>(std::make_index_sequence<kMostMembers + 1>()), "more members than there are cases");
  auto all = [&](auto&... each) { (f(each), ...); };
#define DEFT_MEMBERS(count, ...) \
  if constexpr (n == count) {    \
    auto& [__VA_ARGS__] = x;     \
    all(__VA_ARGS__);            \
  }
  DEFT_MEMBERS(1, a)
  DEFT_MEMBERS(2, a, b)
  DEFT_MEMBERS(3, a, b, c)
  DEFT_MEMBERS(4, a, b, c, d)
  DEFT_MEMBERS(5, a, b, c, d, e)
  DEFT_MEMBERS(6, a, b, c, d, e, g)
  DEFT_MEMBERS(7, a, b, c, d, e, g, h)
  DEFT_MEMBERS(8, a, b, c, d, e, g, h, i)
  DEFT_MEMBERS(9, a, b, c, d, e, g, h, i, j)
  DEFT_MEMBERS(10, a, b, c, d, e, g, h, i, j, k)
  DEFT_MEMBERS(11, a, b, c, d, e, g, h, i, j, k, l)
  DEFT_MEMBERS(12, a, b, c, d, e, g, h, i, j, k, l, m)
#undef DEFT_MEMBERS
}

// Compilers print a value without a name as "(Type)7".
template <auto Value>
constexpr bool has_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  return text[text.find("Value = ") + 8] != '(';
}
template <class E, size_t... I>
constexpr uint64_t names_of(std::index_sequence<I...>) {
  return ((uint64_t{has_name<static_cast<E>(I)>()} << I) | ...);
}

template <class T>
struct IsArray : std::false_type {};
template <class T, size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

struct Lister {
  const void* base;
  std::vector<ParamField>& fields;

  template <class T>
  void add(T& member, FieldKind kind, uint64_t choices = 0) {
    auto offset = reinterpret_cast<const char*>(&member) - static_cast<const char*>(base);
    fields.push_back({kind, static_cast<uint32_t>(offset), sizeof(T), choices});
  }
  template <class T>
  void operator()(T& member) {
    if constexpr (std::is_same_v<T, bool>) {
      add(member, FieldKind::boolean);
    } else if constexpr (std::is_enum_v<T>) {
      add(member, FieldKind::choice, names_of<T>(std::make_index_sequence<32>()));
    } else if constexpr (std::is_integral_v<T>) {
      add(member, std::is_signed_v<T> ? FieldKind::integer : FieldKind::natural);
    } else if constexpr (std::is_same_v<T, double>) {
      add(member, FieldKind::real);
    } else if constexpr (std::is_pointer_v<T>) {
      add(member, FieldKind::pointer);
    } else if constexpr (std::is_same_v<T, Shape>) {
      add(member, FieldKind::shape);
    } else if constexpr (std::is_same_v<T, PhiloxState>) {
      add(member.seed, FieldKind::draw);
      add(member.offset, FieldKind::draw);
    } else if constexpr (IsArray<T>::value) {
      for (auto& element : member) (*this)(element);
    } else {
      each_member(member, *this);
    }
  }
};

// Their Params hold those of other ops.
template <class Op>
constexpr bool kHoldsOthers =
    std::is_same_v<Op, ElementwiseChain> || std::is_same_v<Op, ElementwiseGradient> || std::is_same_v<Op, FusedRows>;

template <class Op>
std::vector<ParamField> fields_of() {
  using P = typename detail::ParamsOf<Op>::type;
  std::vector<ParamField> fields;
  [[maybe_unused]] P p{};
  if constexpr (!std::is_empty_v<P> && !kHoldsOthers<Op>) Lister{&p, fields}(p);
  return fields;
}

const std::vector<std::vector<ParamField>>& table() {
  // Never destroyed: threads may outlive static destruction.
  static const auto& all = *new std::vector<std::vector<ParamField>>{
#define DEFT_OP(Type) fields_of<Type>(),
#include "ops/all_ops.def"
#undef DEFT_OP
  };
  return all;
}

uint64_t bits_of(const ParamField& f, const std::byte* params) {
  uint64_t bits = 0;
  std::memcpy(&bits, params + f.offset, f.bytes);  // little endian, as everywhere here
  return bits;
}
Shape shape_of(const ParamField& f, const std::byte* params) {
  Shape s;
  std::memcpy(static_cast<void*>(&s), params + f.offset, sizeof s);
  return s;
}

}  // namespace

std::span<const ParamField> param_fields(const OpDef& def) {
  int index = op_index(def);
  return index < 0 ? std::span<const ParamField>() : table()[static_cast<size_t>(index)];
}

int64_t read_integer(const ParamField& f, const std::byte* params) {
  uint64_t bits = bits_of(f, params);
  unsigned unused = 64 - 8 * f.bytes;
  if (f.kind == FieldKind::natural) return static_cast<int64_t>(bits);
  return static_cast<int64_t>(bits << unused) >> unused;
}
void write_integer(const ParamField& f, std::byte* params, int64_t value) {
  std::memcpy(params + f.offset, &value, f.bytes);
}

bool is_valid(const ParamField& f, const std::byte* params) {
  uint64_t bits = f.bytes <= 8 ? bits_of(f, params) : 0;
  if (f.kind == FieldKind::boolean) return bits <= 1;
  if (f.kind == FieldKind::choice) return bits < 32 && (f.choices >> bits & 1);
  if (f.kind == FieldKind::pointer) return bits == 0;
  if (f.kind == FieldKind::shape) {
    int size = shape_of(f, params).size();
    return size >= 0 && size <= kMaxDims;
  }
  return true;
}

std::vector<std::byte> settled_params(const OpDef& def, const std::byte* params) {
  std::vector<std::byte> settled(def.params_bytes);
  auto copy = [&](const OpDef& op, size_t at) {
    auto fields = param_fields(op);
    if (fields.empty()) std::copy_n(params + at, op.params_bytes, settled.data() + at);
    for (const ParamField& f : fields) {
      std::byte* to = settled.data() + at + f.offset;
      if (f.kind == FieldKind::shape)
        new (to) Shape(IntList(shape_of(f, params + at)));
      else
        std::copy_n(params + at + f.offset, f.bytes, to);
    }
  };
  if (&def != &op_def<ElementwiseGradient>) {
    copy(def, 0);
    return settled;
  }
  ElementwiseGradient::Params p;
  std::memcpy(static_cast<void*>(&p), params, sizeof p);
  const size_t inner = offsetof(ElementwiseGradient::Params, params);
  std::copy_n(params, sizeof p.op, settled.data());
  settled[offsetof(ElementwiseGradient::Params, dtype)] = static_cast<std::byte>(p.dtype);
  if (const OpDef* op = op_at(p.op)) copy(*op, inner);
  return settled;
}

bool same_params(const OpDef& def, const std::byte* a, const std::byte* b) {
  auto fields = param_fields(def);
  if (fields.empty()) return std::equal(a, a + def.params_bytes, b);
  for (const ParamField& f : fields) {
    if (f.kind == FieldKind::draw) continue;
    bool same = f.kind == FieldKind::shape ? shape_of(f, a) == shape_of(f, b)
                                           : std::memcmp(a + f.offset, b + f.offset, f.bytes) == 0;
    if (!same) return false;
  }
  return true;
}

}  // namespace deft
