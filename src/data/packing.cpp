#include "data/packing.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "data/order.h"
#include "data/padding.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/unary.h"

namespace deft::data {

namespace {

// Keeps the order of rows apart from that of samples.
constexpr uint64_t kRowOrder = 0xd1b54a32d192ed03;

}  // namespace

PackPlan::PackPlan(std::span<const int64_t> lengths, int64_t capacity, int64_t rows) : capacity_(capacity) {
  DEFT_CHECK(capacity > 0 && rows >= 0, ValueError, "PackPlan: capacity {} must be positive and rows {} not negative",
             capacity, rows);
  int64_t room = 0;
  for (int64_t n : lengths) {
    DEFT_CHECK(n >= 0 && n <= capacity, ValueError, "PackPlan: a sequence of {} tokens does not fit a row of {}", n,
               capacity);
    if (rows_ == 0 || n > room) {
      ++rows_;
      room = capacity;
    }
    places_.push_back({rows_ - 1, capacity - room, n});
    room -= n;
  }
  DEFT_CHECK(rows == 0 || rows_ <= rows, ValueError,
             "PackPlan: {} sequences need {} rows of {} tokens, there are {}; a PackingSampler makes batches that fit",
             lengths.size(), rows_, capacity, rows);
  rows_ = std::max(rows_, rows);
}

Tensor PackPlan::pack(const Tensor& batch, double pad) const {
  auto n = static_cast<int64_t>(places_.size());
  DEFT_CHECK(batch.defined() && batch.dim() >= 2 && batch.size(0) == n, ShapeError,
             "PackPlan: takes a batch of {} sequences [n, length, ...], found {}", n,
             batch.defined() ? to_string(batch.sizes()) : "an undefined tensor");
  Shape sizes = batch.sizes();
  sizes[0] = rows_;
  sizes[1] = capacity_;
  Tensor out = full(sizes, pad, {batch.dtype(), batch.device()});
  for (int64_t i = 0; i < n; ++i) {
    const Place& p = places_[static_cast<size_t>(i)];
    DEFT_CHECK(p.length <= batch.size(1), ShapeError, "PackPlan: sequence {} has {} tokens, the batch only {}", i,
               p.length, batch.size(1));
    out.select(0, p.row).narrow(0, p.begin, p.length).copy_(batch.select(0, i).narrow(0, 0, p.length));
  }
  return out;
}

Tensor PackPlan::unpack(const Tensor& rows) const {
  DEFT_CHECK(rows.defined() && rows.dim() >= 2 && rows.size(0) == rows_ && rows.size(1) == capacity_, ShapeError,
             "PackPlan: takes rows [{}, {}, ...], found {}", rows_, capacity_,
             rows.defined() ? to_string(rows.sizes()) : "an undefined tensor");
  std::vector<int64_t> lengths, from;
  for (const Place& p : places_) lengths.push_back(p.length);
  int64_t longest = padded_length(lengths), n = static_cast<int64_t>(places_.size());
  for (const Place& p : places_)
    for (int64_t i = 0; i < longest; ++i) from.push_back(i < p.length ? p.row * capacity_ + p.begin + i : 0);
  Shape sizes = rows.sizes();
  sizes[0] = n;
  sizes[1] = longest;
  Tensor places = tensor(from).to(rows.device()), hidden = logical_not(padding_mask(lengths)).to(rows.device());
  Shape wide{n, longest};
  wide.resize(rows.dim(), 1);
  return index_select(rows.flatten(0, 1), 0, places).view(sizes).masked_fill(hidden.view(wide), 0);
}

Tensor PackPlan::segments() const {
  Tensor out = zeros({rows_, capacity_}, DType::i64);
  int64_t row = -1, number = 0;
  for (const Place& p : places_) {
    number = p.row == row ? number + 1 : 1;
    row = p.row;
    std::fill_n(out.data<int64_t>() + row * capacity_ + p.begin, p.length, number);
  }
  return out;
}

Tensor PackPlan::positions() const {
  Tensor out = zeros({rows_, capacity_}, DType::i64);
  for (const Place& p : places_) {
    int64_t* to = out.data<int64_t>() + p.row * capacity_ + p.begin;
    std::iota(to, to + p.length, 0);
  }
  return out;
}

Tensor PackPlan::mask() const {
  Tensor s = segments();
  return logical_and(eq(s.unsqueeze(2), s.unsqueeze(1)), ne(s, 0).unsqueeze(2));
}

PackingSampler::PackingSampler(std::vector<int64_t> lengths, PackingOptions options)
    : lengths_(std::move(lengths)), options_(options) {
  DEFT_CHECK(options.capacity > 0 && options.rows > 0 && options.window_batches >= 0, ValueError,
             "PackingSampler: capacity {} and rows {} must be positive, window_batches {} not negative",
             options.capacity, options.rows, options.window_batches);
  DEFT_CHECK(options.too_long != TooLong::alone, ValueError,
             "PackingSampler: a sequence that fits no row cannot be packed alone; choose error or truncate");
  check_lengths("PackingSampler", lengths_, options.capacity, options.too_long);
  int64_t tokens = 0, n = static_cast<int64_t>(lengths_.size());
  for (int64_t& length : lengths_) {
    length = std::min(length, options.capacity);
    tokens += length;
  }
  int64_t per_batch = tokens == 0 ? n : std::max<int64_t>(1, options.rows * options.capacity * n / tokens);
  bool whole = options.window_batches == 0 || per_batch >= n / options.window_batches + 1;
  window_ = std::max<int64_t>(1, whole ? n : per_batch * options.window_batches);
}

// Samples by rows. In whichever order rows follow each other, PackPlan needs no more of them: of all ways to cut a list
// into rows, filling each as far as it goes takes the fewest.
std::vector<std::vector<int64_t>> PackingSampler::fill_rows(std::span<int64_t> samples) const {
  auto length = [&](int64_t i) { return lengths_[static_cast<size_t>(i)]; };
  std::stable_sort(samples.begin(), samples.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  std::vector<std::vector<int64_t>> rows;
  std::set<std::pair<int64_t, size_t>> room;  // of each row
  for (int64_t i : samples) {
    auto best = room.lower_bound({length(i), 0});
    size_t row = rows.size();
    int64_t left = options_.capacity;
    if (best == room.end()) {
      rows.emplace_back();
    } else {
      std::tie(left, row) = *best;
      room.erase(best);
    }
    rows[row].push_back(i);
    room.insert({left - length(i), row});
  }
  return rows;
}

BatchPlan PackingSampler::batches(uint64_t seed, int64_t epoch) const {
  auto n = static_cast<int64_t>(lengths_.size());
  auto order = [&](int64_t count, uint64_t by) {
    if (options_.shuffle) return epoch_order(count, by, epoch);
    std::vector<int64_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  };
  BatchPlan plan;
  std::vector<int64_t> samples = order(n, seed), batch;
  int64_t windows = (n + window_ - 1) / window_, step = windows == 0 ? 1 : (n + windows - 1) / windows, held = 0;
  for (int64_t begin = 0; begin < n; begin += step) {
    auto rows = fill_rows({samples.data() + begin, static_cast<size_t>(std::min(step, n - begin))});
    for (int64_t i : order(static_cast<int64_t>(rows.size()), seed ^ kRowOrder ^ static_cast<uint64_t>(begin))) {
      const auto& row = rows[static_cast<size_t>(i)];
      batch.insert(batch.end(), row.begin(), row.end());
      if (++held < options_.rows) continue;
      plan.add(batch);
      batch.clear();
      held = 0;
    }
  }
  if (held > 0 && !options_.drop_last) plan.add(batch);
  return plan;
}

std::string PackingSampler::describe() const {
  return fmt::format("packing of {} samples {:016x}: {} rows of {}, window {}{}{}", lengths_.size(),
                     fingerprint(lengths_), options_.rows, options_.capacity, window_,
                     options_.shuffle ? ", shuffled" : "", options_.drop_last ? ", whole batches" : "");
}

}  // namespace deft::data
