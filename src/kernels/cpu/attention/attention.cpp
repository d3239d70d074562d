#include "kernels/cpu/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/attention/attention_internal.h"
#include "kernels/cpu/copy/interleave.h"
#include "runtime/parallel.h"

namespace deft::cpu {

using namespace heads;

namespace {

constexpr int64_t kKeyBlock = 512;    // scores of a panel of queries stay in L1
constexpr int64_t kQueryBlock = 192;  // queries that are multiplied with a block of keys while it is in L2
constexpr int64_t kFewQueries = 2;

// Packed keys and values of one head, one block of keys after the other.
template <class T>
struct PackedHead {
  const Problem<T>& p;
  Blocks keys;
  int64_t key_bytes, value_bytes;
  char *k, *v;
  bool* finite;  // whether the values of each block are finite
  PartsBlock block;

  PackedHead(const Problem<T>& problem, const Blocks& blocks)
      : p(problem),
        keys(blocks),
        key_bytes(packed_bytes(p.tile, Side::a, keys.size, p.call.features)),
        value_bytes(packed_bytes(p.tile, Side::a, p.call.value_features, keys.size)),
        block([&](Parts& parts) {
          parts.take(k, key_bytes * keys.count);
          parts.take(v, value_bytes * keys.count);
          parts.take(finite, keys.count);
        }) {}
  void pack_block(int64_t head, int64_t i) const {
    const int64_t begin = keys.begin(i), n = keys.length(i);
    pack(p.tile, Side::a, p.lines(p.call.k, head), begin, n, 0, p.call.features, k + i * key_bytes);
    pack(p.tile, Side::a, p.columns(p.call.v, head), 0, p.call.value_features, begin, n, v + i * value_bytes);
    finite[i] = !p.call.causal || p.all_finite(p.call.v, head, begin, n, p.call.value_features);
  }
  void pack_all(int64_t head) const {
    for (int64_t i = 0; i < keys.count; ++i) pack_block(head, i);
  }
};

// One thread's part of the forward pass: blocks of queries against all keys.
template <class T>
class ForwardWorker {
 public:
  ForwardWorker(const Problem<T>& p, const Blocks& queries, const Blocks& keys)
      : p_(p),
        queries_(queries),
        series_(p.tile),
        panel_bytes_(packed_bytes(p.tile, Side::b, p.nr, p.call.features)),
        acc_size_(p.padded(p.call.value_features, Side::a) * p.nr),
        block_([&](Parts& parts) {
          const int64_t panels = round_up(queries.size, p.nr) / p.nr, scores = keys.size * p.nr;
          parts.take(q_, panels * panel_bytes_);
          parts.take(acc_, panels * acc_size_);
          parts.take(top_, panels * p.nr * 2);
          parts.take(scores_, scores);
          parts.take(weights_, p.in_place && !p.split ? 0 : scores * p.value_bytes);
          parts.take(mask_, p.call.mask.data ? scores : 0);
          parts.take(keep_, p.drops() ? 2 * scores : 0);
        }) {}

  void run(const PackedHead<T>& packed, int64_t head, int64_t block) {
    const int64_t begin = queries_.begin(block), n = queries_.length(block);
    const int64_t panels = (n + p_.nr - 1) / p_.nr, rows = panels * p_.nr;
    T *top = top_, *sum = top + rows;
    std::fill_n(top, rows, -std::numeric_limits<T>::infinity());
    std::fill_n(sum, rows, T(0));
    p_.pack_queries(Side::b, head, begin, n, q_);
    for (int64_t kb = 0; kb < packed.keys.count; ++kb) {
      for (int64_t i = 0; i < panels; ++i) {
        const int64_t q0 = begin + i * p_.nr, k0 = packed.keys.begin(kb);
        const bool skips = p_.call.causal && packed.finite[kb];  // else hidden values give 0 * NaN
        const int64_t seen = skips ? std::min(packed.keys.n, q0 + p_.nr) : packed.keys.n;
        const int64_t keys = std::min(packed.keys.length(kb), seen - k0);
        if (keys > 0) meet(packed, head, kb, i, q0, keys, top + i * p_.nr, sum + i * p_.nr);
      }
    }
    for (int64_t i = 0; i < panels; ++i) {
      store(head, begin + i * p_.nr, std::min<int64_t>(p_.nr, n - i * p_.nr), i, top + i * p_.nr, sum + i * p_.nr);
    }
  }

