// Attention against plain loops in f64: sizes around the blocks, masks, strides, special values, threads.
#include "kernels/cpu/attention/attention.h"

#include <limits>

#include "dense_util.h"
#include "runtime/cpu_isa.h"

namespace deft {
namespace {

using namespace deft::test;

constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Mask { none, boolean, keys, additive, blind };

struct Case {
  int64_t l, s, e = 16, ev = 16;
  Mask mask = Mask::none;
  bool causal = false;
  int64_t batch = 1, heads = 2;
  double scale = 0.25;
  bool shared_keys = false;  // k and v have a stride of 0 between heads
  double drop = 0;           // dropout of the weights
};

std::string text(const Case& c) {
  return "l " + std::to_string(c.l) + " s " + std::to_string(c.s) + " e " + std::to_string(c.e) + " ev " +
         std::to_string(c.ev) + " mask " + std::to_string(static_cast<int>(c.mask)) + (c.causal ? " causal" : "") +
         " heads " + std::to_string(c.batch) + "x" + std::to_string(c.heads) + " drop " + std::to_string(c.drop);
}

constexpr PhiloxState kDraw{12345, 6};

// The dropout factor of a weight.
double kept(const Case& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  const auto at = static_cast<uint64_t>(((b * c.heads + h) * c.l + i) * c.s + j);
  const double u = uniform_from_bits(philox(kDraw, at / 4)[at % 4]);
  return u >= c.drop && c.drop < 1 ? 1 / (1 - c.drop) : 0;
}

// Operands [batch, rows, heads, features], as projections produce them, with a gap after each row.
template <class T>
struct PanelSource {
  Guarded<T> data;
  int64_t heads, rows, features;
  bool shared;

  PanelSource(const Case& c, int64_t r, int64_t f, uint32_t seed, bool s = false)
      : data(filled<T>(c.batch * r * (c.heads * f + 3), seed)), heads(c.heads), rows(r), features(f), shared(s) {}
  int64_t row() const { return heads * features + 3; }
  cpu::HeadsView view() {
    cpu::HeadsView v{data.data(), {}, row()};
    v.lead[0] = rows * row();
    v.lead[1] = shared ? 0 : features;
    return v;
  }
  int64_t at(int64_t b, int64_t h, int64_t r, int64_t f) const {
    return (b * rows + r) * row() + (shared ? 0 : h) * features + f;
  }
  double get(int64_t b, int64_t h, int64_t r, int64_t f) const { return as_double(data[at(b, h, r, f)]); }
};

// bool [l, s]; bool [batch, 1, 1, s]; of the inputs' type [batch, heads, l, s].
template <class T>
struct MaskData {
  std::vector<uint8_t> flags;
  std::vector<T> values;
  int64_t batch_stride = 0, head_stride = 0, row = 0;
  bool additive;

  explicit MaskData(const Case& c) : additive(c.mask == Mask::additive || c.mask == Mask::blind) {
    std::mt19937 gen(17);
    const int64_t count = c.mask == Mask::keys ? c.batch * c.s : additive ? c.batch * c.heads * c.l * c.s : c.l * c.s;
    if (!additive) {
      flags.resize(static_cast<size_t>(count));
      for (auto& f : flags) f = gen() % 4 != 0;
      for (int64_t j = 0; c.mask == Mask::boolean && c.l > 2 && j < c.s; ++j)
        flags[static_cast<size_t>(2 * c.s + j)] = 0;
    } else {
      values.resize(static_cast<size_t>(count));
      fill(values.data(), count, 18);
      for (size_t i = 0; c.mask == Mask::blind && i < values.size(); ++i) {
        if (static_cast<int64_t>(i) / c.s % 3 == 1 || gen() % 4 == 0) values[i] = static_cast<T>(-kInf);
      }
    }
    row = c.mask == Mask::keys ? 0 : c.s;
    batch_stride = c.mask == Mask::keys ? c.s : additive ? c.heads * c.l * c.s : 0;
    head_stride = additive ? c.l * c.s : 0;
  }
  // The mask term added to a score.
  double get(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const auto at = static_cast<size_t>(b * batch_stride + h * head_stride + i * row + j);
    if (additive) return as_double(values[at]);
    return flags[at] ? 0 : -kInf;
  }
  void set(cpu::AttentionCall& call) {
    call.mask.data = additive ? static_cast<void*>(values.data()) : flags.data();
    call.mask.lead[0] = batch_stride;
    call.mask.lead[1] = head_stride;
    call.mask.row = row;
    call.mask_key = 1;
    call.mask_dtype = additive ? dtype_of<T> : DType::boolean;
  }
};

template <class T>
struct Heads {
  Case c;
  PanelSource<T> q, k, v, o, g, dq, dk, dv;
  MaskData<T> mask;
  Guarded<accumulate_t<T>> log_sum;

