#include "data/shape_advisor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace deft::data {

namespace {

// Distinct lengths, ascending, and how many samples are as long as that or shorter.
struct Counts {
  std::vector<int64_t> length, up_to;
};

Counts count(std::span<const int64_t> lengths, int64_t multiple) {
  std::vector<int64_t> sorted;
  for (int64_t n : lengths) sorted.push_back((n + multiple - 1) / multiple * multiple);
  std::sort(sorted.begin(), sorted.end());
  Counts out;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i + 1 < sorted.size() && sorted[i + 1] == sorted[i]) continue;
    out.length.push_back(sorted[i]);
    out.up_to.push_back(static_cast<int64_t>(i + 1));
  }
  return out;
}

// Fewest padded tokens of k buckets over the first lengths, k = 1, 2, ...: best[j] is the minimum over i < j of
// before[i] + length[j] * (samples above length i, up to length j). The best i never falls while j grows, so each half
// of the j needs only the i on its side: L log L steps per bucket.
class Layers {
 public:
  explicit Layers(const Counts& counts) : counts_(counts), n_(counts.length.size()) {}

  // The index in Counts of each boundary.
  std::vector<size_t> solve(size_t buckets) {
    std::vector<int64_t> best(n_ + 1, kNone), before;
    best[0] = 0;
    for (size_t k = 0; k < buckets; ++k) {
      before = best;
      cut_.emplace_back(n_ + 1);
      std::fill(best.begin(), best.end(), kNone);
      fill(before, best, k + 1, n_, k, n_ - 1);
    }
    std::vector<size_t> ends;
    for (size_t k = buckets, j = n_; k > 0; --k) {
      ends.push_back(j - 1);
      j = cut_[k - 1][j];
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  // Prefixes of j = from .. to lengths, whose last bucket starts after i = low .. high of them.
  void fill(const std::vector<int64_t>& before, std::vector<int64_t>& best, size_t from, size_t to, size_t low,
            size_t high) {
    if (from > to) return;
    const size_t j = from + (to - from) / 2;
    size_t at = low;
    for (size_t i = low; i <= std::min(high, j - 1); ++i) {
      if (before[i] == kNone) continue;
      const int64_t samples = counts_.up_to[j - 1] - (i == 0 ? 0 : counts_.up_to[i - 1]);
      const int64_t cost = before[i] + samples * counts_.length[j - 1];
      if (cost < best[j]) best[j] = cost, at = i;
    }
    cut_.back()[j] = at;
    if (j > from) fill(before, best, from, j - 1, low, at);
    fill(before, best, j + 1, to, at, high);
  }

  const Counts& counts_;
  size_t n_;
  std::vector<std::vector<size_t>> cut_;  // where the last of k buckets starts
};

// Tokens of all samples, each padded to its boundary; those beyond the last stay as they are.
int64_t padded_tokens(std::span<const int64_t> lengths, const std::vector<int64_t>& boundaries) {
  int64_t sum = 0;
  for (int64_t n : lengths) {
    auto end = std::lower_bound(boundaries.begin(), boundaries.end(), n);
    sum += end == boundaries.end() ? n : *end;
  }
  return sum;
}

// Expected tokens when random batches are padded to their longest: the longest of `rows` draws is at most l with the
// chance (share of samples up to l)^rows.
double padded_tokens(const Counts& counts, int64_t rows) {
  const auto n = static_cast<double>(counts.up_to.back());
  double longest = 0, below = 0;
  for (size_t i = 0; i < counts.length.size(); ++i) {
    const double chance = std::pow(static_cast<double>(counts.up_to[i]) / n, static_cast<double>(rows));
    longest += (chance - below) * static_cast<double>(counts.length[i]);
    below = chance;
  }
  return longest * n;
}

double waste(int64_t tokens, double padded) {
  return padded > 0 ? 100 * (1 - static_cast<double>(tokens) / padded) : 0;
}

std::string listed(const std::vector<int64_t>& numbers) {
  if (numbers.size() == 1) return fmt::format("{}", numbers[0]);
  return fmt::format("{} and {}", fmt::join(numbers.begin(), numbers.end() - 1, ", "), numbers.back());
}
std::string buckets_text(const std::vector<int64_t>& boundaries) {
  return fmt::format("{} bucket{} up to {}", boundaries.size(), boundaries.size() == 1 ? "" : "s", listed(boundaries));
}

}  // namespace

ShapeAdvice advise_shapes(std::span<const int64_t> lengths, const AdvisorOptions& o) {
  DEFT_CHECK(o.buckets > 0 && o.multiple > 0 && o.rows > 0, ValueError,
             "advise_shapes: buckets {}, multiple {} and rows {} must be positive", o.buckets, o.multiple, o.rows);
  ShapeAdvice out;
  for (int64_t n : lengths) {
    DEFT_CHECK(n > 0, ValueError, "advise_shapes: a sample has {} tokens, expected at least one", n);
    out.tokens += n;
  }
  if (lengths.empty()) {
    out.text = "There are no lengths to advise on.";
    return out;
  }
  Counts counts = count(lengths, o.multiple);
  size_t buckets = std::min(static_cast<size_t>(o.buckets), counts.length.size());
  for (size_t end : Layers(counts).solve(buckets)) out.boundaries.push_back(counts.length[end]);
  out.padded_then = padded_tokens(lengths, out.boundaries);
  bool has = !o.boundaries.empty();
  out.padded_now =
      has ? static_cast<double>(padded_tokens(lengths, o.boundaries)) : padded_tokens(count(lengths, 1), o.rows);
  out.waste_now = waste(out.tokens, out.padded_now);
  out.waste_then = waste(out.tokens, static_cast<double>(out.padded_then));
  std::string now = has ? buckets_text(o.boundaries) : fmt::format("Shuffled batches of {}", o.rows);
  double times = out.padded_now / static_cast<double>(out.padded_then);
  if (times <= 1) {
    out.text = fmt::format("{} spend{} {:.1f} % of the tokens on padding; {} would not spend less.", now,
                           has && o.boundaries.size() == 1 ? "s" : "", out.waste_now, buckets_text(out.boundaries));
  } else {
    out.text = fmt::format(
        "{} spend{} {:.1f} % of the tokens on padding; {} would spend {:.1f} %: {:.2f} times fewer tokens.", now,
        has && o.boundaries.size() == 1 ? "s" : "", out.waste_now, buckets_text(out.boundaries), out.waste_then, times);
  }
  return out;
}

}  // namespace deft::data