 private:
  // A panel of queries times the first `keys` keys of a block.
  void meet(const PackedHead<T>& packed, int64_t head, int64_t kb, int64_t panel, int64_t q0, int64_t keys, T* top,
            T* sum) {
    const int64_t k0 = packed.keys.begin(kb);
    const char* k = packed.k + kb * packed.key_bytes;
    const char* q = q_ + panel * panel_bytes_;
    const int64_t key_panel = p_.tile.padded_k(p_.call.features) * p_.mr * p_.value_bytes;
    for (int64_t j = 0; j < keys; j += p_.mr) {
      p_.run(k + j / p_.mr * key_panel, q, 0, p_.call.features, scores_ + j * p_.nr, false);
    }
    T* acc = acc_ + panel * acc_size_;
    void* weights = p_.in_place ? static_cast<void*>(scores_) : weights_;
    soften(head, q0, k0, keys, top, sum, kb > 0 ? acc : nullptr, weights);
    const char* panel_of_weights = p_.as_panels(scores_, 0, keys, weights_);
    const char* v = packed.v + kb * packed.value_bytes;
    const int64_t value_panel = p_.tile.padded_k(packed.keys.length(kb)) * p_.mr * p_.value_bytes;
    for (int64_t f = 0; f < p_.call.value_features; f += p_.mr) {
      p_.run(v + f / p_.mr * value_panel, panel_of_weights, 0, keys, acc + f * p_.nr, kb > 0);
    }
  }

  // Turns scores into weights relative to the largest score so far, and rescales `acc` to it.
  void soften(int64_t head, int64_t q0, int64_t k0, int64_t keys, T* top, T* sum, T* acc, void* weights) {
    T* scores = scores_;
    const int64_t plain = prepare(head, q0, k0, keys);
    T old[kMostLines], factor[kMostLines], reference[kMostLines];
    std::copy_n(top, p_.nr, old);
    const ScoreRows<T> raw{scores, plain, p_.scale}, ready{scores + plain * p_.nr, keys - plain, T(1)};
    p_.rows.max_columns(p_.nr, raw, top);
    p_.rows.max_columns(p_.nr, ready, top);
    bool moved = false;
    for (int i = 0; i < p_.nr; ++i) {
      const bool none = top[i] == -std::numeric_limits<T>::infinity();
      reference[i] = none ? T(0) : top[i];
      const bool first = old[i] == -std::numeric_limits<T>::infinity();
      factor[i] = old[i] == top[i] ? T(1) : first ? T(0) : std::exp2(old[i] - reference[i]);
      moved |= factor[i] != T(1);
      sum[i] *= factor[i];
    }
    if (acc && moved) p_.rows.scale_columns(p_.nr, acc, acc_size_ / p_.nr, factor);
    const T* keep = load_keep(head, q0, k0, keys);
    p_.rows.exp_columns(p_.nr, raw, reference, keep, sum, weights);
    if (keep) keep += plain * p_.nr;
    p_.rows.exp_columns(p_.nr, ready, reference, keep, sum, at(weights, plain * p_.nr * p_.weight_bytes));
    const int64_t group = p_.tile.b_group, end = round_up(keys, group), padded = p_.tile.padded_k(keys);
    std::memset(at(weights, end * p_.nr * p_.weight_bytes), 0,
                static_cast<size_t>((padded - end) * p_.nr * p_.weight_bytes));
  }

  // Transposes lines of `keys` values to rows of nr.
  void transpose(const T* line, int64_t lines, int64_t keys, T* rows) const {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const int64_t whole_lines = lines / 4 * 4, whole_keys = keys / 4 * 4, nr = p_.nr;
    const Bits* from = reinterpret_cast<const Bits*>(line);
    Bits* to = reinterpret_cast<Bits*>(rows);
    using Block = Block4<Bits>;
    for (int64_t i = 0; i < whole_lines; i += 4) {
      for (int64_t j = 0; j < whole_keys; j += 4) {
        const Bits* at = from + i * keys + j;
        Block b{Block::load(at), Block::load(at + keys), Block::load(at + 2 * keys), Block::load(at + 3 * keys)};
        b.transpose();
        Bits* out = to + j * nr + i;
        Block::store(b.a, out), Block::store(b.b, out + nr);
        Block::store(b.c, out + 2 * nr), Block::store(b.d, out + 3 * nr);
      }
    }
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t i = j < whole_keys ? whole_lines : 0; i < lines; ++i) rows[j * nr + i] = line[i * keys + j];
    }
  }
  // Dropout factors as rows of keys, null for none.
  const T* load_keep(int64_t head, int64_t q0, int64_t k0, int64_t keys) {
    if (!p_.drops()) return nullptr;
    const int64_t lines = std::min<int64_t>(p_.nr, p_.call.queries - q0), nr = p_.nr;
    T *rows = keep_, *line = rows + keys * nr;
    if (lines < nr) std::fill_n(rows, keys * nr, T(0));
    for (int64_t i = 0; i < lines; ++i) p_.load_keep(head, q0 + i, k0, keys, line + i * keys);
    transpose(line, lines, keys, rows);
    return rows;
  }

