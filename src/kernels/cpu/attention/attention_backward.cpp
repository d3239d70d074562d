// Gradients of attention: weights are recomputed from the scores and the forward pass's log_sum, a block at a time.
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/attention/attention_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu {

using namespace heads;

namespace {

constexpr int64_t kBlock = 192;  // keys and queries of a block
constexpr int64_t kPartialBytes = 64 << 20;

// Copies panels of side b, [panel][feature][nr], times `scale` to rows from `begin` on.
template <class T>
void store(const Problem<T>& p, const HeadsView& to, int64_t head, int64_t begin, int64_t n, int64_t features,
           const T* from, double scale) {
  if (!to.data) return;
  T factor[kMostLines];
  std::fill_n(factor, p.nr, static_cast<T>(scale));
  const int64_t bytes = static_cast<int64_t>(size_of(p.call.dtype)), size = p.padded(features, Side::a) * p.nr;
  for (int64_t j = 0; j < n; j += p.nr) {
    char* out = p.head(to, head, p.call.dtype) + (begin + j) * to.row * bytes;
    p.rows.store_lines(p.nr, from + j / p.nr * size, features, factor, std::min<int64_t>(p.nr, n - j), p.call.dtype,
                       out, to.row);
  }
}

// The queries' gradient while it is summed, in panels of queries: times keys as rows of features where those need no
// more padding than columns, which saves a transpose.
template <class T>
struct QueryGrad {
  const Problem<T>& p;
  bool by_rows;
  int lines;  // of a panel
  int64_t panels, panel_size;

  explicit QueryGrad(const Problem<T>& problem)
      : p(problem),
        by_rows(p.padded(p.call.features, Side::b) <= p.padded(p.call.features, Side::a)),
        lines(by_rows ? p.mr : p.nr),
        panels((p.call.queries + lines - 1) / lines),
        panel_size(p.padded(p.call.features, key_side()) * lines) {}
  Side side() const { return by_rows ? Side::a : Side::b; }      // of the scores' gradient
  Side key_side() const { return by_rows ? Side::b : Side::a; }  // of keys, whose lines are features
  int64_t size() const { return panels * panel_size; }

  // A panel of the scores' gradient times the first `seen` packed keys.
  void multiply(const char* ds, const char* keys, int64_t key_count, int64_t seen, T* out) const {
    const int64_t bytes = p.tile.padded_k(key_count) * p.value_bytes, row = panel_size / lines;
    for (int64_t f = 0; by_rows && f < p.call.features; f += p.nr) {
      p.run(ds, keys + f * bytes, 0, seen, out + f, row, false);
    }
    for (int64_t f = 0; !by_rows && f < p.call.features; f += p.mr) {
      p.run(keys + f * bytes, ds, 0, seen, out + f * p.nr, false);
    }
  }
  void store_to(const HeadsView& to, int64_t head, const T* from) const {
    const AttentionCall& c = p.call;
    if (!by_rows) return store(p, to, head, 0, c.queries, c.features, from, c.scale);
    if (!to.data) return;
    p.rows.store_rows(from, panel_size / lines, c.queries, c.features, static_cast<T>(c.scale), c.dtype,
                      p.head(to, head, c.dtype), to.row);
  }
};

// One thread's part: queries of one head in panels, and blocks of keys against all of them.
template <class T>
class BackwardWorker {
 public:
  BackwardWorker(const Problem<T>& p, const AttentionGrads& grads, const QueryGrad<T>& query_grad,
                 const Blocks& queries, const Blocks& keys)
      : p_(p),
        grads_(grads),
        query_grad_(query_grad),
        queries_(queries),
        keys_(keys),
        series_(p.tile),
        e_(p.call.features),
        ev_(p.call.value_features),
        q_bytes_(packed_bytes(p.tile, Side::a, queries.size, e_)),
        g_bytes_(packed_bytes(p.tile, Side::a, queries.size, ev_)),
        qt_bytes_(packed_bytes(p.tile, Side::a, e_, queries.size)),
        gt_bytes_(packed_bytes(p.tile, Side::a, ev_, queries.size)),
        ds_row_(round_up(keys.size, p.nr)),
        block_([&](Parts& parts) { lay_out(parts); }) {}

  void pack_queries(int64_t head) {
    const DType dtype = p_.call.dtype;
    const StridedMatrix qt = p_.columns(p_.call.q, head);
    const StridedMatrix g = p_.lines(grads_.g, head), gt = p_.columns(grads_.g, head);
    for (int64_t i = 0; i < queries_.count; ++i) {
      const int64_t begin = queries_.begin(i), n = queries_.length(i);
      p_.pack_queries(Side::a, head, begin, n, q_ + i * q_bytes_);
      pack(p_.tile, Side::a, g, begin, n, 0, ev_, g_ + i * g_bytes_);
      pack(p_.tile, Side::a, qt, 0, e_, begin, n, qt_ + i * qt_bytes_);
      pack(p_.tile, Side::a, gt, 0, ev_, begin, n, gt_ + i * gt_bytes_);
    }
    const T* log_sum = static_cast<const T*>(p_.call.log_sum) + head * p_.call.queries;
    const char* o = p_.head(p_.call.o, head, dtype);
    const int64_t bytes = static_cast<int64_t>(size_of(dtype));
    skips_ = p_.call.causal && p_.all_finite(p_.call.q, head, 0, p_.call.queries, e_) &&
             p_.all_finite(p_.call.k, head, 0, p_.call.keys, e_);
    for (int64_t i = 0; i < p_.call.queries; ++i) {
      // Queries that see no key have weights of zero.
      log_sum_[i] = std::abs(log_sum[i]);
      if (log_sum_[i] != std::numeric_limits<T>::infinity()) log_sum_[i] = log_sum[i];
      dot_[i] = p_.rows.dot(dtype, at(g.in, i * grads_.g.row * bytes), o + i * p_.call.o.row * bytes, ev_);
      skips_ &= std::isfinite(dot_[i]);
    }
  }

  // Gradients of a block of keys and values; their part of the queries' gradient is added to `dq` or stored there.
  void run(int64_t head, int64_t block, T* dq, bool add) {
    const int64_t k0 = keys_.begin(block), n = keys_.length(block);
    pack(p_.tile, Side::b, p_.lines(p_.call.k, head), k0, n, 0, e_, k_);
    pack(p_.tile, Side::b, p_.lines(p_.call.v, head), k0, n, 0, ev_, v_);
    if (grads_.dq.data) {
      pack(p_.tile, query_grad_.key_side(), p_.columns(p_.call.k, head), 0, e_, k0, n, kt_);
    }
    bool first = true;
    for (int64_t i = 0; i < queries_.count; ++i) {
      if (skips_ && queries_.begin(i) + queries_.length(i) <= k0) continue;
      if (p_.drops()) load_keep(head, i, k0, n);
      for (int64_t j = 0; j < n; j += p_.nr) meet(head, i, k0, j, std::min<int64_t>(p_.nr, n - j), first);
      if (grads_.dq.data) add_queries(i, k0, n, dq, add);
      first = false;
    }
    if (first) {  // no query sees these keys
      std::fill_n(dk_, p_.padded(e_, Side::a) * round_up(n, p_.nr), T(0));
      std::fill_n(dv_, p_.padded(ev_, Side::a) * round_up(n, p_.nr), T(0));
    }
    store(p_, grads_.dk, head, k0, n, e_, dk_, p_.call.scale);
    store(p_, grads_.dv, head, k0, n, ev_, dv_, 1);
  }

 private:
  // A block of queries times a panel of keys, the `lines` keys from k0 + j.
  void meet(int64_t head, int64_t block, int64_t k0, int64_t j, int64_t lines, bool first) {
    const int64_t q0 = queries_.begin(block), n = queries_.length(block);
    const int64_t begin = first_query(q0, k0 + j, n), padded = p_.tile.padded_k(n), nr = p_.nr;
    T *scores = scores_, *dp = dp_;
    const int64_t panel = j / nr;
    score(q_ + block * q_bytes_, k_, e_, panel, begin, n, scores);
    score(g_ + block * g_bytes_, v_, ev_, panel, begin, n, dp);
    char* weights = p_.in_place ? reinterpret_cast<char*>(scores) : weights_;
    char* ds_panel = p_.in_place ? reinterpret_cast<char*>(dp) : ds_panel_;
    const int64_t ready = prepare(head, q0, k0 + j, lines, begin, n);
    for (const auto& [from, to, scale] : {Range{begin, ready, T(1)}, Range{ready, n, p_.scale}}) {
      const int64_t bytes = from * nr * p_.weight_bytes;
      p_.rows.grad_rows(
          p_.nr, {scores + from * nr, to - from, scale},
          {dp + from * nr, log_sum_ + q0 + from, dot_ + q0 + from, weights + bytes, ds_panel + bytes,
           ds_ + (from * ds_row_ + j) * p_.weight_bytes, ds_row_, p_.drops() ? keep_ + from * ds_row_ + j : nullptr});
    }
    const int64_t end = round_up(n, p_.tile.b_group);
    const size_t rest = static_cast<size_t>((padded - end) * nr * p_.weight_bytes);
    std::memset(weights + end * nr * p_.weight_bytes, 0, rest);
    std::memset(ds_panel + end * nr * p_.weight_bytes, 0, rest);
    weights = p_.as_panels(scores, begin, n, weights_);
    ds_panel = p_.as_panels(dp, begin, n, ds_panel_);
    if (grads_.dv.data) sum_up(gt_ + block * gt_bytes_, weights, ev_, begin, n, dv_, panel, first);
    if (grads_.dk.data) sum_up(qt_ + block * qt_bytes_, ds_panel, e_, begin, n, dk_, panel, first);
  }
  struct Range {
    int64_t begin, end;
    T scale;
  };

  void lay_out(Parts& parts) {
    const int64_t some = queries_.size, panel = some * p_.nr, panel_bytes = panel * p_.value_bytes;
    const bool apart = !p_.in_place || p_.split;
    parts.take(q_, q_bytes_ * queries_.count);
    parts.take(g_, g_bytes_ * queries_.count);
    parts.take(qt_, qt_bytes_ * queries_.count);
    parts.take(gt_, gt_bytes_ * queries_.count);
    parts.take(log_sum_, p_.call.queries);
    parts.take(dot_, p_.call.queries);
    parts.take(k_, packed_bytes(p_.tile, Side::b, keys_.size, e_));
    parts.take(v_, packed_bytes(p_.tile, Side::b, keys_.size, ev_));
    parts.take(kt_, packed_bytes(p_.tile, query_grad_.key_side(), e_, keys_.size));
    parts.take(dk_, p_.padded(e_, Side::a) * ds_row_);
    parts.take(dv_, p_.padded(ev_, Side::a) * ds_row_);
    parts.take(scores_, panel);
    parts.take(dp_, panel);
    parts.take(weights_, apart ? panel_bytes : 0);
    parts.take(ds_panel_, apart ? panel_bytes : 0);
    parts.take(ds_, round_up(some, p_.nr) * ds_row_ * p_.weight_bytes);
    parts.take(ds_queries_, packed_bytes(p_.tile, query_grad_.side(), query_grad_.lines, keys_.size));
    parts.take(mask_, p_.call.mask.data ? panel : 0);
    parts.take(keep_, p_.drops() ? some * ds_row_ : 0);
    parts.take(sum_, query_grad_.panel_size);
  }

  // Dropout factors of a pair of blocks, in rows of queries.
  void load_keep(int64_t head, int64_t block, int64_t k0, int64_t keys) {
    const int64_t q0 = queries_.begin(block), n = queries_.length(block), padded = round_up(keys, p_.nr);
    for (int64_t i = 0; i < n; ++i) {
      T* row = keep_ + i * ds_row_;
      p_.load_keep(head, q0 + i, k0, keys, row);
      std::fill_n(row + keys, padded - keys, T(0));
    }
  }

  // The first query of a block that sees a key of the panel, rounded down to where tiles can begin.
  int64_t first_query(int64_t q0, int64_t key, int64_t n) const {
    if (!skips_) return 0;
    const int64_t unit = std::lcm(p_.mr, p_.tile.k_step);
    return std::clamp<int64_t>(key - q0, 0, n) / unit * unit;
  }
  // out [queries][nr] = queries in panels of side a times one panel of keys.
  void score(const char* a, const char* b, int64_t k, int64_t panel, int64_t begin, int64_t n, T* out) const {
    const int64_t bytes = p_.tile.padded_k(k) * p_.value_bytes;
    for (int64_t i = begin; i < n; i += p_.mr) {
      p_.run(a + i * bytes, b + panel * p_.nr * bytes, 0, k, out + i * p_.nr, false);
    }
  }
  // One panel of dk or dv [features][nr] (+)= features over queries times weights.
  void sum_up(const char* a, const char* weights, int64_t features, int64_t begin, int64_t n, T* sums, int64_t panel,
              bool first) const {
    T* out = sums + panel * p_.padded(features, Side::a) * p_.nr;
    for (int64_t f = 0; f < features; f += p_.mr) {
      p_.run(a + f * p_.tile.padded_k(n) * p_.value_bytes, weights, begin, n, out + f * p_.nr, !first);
    }
  }

  // As in the forward pass; here rows are queries, and those from the result on are unscaled.
  int64_t prepare(int64_t head, int64_t q0, int64_t key, int64_t lines, int64_t begin, int64_t n) {
    if (p_.call.mask.data) {
      p_.mask_scores(head, q0, key, false, lines, n, scores_, mask_);
      return n;
    }
    if (!p_.call.causal) return begin;
    const int64_t all = std::clamp(round_up(key + p_.nr - 1 - q0, 4), begin, n);
    p_.rows.hide(p_.nr, {scores_ + begin * p_.nr, all - begin, p_.scale}, q0 + begin - key, true);
    return all;
  }

  // The block's part of the queries' gradient.
  void add_queries(int64_t block, int64_t k0, int64_t keys, T* dq, bool add) {
    const int64_t q0 = queries_.begin(block), n = queries_.length(block), lines = query_grad_.lines;
    const StridedMatrix ds{p_.in_place ? dtype_of<T> : p_.call.dtype, ds_, ds_row_, 1};
    for (int64_t i = 0; i < n; i += lines) {
      const int64_t seen = skips_ ? std::min(keys, q0 + i + lines - k0) : keys;
      if (seen <= 0) continue;
      pack(p_.tile, query_grad_.side(), ds, i, std::min(lines, n - i), 0, seen, ds_queries_);
      T* out = dq + (q0 + i) / lines * query_grad_.panel_size;
      query_grad_.multiply(ds_queries_, kt_, keys, seen, add ? sum_ : out);
      for (int64_t c = 0; add && c < query_grad_.panel_size; ++c) out[c] += sum_[c];
    }
  }

  const Problem<T>& p_;
  const AttentionGrads& grads_;
  const QueryGrad<T>& query_grad_;
  const Blocks &queries_, &keys_;
  TileSeries series_;
  int64_t e_, ev_;
  int64_t q_bytes_, g_bytes_, qt_bytes_, gt_bytes_;
  int64_t ds_row_;
  bool skips_ = false;        // skips keys hidden from a query, which give zeros unless something is not finite
  char *q_, *g_, *qt_, *gt_;  // side a: queries over features; features over queries, block by block
  T *log_sum_, *dot_;
  char *k_, *v_, *kt_;  // of one block of keys
  T *dk_, *dv_;
  T *scores_, *dp_;            // of one panel of keys
  char *weights_, *ds_panel_;  // the same in panels, where these hold another type
  char *ds_, *ds_queries_;     // of one pair of blocks; of one panel of queries
  T *mask_, *keep_, *sum_;
  PartsBlock block_;
};

template <class T>
class Backward {
 public:
  Backward(const Problem<T>& p, const AttentionGrads& grads)
      : p_(p),
        grads_(grads),
        unit_(std::lcm<int64_t>(std::lcm(p.mr, p.nr), p.tile.k_step)),
        queries_(p.call.queries, std::max(unit_, kBlock / unit_ * unit_), unit_),
        keys_(p.call.keys, std::max(unit_, kBlock / unit_ * unit_), unit_),
        query_grad_(p) {}

  void run() { whole_heads() || keys_.count <= 1 ? run_heads() : run_blocks(); }

 private:
  // Unless that leaves a third of the threads idle: parts of dq from blocks of keys have to be written and summed.
  bool whole_heads() const {
    const int64_t threads = num_threads(), rounds = (p_.heads + threads - 1) / threads;
    return 3 * p_.heads >= 2 * rounds * threads;
  }
  int64_t dq_size() const { return grads_.dq.data ? query_grad_.size() : 0; }

  // Each thread takes whole heads.
  void run_heads() {
    const int64_t work = p_.call.queries * p_.call.keys * (p_.call.features + p_.call.value_features) * 2;
    parallel_balanced(0, p_.heads, grain_of(work), [&](int64_t begin, int64_t end) {
      BackwardWorker<T> worker(p_, grads_, query_grad_, queries_, keys_);
      Workspace<T> dq(dq_size());
      std::fill_n(dq.data(), keys_.count ? 0 : dq_size(), T(0));
      for (int64_t head = begin; head < end; ++head) {
        worker.pack_queries(head);
        for (int64_t i = 0; i < keys_.count; ++i) worker.run(head, i, dq.data(), i > 0);  // all queries see the first
        query_grad_.store_to(grads_.dq, head, dq.data());
      }
    });
  }

  // Few heads: each thread takes blocks of keys, whose parts of dq are summed in order, as above.
  void run_blocks() {
    const int64_t tasks = p_.heads * keys_.count, size = dq_size();
    const int64_t fit = kPartialBytes / std::max<int64_t>(1, size * static_cast<int64_t>(sizeof(T)));
    const int64_t wave = std::min(tasks, std::max<int64_t>(num_threads(), fit));
    Workspace<T> parts(wave * size), dq(p_.heads * size);
    for (int64_t begin = 0; begin < tasks; begin += wave) {
      const int64_t end = std::min(tasks, begin + wave);
      parallel_for(begin, end, 1, [&](int64_t from, int64_t to) {
        BackwardWorker<T> worker(p_, grads_, query_grad_, queries_, keys_);
        for (int64_t i = from; i < to; ++i) {
          if (i == from || i % keys_.count == 0) worker.pack_queries(i / keys_.count);
          T* part = parts.data() + (i - begin) * size;
          std::fill_n(part, size, T(0));
          worker.run(i / keys_.count, i % keys_.count, part, false);
        }
      });
      parallel_for(0, query_grad_.panels * (size > 0), 1, [&](int64_t from, int64_t to) {
        const int64_t first = from * query_grad_.panel_size, last = to * query_grad_.panel_size;
        for (int64_t i = begin; i < end; ++i) {
          const T* part = parts.data() + (i - begin) * size;
          T* sum = dq.data() + i / keys_.count * size;
          if (i % keys_.count == 0) {
            std::copy(part + first, part + last, sum + first);
          } else {
            for (int64_t c = first; c < last; ++c) sum[c] += part[c];
          }
        }
      });
    }
    parallel_for(0, p_.heads, 1, [&](int64_t from, int64_t to) {
      for (int64_t head = from; head < to; ++head) {
        query_grad_.store_to(grads_.dq, head, dq.data() + head * size);
      }
    });
  }

  const Problem<T>& p_;
  const AttentionGrads& grads_;
  int64_t unit_;
  Blocks queries_, keys_;
  QueryGrad<T> query_grad_;
};

}  // namespace

void attention_backward(const AttentionCall& call, const AttentionGrads& grads) {
  if (is_empty(call)) return;
  const auto run = [&](const auto& problem) { Backward(problem, grads).run(); };
  if (call.dtype == DType::f64) return with_tile<double>(call, Panel::f64, run);
  // f16 panels would lose small gradients and overflow with large ones.
  with_tile<float>(call, call.dtype == DType::f16 ? Panel::f32 : panel_of(call), run);
}

}  // namespace deft::cpu