  explicit Heads(const Case& t)
      : c(t),
        q(t, t.l, t.e, 1),
        k(t, t.s, t.e, 2, t.shared_keys),
        v(t, t.s, t.ev, 3, t.shared_keys),
        o(t, t.l, t.ev, 4),
        g(t, t.l, t.ev, 5),
        dq(t, t.l, t.e, 6),
        dk(t, t.s, t.e, 7),
        dv(t, t.s, t.ev, 8),
        mask(t),
        log_sum(t.batch * t.heads * t.l) {}

  cpu::AttentionCall call() {
    cpu::AttentionCall a{.dtype = dtype_of<T>,
                         .lead_dims = 2,
                         .lead = {c.batch, c.heads},
                         .queries = c.l,
                         .keys = c.s,
                         .features = c.e,
                         .value_features = c.ev,
                         .scale = c.scale,
                         .causal = c.causal,
                         .q = q.view(),
                         .k = k.view(),
                         .v = v.view(),
                         .o = o.view(),
                         .mask = {},
                         .drop = {c.drop, kDraw},
                         .log_sum = log_sum.data()};
    if (c.mask != Mask::none) mask.set(a);
    return a;
  }
  void forward() { cpu::attention_forward(call()); }
  void backward(bool want_q = true, bool want_k = true, bool want_v = true) {
    cpu::AttentionGrads grads{.g = g.view(), .dq = {}, .dk = {}, .dv = {}};
    if (want_q) grads.dq = dq.view();
    if (want_k) grads.dk = dk.view();
    if (want_v) grads.dv = dv.view();
    cpu::attention_backward(call(), grads);
  }
  void check_guards() const {
    for (const auto* x : {&q, &k, &v, &o, &g, &dq, &dk, &dv}) {
      x->data.check();
      if (x->shared) continue;
      const PanelSource<T> fresh(c, x->rows, x->features, x == &o ? 4 : x == &dq ? 6 : x == &dk ? 7 : x == &dv ? 8 : 0);
      const bool written = x == &o || x == &dq || x == &dk || x == &dv;
      for (int64_t r = 0; written && r < c.batch * x->rows; ++r) {
        for (int64_t i = x->row() - 3; i < x->row(); ++i) {
          const int64_t at = r * x->row() + i;
          ASSERT_EQ(std::memcmp(&x->data[at], &fresh.data[at], sizeof(T)), 0) << "gap was written";
        }
      }
    }
    log_sum.check();
  }
};

// Results of one head, in f64.
struct Reference {
  std::vector<double> p, o, dq, dk, dv;
  double most_g = 0;  // largest weighted gradient of a score: what errors of the gradients grow with
};

template <class T>
Reference reference(const Heads<T>& r, int64_t b, int64_t h) {
  const Case& c = r.c;
  Reference out;
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  out.p.resize(size(c.l * c.s));
  out.o.resize(size(c.l * c.ev));
  out.dq.resize(size(c.l * c.e));
  out.dk.resize(size(c.s * c.e));
  out.dv.resize(size(c.s * c.ev));
  for (int64_t i = 0; i < c.l; ++i) {
    double* p = out.p.data() + i * c.s;
    double top = -kInf, sum = 0, dot = 0;
    for (int64_t j = 0; j < c.s; ++j) {
      double score = 0;
      for (int64_t f = 0; f < c.e; ++f) score += r.q.get(b, h, i, f) * r.k.get(b, h, j, f);
      p[j] = score * c.scale + (c.mask != Mask::none ? r.mask.get(b, h, i, j) : 0);
      if (c.causal && j > i) p[j] = -kInf;
      top = std::max(top, p[j]);
    }
    for (int64_t j = 0; j < c.s; ++j) sum += p[j] = top == -kInf ? 0 : std::exp(p[j] - top);
    for (int64_t j = 0; j < c.s; ++j) {
      if (sum > 0) p[j] /= sum;
      for (int64_t f = 0; f < c.ev; ++f) out.o[size(i * c.ev + f)] += p[j] * kept(c, b, h, i, j) * r.v.get(b, h, j, f);
    }
    for (int64_t f = 0; f < c.ev; ++f) dot += out.o[size(i * c.ev + f)] * r.g.get(b, h, i, f);
    for (int64_t j = 0; j < c.s; ++j) {
      double dp = 0;
      for (int64_t f = 0; f < c.ev; ++f) {
        dp += r.g.get(b, h, i, f) * r.v.get(b, h, j, f);
        out.dv[size(j * c.ev + f)] += p[j] * kept(c, b, h, i, j) * r.g.get(b, h, i, f);
      }
      dp *= kept(c, b, h, i, j);
      out.most_g = std::max(out.most_g, p[j] * (std::abs(dp) + std::abs(dot)));
      for (int64_t f = 0; f < c.e; ++f) {
        out.dq[size(i * c.e + f)] += p[j] * (dp - dot) * c.scale * r.k.get(b, h, j, f);
        out.dk[size(j * c.e + f)] += p[j] * (dp - dot) * c.scale * r.q.get(b, h, i, f);
      }
    }
  }
  return out;
}

template <class T>
void compare(const PanelSource<T>& x, int64_t b, int64_t h, const std::vector<double>& want, double bound,
             const char* what) {
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t f = 0; f < x.features; ++f) {
      const double w = want[static_cast<size_t>(i * x.features + f)];
      expect_near(x.get(b, h, i, f), w, bound + epsilon_of(dtype_of<T>) * std::abs(w), what, i * x.features + f);
    }
  }
}