  // Scales and masks the scores that are not all visible; returns how many rows before them are unscaled.
  int64_t prepare(int64_t head, int64_t q0, int64_t k0, int64_t keys) {
    if (p_.call.mask.data) {
      const int64_t lines = std::min<int64_t>(p_.nr, p_.call.queries - q0);
      p_.mask_scores(head, q0, k0, true, lines, keys, scores_, mask_);
      return 0;
    }
    if (!p_.call.causal) return keys;
    const int64_t plain = std::clamp<int64_t>(q0 + 1 - k0, 0, keys) / 4 * 4;
    p_.rows.hide(p_.nr, {scores_ + plain * p_.nr, keys - plain, p_.scale}, k0 + plain - q0, false);
    return plain;
  }

  void store(int64_t head, int64_t q0, int64_t lines, int64_t panel, const T* top, const T* sum) {
    T factor[kMostLines], log_sum[kMostLines];
    p_.rows.end_columns(p_.nr, top, sum, factor, log_sum);
    std::copy_n(log_sum, lines, static_cast<T*>(p_.call.log_sum) + head * p_.call.queries + q0);
    char* o =
        p_.head(p_.call.o, head, p_.call.dtype) + q0 * p_.call.o.row * static_cast<int64_t>(size_of(p_.call.dtype));
    T* acc = acc_ + panel * acc_size_;
    if (p_.call.keys == 0) std::fill_n(acc, acc_size_, T(0));
    p_.rows.store_lines(p_.nr, acc, p_.call.value_features, factor, lines, p_.call.dtype, o, p_.call.o.row);
  }

  const Problem<T>& p_;
  const Blocks& queries_;
  TileSeries series_;
  int64_t panel_bytes_, acc_size_;
  char *q_, *weights_;
  T *acc_, *top_, *scores_, *mask_, *keep_;
  PartsBlock block_;
};

// Few queries: each reads keys and values in place, which takes a third of the time of packing them first.
template <class T>
class SingleQuery {
 public:
  explicit SingleQuery(const Problem<T>& p)
      : p_(p),
        size_(round_up(p.call.keys, p.nr)),
        query_(p.call.features),
        scores_(size_),
        mask_(p.call.mask.data ? size_ : 0),
        keep_(p.drops() ? size_ : 0),
        sum_(p.call.value_features) {}

  void run(int64_t head, int64_t query) {
    const AttentionCall& c = p_.call;
    const int64_t bytes = static_cast<int64_t>(size_of(c.dtype));
    const int64_t keys = c.causal ? std::min(c.keys, query + 1) : c.keys, rows = (keys + p_.nr - 1) / p_.nr;
    load_query(p_.head(c.q, head, c.dtype) + query * c.q.row * bytes);
    p_.rows.row_dots(c.dtype, query_.data(), p_.head(c.k, head, c.dtype), c.k.row, keys, c.features, scores_.data());
    std::fill_n(scores_.data() + keys, rows * p_.nr - keys, -std::numeric_limits<T>::infinity());
    if (c.mask.data) {
      std::fill_n(mask_.data() + keys, rows * p_.nr - keys, T(0));
      p_.load_mask(head, query, 0, true, 1, keys, 1, mask_.data());
      p_.rows.add_mask(p_.nr, {scores_.data(), rows, T(1)}, mask_.data());
    }
    T top[kMostLines], sums[kMostLines] = {}, most = -std::numeric_limits<T>::infinity(), total = 0;
    std::fill_n(top, p_.nr, most);
    p_.rows.max_columns(p_.nr, {scores_.data(), rows, T(1)}, top);
    for (int i = 0; i < p_.nr; ++i) most = std::max(most, top[i]);
    std::fill_n(top, p_.nr, most == -std::numeric_limits<T>::infinity() ? T(0) : most);
    if (p_.drops()) {
      p_.load_keep(head, query, 0, keys, keep_.data());
      std::fill_n(keep_.data() + keys, rows * p_.nr - keys, T(0));
    }
    p_.rows.exp_columns(p_.nr, {scores_.data(), rows, T(1)}, top, p_.drops() ? keep_.data() : nullptr, sums,
                        scores_.data());
    for (int i = 0; i < p_.nr; ++i) total += sums[i];
    static_cast<T*>(c.log_sum)[head * c.queries + query] = most + std::log2(total);
    std::fill_n(sum_.data(), c.value_features, T(0));
    const bool skips = keys == c.keys || p_.all_finite(c.v, head, keys, c.keys - keys, c.value_features);
    if (!skips) std::fill_n(scores_.data() + keys, c.keys - keys, T(0));
    p_.rows.add_rows(c.dtype, scores_.data(), p_.head(c.v, head, c.dtype), c.v.row, skips ? keys : c.keys,
                     c.value_features, sum_.data());
    const T factor = total == 0 ? T(0) : 1 / total;
    char* o = p_.head(c.o, head, c.dtype) + query * c.o.row * bytes;
    p_.rows.store_lines(1, sum_.data(), c.value_features, &factor, 1, c.dtype, o, 0);
  }