// Rounding errors per unit of the values: of the weights and the panels in 16-bit types, of the sums in f32.
template <class T>
double unit_error(int64_t n) {
  const double sums = epsilon_of(dtype_of<accumulate_t<T>>) * (4 + std::sqrt(static_cast<double>(n)) / 4);
  return sums + (sizeof(T) == 2 ? epsilon_of(dtype_of<T>) : 0);
}

template <class T>
void check_case(const Case& c) {
  SCOPED_TRACE(::testing::Message() << name_of(dtype_of<T>) << " " << text(c));
  Heads<T> r(c);
  const int before = num_threads();
  set_num_threads(1);
  r.forward();
  r.backward();
  for (int threads : {2, 16}) {  // many heads for each thread, and less than one
    Heads<T> again(c);
    set_num_threads(threads);
    again.forward();
    again.backward();
    EXPECT_TRUE(again.o.data.same_bits(r.o.data)) << threads << " threads: o";
    EXPECT_TRUE(again.log_sum.same_bits(r.log_sum)) << threads << " threads: log_sum";
    EXPECT_TRUE(again.dq.data.same_bits(r.dq.data)) << threads << " threads: dq";
    EXPECT_TRUE(again.dk.data.same_bits(r.dk.data)) << threads << " threads: dk";
    EXPECT_TRUE(again.dv.data.same_bits(r.dv.data)) << threads << " threads: dv";
  }
  set_num_threads(before);
  r.check_guards();
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const Reference want = reference(r, b, h);
      const double grown = c.drop < 1 ? 1 / (1 - c.drop) : 1;
      const double unit = unit_error<T>(c.s + c.e + c.ev) * grown, most = want.most_g;
      // Gradients sum the errors of many scores, at random signs.
      const double many = 1 + std::sqrt(static_cast<double>(std::max(c.l, c.s)));
      compare(r.o, b, h, want.o, unit, "o");
      compare(r.dv, b, h, want.dv, unit * many, "dv");
      compare(r.dq, b, h, want.dq, unit * many * (most + 1e-3) * std::abs(c.scale), "dq");
      compare(r.dk, b, h, want.dk, unit * many * (most + 1e-3) * std::abs(c.scale), "dk");
      if (::testing::Test::HasFailure()) return;
    }
  }
}

template <class T>
class Attention : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(Attention, Types);