 private:
  void load_query(const void* q) {
    dispatch_floating(p_.call.dtype, [&]<class S>() {
      for (int64_t i = 0; i < p_.call.features; ++i) {
        query_[i] = static_cast<T>(static_cast<const S*>(q)[i]) * p_.query_scale;
      }
    });
  }
  const Problem<T>& p_;
  int64_t size_;
  Workspace<T> query_, scores_, mask_, keep_, sum_;
};

template <class T>
void forward_few(const Problem<T>& p) {
  const int64_t grain = grain_of(p.call.keys * (p.call.features + p.call.value_features));
  parallel_for(0, p.heads * p.call.queries, grain, [&](int64_t begin, int64_t end) {
    SingleQuery<T> single(p);
    for (int64_t i = begin; i < end; ++i) single.run(i / p.call.queries, i % p.call.queries);
  });
}

template <class T>
void forward(const Problem<T>& p) {
  const Blocks queries(p.call.queries, kQueryBlock, p.nr);
  const Blocks keys(p.call.keys, std::min(kKeyBlock, p.tile.block_k), std::lcm(p.mr, p.tile.k_step));
  const int64_t grain = grain_of(queries.size * p.call.keys * (p.call.features + p.call.value_features));
  if (p.heads >= 4 * num_threads()) {  // threads trade whole heads; of few, they share each
    parallel_balanced(0, p.heads, grain / queries.count, [&](int64_t begin, int64_t end) {
      PackedHead<T> packed(p, keys);
      ForwardWorker<T> worker(p, queries, keys);
      for (int64_t head = begin; head < end; ++head) {
        packed.pack_all(head);
        for (int64_t i = 0; i < queries.count; ++i) worker.run(packed, head, i);
      }
    });
    return;
  }
  // Early and late queries alternate: those of a causal call see different numbers of keys.
  const auto in_turn = [&](int64_t i) { return i % 2 ? queries.count - 1 - i / 2 : i / 2; };
  // Threads that work on the same head pack it each for themselves. Only with few long heads do they share the packed
  // keys, one head after the other: with 12 heads, 16 threads would then run a few at a time and wait (128 queries of
  // f32: 0.44 ms instead of 0.09).
  if (p.heads >= num_threads() || queries.count < 2 * num_threads()) {
    parallel_for(0, p.heads * queries.count, grain, [&](int64_t begin, int64_t end) {
      PackedHead<T> packed(p, keys);
      ForwardWorker<T> worker(p, queries, keys);
      for (int64_t i = begin; i < end; ++i) {
        if (i == begin || i % queries.count == 0) packed.pack_all(i / queries.count);
        worker.run(packed, i / queries.count, in_turn(i % queries.count));
      }
    });
    return;
  }
  PackedHead<T> packed(p, keys);
  for (int64_t head = 0; head < p.heads; ++head) {
    parallel_for(0, keys.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) packed.pack_block(head, i);
    });
    parallel_for(0, queries.count, grain, [&](int64_t begin, int64_t end) {
      ForwardWorker<T> worker(p, queries, keys);
      for (int64_t i = begin; i < end; ++i) worker.run(packed, head, in_turn(i));
    });
  }
}

}  // namespace

void attention_forward(const AttentionCall& call) {
  if (is_empty(call) || call.queries == 0) return;
  const bool few = call.queries <= kFewQueries;
  const auto run = [&](const auto& problem) { few ? forward_few(problem) : forward(problem); };
  if (call.dtype == DType::f64) return with_tile<double>(call, Panel::f64, run);
  with_tile<float>(call, few ? Panel::f32 : panel_of(call), run);
}

}  // namespace deft::cpu