TYPED_TEST(Attention, SmallSizes) {
  for (int64_t l : {0, 1, 2, 3, 7, 8, 9, 11, 12, 13, 24, 25}) {
    for (int64_t s : {0, 1, 4, 7, 8, 9, 11, 12, 13, 16, 17, 24}) {
      check_case<TypeParam>({l, s, 5, 7});
      check_case<TypeParam>({l, s, 16, 8, Mask::none, true});
    }
  }
}
TYPED_TEST(Attention, Features) {
  for (int64_t e : {0, 1, 3, 8, 64, 65}) {
    for (int64_t ev : {0, 1, 8, 9, 13, 64}) check_case<TypeParam>({14, 10, e, ev});
  }
  check_case<TypeParam>({13, 10, 600, 9});
}
TYPED_TEST(Attention, Masks) {
  for (Mask mask : {Mask::boolean, Mask::keys, Mask::additive, Mask::blind}) {
    for (int64_t l : {1, 2, 12, 29}) {
      for (int64_t s : {1, 8, 13, 37}) check_case<TypeParam>({l, s, 9, 11, mask, false, 2, 2});
    }
  }
}
TYPED_TEST(Attention, BlocksOfKeys) {
  for (int64_t s : {191, 192, 193, 385, 511, 512, 513, 1030}) {
    check_case<TypeParam>({30, s, 16, 16});
    check_case<TypeParam>({30, s, 16, 16, Mask::none, true});
    check_case<TypeParam>({1, s, 20, 70});
  }
  check_case<TypeParam>({30, 1030, 16, 16, Mask::blind});
  check_case<TypeParam>({30, 1030, 16, 16, Mask::keys, false, 2, 1});
}
TYPED_TEST(Attention, BlocksOfQueries) {
  for (int64_t l : {191, 192, 193, 385}) {
    check_case<TypeParam>({l, 40, 16, 16});
    check_case<TypeParam>({l, 40, 16, 16, Mask::none, true});
    check_case<TypeParam>({l, l + 150, 16, 16, Mask::none, true, 1, 1});
  }
  check_case<TypeParam>({600, 600, 16, 16, Mask::none, true, 1, 1});
  check_case<TypeParam>({250, 250, 16, 16, Mask::boolean, false, 1, 3});
}
TYPED_TEST(Attention, Dropout) {
  const auto check = [](Case c, double p) {
    c.drop = p;
    check_case<TypeParam>(c);
  };
  for (int64_t l : {1, 2, 3, 12, 29}) {
    for (int64_t s : {1, 7, 8, 13, 37}) {
      check({l, s, 9, 11, Mask::none, false, 2, 2}, 0.3);
      check({l, s, 9, 11, Mask::blind, false, 2, 2}, 0.3);
      check({l, s, 9, 11, Mask::none, true, 1, 3}, 0.5);
    }
  }
  for (double p : {0.1, 0.9, 1.0}) check({20, 30, 8, 8}, p);
  for (int64_t s : {193, 513, 1030}) check({30, s, 16, 16}, 0.2);
  check({250, 390, 16, 16, Mask::none, true, 1, 1}, 0.2);
  check({385, 250, 16, 16, Mask::boolean, false, 1, 3}, 0.2);
}
TYPED_TEST(Attention, Scales) {
  for (double scale : {0.0, -0.5, 3.0}) {
    check_case<TypeParam>({20, 30, 8, 8, Mask::none, false, 1, 2, scale});
    check_case<TypeParam>({20, 30, 8, 8, Mask::none, true, 1, 2, scale});
    check_case<TypeParam>({20, 30, 8, 8, Mask::blind, false, 1, 2, scale});
  }
}
TYPED_TEST(Attention, SharedKeysAndManyHeads) {
  Heads<TypeParam> r({9, 14, 8, 8, Mask::none, false, 2, 3, 0.25, true});
  r.forward();
  r.check_guards();
  for (int64_t h = 0; h < 3; ++h) compare(r.o, 1, h, reference(r, 1, h).o, unit_error<TypeParam>(30), "o");
  check_case<TypeParam>({20, 20, 8, 8, Mask::none, true, 5, 7});
  check_case<TypeParam>({100, 210, 16, 16, Mask::none, false, 2, 4});
  check_case<TypeParam>({100, 210, 16, 16, Mask::none, true, 1, 12});
}
// Long enough for threads to share the packed keys of a head.
TYPED_TEST(Attention, OneLongHead) {
  check_case<TypeParam>({800, 40, 8, 8, Mask::none, false, 1, 1});
  check_case<TypeParam>({800, 800, 8, 8, Mask::none, true, 1, 1});
}

// f32 split into parts where the CPU has tiles for that: sizes that are not whole tiles, after scratch memory that held
// NaN.
TYPED_TEST(Attention, ManyQueriesAndKeys) {
  for (const Case& c :
       {Case{257, 301, 64, 48, Mask::none, false, 1, 2}, Case{300, 270, 70, 64, Mask::none, true, 1, 1},
        Case{270, 561, 48, 64, Mask::blind, false, 1, 1}, Case{289, 258, 64, 64, Mask::keys, false, 1, 1},
        Case{260, 300, 64, 33, Mask::none, true, 1, 1, 0.25, false, 0.2}}) {
    Heads<TypeParam> bad(c);
    for (auto* x : {&bad.q, &bad.k, &bad.v, &bad.g}) {
      for (int64_t i = 0; i < x->data.size(); ++i) x->data[i] = static_cast<TypeParam>(NAN);
    }
    bad.forward();
    bad.backward();
    check_case<TypeParam>(c);
  }
}

// Other tiles and other types of panels.
TYPED_TEST(Attention, EveryInstructionSet) {
  const int best = isa_level();
  for (int i = 0; i <= best; ++i) {
    IsaGuard guard(isa_choice().levels[static_cast<size_t>(i)].name);
    check_case<TypeParam>({29, 40, 19, 13});
    check_case<TypeParam>({230, 230, 16, 16, Mask::none, true, 1, 1});
    check_case<TypeParam>({29, 40, 19, 13, Mask::none, false, 1, 2, 0.25, false, 0.25});
    check_case<TypeParam>({29, 40, 19, 13, Mask::blind});
  }
}
// Scratch memory that held NaN before.
TYPED_TEST(Attention, StaleMemory) {
  for (const Case& c : {Case{10, 10, 5, 7}, Case{10, 526, 5, 7, Mask::keys}, Case{202, 10, 5, 7, Mask::none, true}}) {
    Case full = c;  // of the same blocks
    full.l = (c.l + 23) / 24 * 24;
    full.s = (c.s + 23) / 24 * 24;
    Heads<TypeParam> bad(full);
    for (auto* x : {&bad.q, &bad.k, &bad.v, &bad.g}) {
      for (int64_t i = 0; i < x->data.size(); ++i) x->data[i] = static_cast<TypeParam>(NAN);
    }
    const int before = num_threads();
    set_num_threads(1);
    bad.forward();
    bad.backward();
    set_num_threads(before);
    check_case<TypeParam>(c);
  }
}

TEST(AttentionOf, WantedGradientsOnly) {
  Case c{40, 210, 16, 24, Mask::none, true};
  Heads<float> all(c);
  all.forward();
  all.backward();
  for (int wanted = 0; wanted < 8; ++wanted) {
    Heads<float> some(c);
    some.forward();
    some.backward(wanted & 1, wanted & 2, wanted & 4);
    const Heads<float> fresh(c);
    EXPECT_TRUE(some.dq.data.same_bits(wanted & 1 ? all.dq.data : fresh.dq.data)) << wanted;
    EXPECT_TRUE(some.dk.data.same_bits(wanted & 2 ? all.dk.data : fresh.dk.data)) << wanted;
    EXPECT_TRUE(some.dv.data.same_bits(wanted & 4 ? all.dv.data : fresh.dv.data)) << wanted;
  }
}

// Weights that differ by many powers of 2, and blocks whose largest scores come late.
TEST(AttentionOf, LargeScores) {
  Case c{14, 1100, 4, 4, Mask::none, false, 1, 1, 1.0};
  Heads<float> r(c);
  for (int64_t j = 0; j < c.s; ++j) {
    for (int64_t f = 0; f < c.e; ++f) r.k.data[r.k.at(0, 0, j, f)] = static_cast<float>(j % 7 * 0.25 + j * 0.05);
  }
  for (int64_t i = 0; i < c.l; ++i) {
    for (int64_t f = 0; f < c.e; ++f) r.q.data[r.q.at(0, 0, i, f)] = i % 2 ? 2.0f : -2.0f;
  }
  r.forward();
  r.backward();
  const Reference want = reference(r, 0, 0);
  // A score of 440 is rounded to 440 * 2^-24.
  compare(r.o, 0, 0, want.o, 440 * 0x1p-22, "o");
  compare(r.dv, 0, 0, want.dv, 440 * 0x1p-20, "dv");
  compare(r.dq, 0, 0, want.dq, 440 * 0x1p-17, "dq");
}

TEST(AttentionOf, NotANumber) {
  Case c{15, 20, 8, 8, Mask::boolean, false, 1, 1};
  Heads<float> r(c);
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  r.q.data[r.q.at(0, 0, 3, 1)] = nan;  // sees keys
  r.q.data[r.q.at(0, 0, 2, 1)] = nan;  // sees none
  r.forward();
  for (int64_t f = 0; f < c.ev; ++f) {
    EXPECT_TRUE(std::isnan(r.o.get(0, 0, 3, f)));
    EXPECT_EQ(r.o.get(0, 0, 2, f), 0);
    EXPECT_TRUE(std::isfinite(r.o.get(0, 0, 4, f)));
  }
  EXPECT_TRUE(std::isnan(r.log_sum[3]));
  EXPECT_EQ(r.log_sum[2], -kInf);

  Heads<float> one(c);  // a NaN in a value reaches the queries that see it
  one.v.data[one.v.at(0, 0, 5, 6)] = nan;
  one.forward();
  EXPECT_TRUE(std::isnan(one.o.get(0, 0, 0, 6)));
  EXPECT_TRUE(std::isfinite(one.o.get(0, 0, 0, 5)));

  Heads<float> inf(c);
  inf.k.data[inf.k.at(0, 0, 0, 0)] = std::numeric_limits<float>::infinity();
  inf.q.data[inf.q.at(0, 0, 0, 0)] = 1;
  inf.mask.flags[0] = 0;  // hidden from query 0
  inf.mask.flags[20] = 1;
  inf.q.data[inf.q.at(0, 0, 1, 0)] = 1;  // a score of +inf
  inf.forward();
  EXPECT_TRUE(std::isfinite(inf.o.get(0, 0, 0, 0)));
  EXPECT_TRUE(std::isnan(inf.o.get(0, 0, 1, 0)));
}

// Future keys are hidden, whatever they hold.
TEST(AttentionOf, CausalHidesTheFuture) {
  Case c{64, 640, 8, 8, Mask::none, true, 1, 1};
  Heads<float> r(c);
  for (int64_t j = 64; j < c.s; ++j) {
    for (int64_t f = 0; f < c.e; ++f) r.k.data[r.k.at(0, 0, j, f)] = std::numeric_limits<float>::quiet_NaN();
  }
  r.forward();
  for (int64_t i = 0; i < c.l; ++i) {
    for (int64_t f = 0; f < c.ev; ++f) ASSERT_TRUE(std::isfinite(r.o.get(0, 0, i, f)));
  }
}

// Weights of zero times values that are not finite are NaN for every query, as without tiles that skip hidden keys:
// which keys a tile skips differs from one instruction set to the next.
template <class T>
void check_hidden_value(Case c, int64_t key, float value) {
  Heads<T> r(c);
  r.v.data[r.v.at(0, 0, key, 3)] = static_cast<T>(value);
  r.forward();
  r.backward();
  for (int64_t i = 0; i < c.l; ++i) {
    for (int64_t f = 0; f < c.ev; ++f) {
      const double o = r.o.get(0, 0, i, f);
      if (f != 3) {
        ASSERT_TRUE(std::isfinite(o)) << text(c) << " query " << i;
      } else if (i < key || std::isnan(value)) {
        ASSERT_TRUE(std::isnan(o)) << text(c) << " query " << i;
      } else {
        ASSERT_FALSE(std::isfinite(o)) << text(c) << " query " << i;
      }
    }
    for (int64_t f = 0; f < c.e; ++f) ASSERT_TRUE(std::isnan(r.dq.get(0, 0, i, f))) << text(c) << " query " << i;
  }
  for (int64_t j = 0; j < c.s; ++j)
    for (int64_t f = 0; f < c.e; ++f) ASSERT_TRUE(std::isnan(r.dk.get(0, 0, j, f))) << text(c) << " key " << j;
}
TYPED_TEST(Attention, HiddenValuesThatAreNotFinite) {
  const int best = isa_level();
  for (int i = 0; i <= best; ++i) {
    IsaGuard guard(isa_choice().levels[static_cast<size_t>(i)].name);
    for (int64_t n : {2, 3, 50, 250, 700}) {
      const Case c{n, n, 8, 8, Mask::none, true, 1, 1};
      check_hidden_value<TypeParam>(c, n * 4 / 5, std::numeric_limits<float>::quiet_NaN());
      check_hidden_value<TypeParam>(c, n * 4 / 5, std::numeric_limits<float>::infinity());
    }
  }
}

}  // namespace
}  // namespace deft
