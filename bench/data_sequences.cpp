#include "bench/data_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>

#include "base/check.h"
#include "bench/interrupt.h"
#include "bench/statistics.h"
#include "data/bucket_sampler.h"
#include "data/length_report.h"
#include "data/order.h"
#include "data/packing.h"
#include "data/padding.h"
#include "data/shape_advisor.h"
#include "data/text.h"
#include "deft/deft.h"

namespace deft::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kOrderSeed = 2024;
constexpr int64_t kPad = 0, kStart = 101, kEnd = 102, kFirstWord = 1000;

// Words and punctuation marks. Which number a word gets does not matter here, only that it is always the same.
Tensor tokenize(std::string_view text, int64_t vocabulary, int64_t longest) {
  std::vector<int64_t> tokens{kStart};
  auto letter = [&](size_t i) { return std::isalnum(static_cast<unsigned char>(text[i])) != 0; };
  for (size_t i = 0; i < text.size() && static_cast<int64_t>(tokens.size()) + 1 < longest;) {
    size_t end = i + 1;
    while (letter(i) && end < text.size() && letter(end)) ++end;
    uint64_t hash = 0;
    for (size_t c = i; c < end; ++c) hash = hash * 31 + static_cast<unsigned char>(text[c]);
    if (!std::isspace(static_cast<unsigned char>(text[i])))
      tokens.push_back(kFirstWord + static_cast<int64_t>(hash % static_cast<uint64_t>(vocabulary - kFirstWord)));
    i = end;
  }
  tokens.push_back(kEnd);
  return tensor(tokens);
}

// Random lines of the file, without the name of the verse.
std::vector<Tensor> read_sentences(const SequencesOptions& o, int64_t count, int64_t vocabulary) {
  std::string path = o.text.empty() ? data::bible_file() : o.text, line;
  std::ifstream in(path);
  if (!in) throw LoadError("text", path, "file", 0, "cannot be opened for reading; check the path and its permissions");
  std::vector<std::string> lines;
  while (std::getline(in, line))
    if (!line.empty()) lines.push_back(line);
  auto there = static_cast<int64_t>(lines.size());
  DEFT_CHECK(there >= count, ValueError, "{} has {} sentences, {} are needed", path, there, count);
  std::vector<int64_t> order = data::epoch_order(there, kOrderSeed, 0);
  std::vector<Tensor> out;
  for (int64_t i = 0; i < count; ++i) {
    const std::string& text = lines[static_cast<size_t>(order[static_cast<size_t>(i)])];
    size_t blank = text.find(' '), colon = text.find(':');
    bool named = colon != std::string::npos && blank != std::string::npos && colon < blank;
    out.push_back(tokenize(std::string_view(text).substr(named ? blank : 0), vocabulary, o.longest));
  }
  return out;
}

// One kind of batch.
struct Batching {
  std::string name;
  data::BatchPlan plan;
  std::function<int64_t(std::span<const int64_t>)> padded;  // how long rows become; empty: packed
  data::LengthReport report = {};
  int64_t every = 1;  // which batches are run
  // Measured.
  double seconds = 0;
  int64_t tokens = 0, batches = 0;
  std::vector<Tensor> pooled = {};  // of each sentence
};

class Runner {
 public:
  Runner(const SequencesOptions& o, models::Bert& model, std::vector<Tensor> sentences)
      : o_(o), model_(model), sentences_(std::move(sentences)) {
    for (const Tensor& s : sentences_) lengths_.push_back(s.numel());
  }
  const std::vector<int64_t>& lengths() const { return lengths_; }

  void run(Batching& kind, int64_t b, bool counts) {
    std::span<const int64_t> batch = kind.plan[b];
    InferenceModeGuard inference;
    Clock::time_point start = Clock::now();
    Tensor pooled = kind.padded ? run_padded(batch, kind.padded(batch)) : run_packed(batch);
    if (!counts) return;
    kind.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    ++kind.batches;
    kind.pooled.resize(sentences_.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      kind.tokens += lengths_[static_cast<size_t>(batch[i])];
      kind.pooled[static_cast<size_t>(batch[i])] = pooled[static_cast<int64_t>(i)];
    }
  }

 private:
  std::vector<Tensor> take(std::span<const int64_t> batch) const {
    std::vector<Tensor> out;
    for (int64_t i : batch) out.push_back(sentences_[static_cast<size_t>(i)]);
    return out;
  }
  Tensor run_padded(std::span<const int64_t> batch, int64_t length) {
    data::PaddedBatch in = data::pad_sequences(take(batch), {.pad = kPad, .length = length});
    return nn::masked_mean(model_.encode(in.values, {}, in.mask).hidden, in.mask);
  }
  Tensor run_packed(std::span<const int64_t> batch) {
    data::PaddedBatch in = data::pad_sequences(take(batch), {.pad = kPad});
    data::PackPlan plan(in.lengths, o_.longest);
    Tensor hidden = model_.encode(plan.pack(in.values, kPad), {}, plan.mask(), plan.positions()).hidden;
    return nn::masked_mean(plan.unpack(hidden), in.mask);
  }

  const SequencesOptions& o_;
  models::Bert& model_;
  std::vector<Tensor> sentences_;
  std::vector<int64_t> lengths_;
};

std::vector<Batching> kinds_of(const SequencesOptions& o, const std::vector<int64_t>& lengths) {
  auto n = static_cast<int64_t>(lengths.size());
  auto longest = [&lengths](std::span<const int64_t> batch) {
    int64_t most = 0;
    for (int64_t i : batch) most = std::max(most, lengths[static_cast<size_t>(i)]);
    return most;
  };
  data::BatchPlan naive(data::epoch_order(n, kOrderSeed, 1), o.rows, false);
  auto by_length = std::make_shared<data::BucketSampler>(lengths, data::BucketOptions{.max_tokens = o.max_tokens});
  data::ShapeAdvice advice = data::advise_shapes(lengths, {.buckets = 8, .multiple = 8, .rows = o.rows});
  auto by_bucket = std::make_shared<data::BucketSampler>(
      lengths, data::BucketOptions{.max_tokens = o.max_tokens, .boundaries = advice.boundaries, .multiple = 8});
  data::PackingSampler packing(lengths,
                               {.capacity = o.longest, .rows = std::max<int64_t>(1, o.max_tokens / o.longest)});
  auto padded_by = [](const std::shared_ptr<data::BucketSampler>& sampler) {
    return [sampler](std::span<const int64_t> batch) { return sampler->padded_length(batch); };
  };
  auto to_longest = [length = o.longest](std::span<const int64_t>) { return length; };
  std::vector<Batching> kinds{
      {fmt::format("shuffled, {} rows", o.rows), naive, longest},
      {fmt::format("shuffled, {} rows of {}", o.rows, o.longest), naive, to_longest},
      {fmt::format("bucketed, {} tokens", o.max_tokens), by_length->batches(kOrderSeed, 1), padded_by(by_length)},
      {fmt::format("{} fixed buckets", advice.boundaries.size()), by_bucket->batches(kOrderSeed, 1),
       padded_by(by_bucket)},
      {fmt::format("packed, rows of {}", o.longest), packing.batches(kOrderSeed, 1), {}}};
  kinds[1].every = 4;
  for (Batching& k : kinds)
    k.report =
        k.padded ? data::report_lengths(k.plan, lengths, k.padded) : data::report_packing(k.plan, lengths, o.longest);
  return kinds;
}

struct Turn {
  double at;  // how far into its kind
  size_t kind;
  int64_t batch;
};
std::vector<Turn> turns_of(const std::vector<Batching>& kinds) {
  std::vector<Turn> turns;
  for (size_t k = 0; k < kinds.size(); ++k)
    for (int64_t b = 0; b < kinds[k].plan.size(); b += kinds[k].every)
      turns.push_back({(static_cast<double>(b) + 0.5) / static_cast<double>(kinds[k].plan.size()), k, b});
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.at < b.at; });
  return turns;
}

// How far results of the sentences are from those in naive batches; null where none was run in both.
Json difference(const Batching& kind, const Batching& naive) {
  std::optional<double> most;
  for (size_t i = 0; i < std::min(kind.pooled.size(), naive.pooled.size()); ++i)
    if (kind.pooled[i].defined() && naive.pooled[i].defined())
      most = std::max(most.value_or(0), (kind.pooled[i] - naive.pooled[i]).abs().amax().item());
  return most ? Json(*most) : Json();
}

double speed(const Batching& k) { return k.seconds > 0 ? static_cast<double>(k.tokens) / k.seconds : 0; }

Json to_json(const Batching& k, const Batching& naive) {
  return {{"case", k.name},
          {"useful_tokens_per_second", rounded(speed(k), 1)},
          {"ratio", speed(naive) > 0 ? Json(rounded(speed(k) / speed(naive), 3)) : Json()},
          {"padding_percent", rounded(k.report.waste_percent(), 2)},
          {"shapes", k.report.shapes},
          {"tokens_per_batch", rounded(k.report.mean_tokens(), 1)},
          {"batches", k.report.batches},
          {"batches_run", k.batches},
          {"seconds", rounded(k.seconds, 3)},
          {"error", difference(k, naive)}};
}

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~ThreadsScope() { set_num_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

}  // namespace

Report measure_sequences(const SequencesOptions& o) {
  Report report;
  ThreadsScope threads(o.threads);
  RngScope rng({kOrderSeed, 0});
  models::BertOptions size;
  if (o.quick) size = {.vocabulary = 2000, .hidden = 32, .layers = 2, .heads = 2, .intermediate = 64};
  models::Bert model(size);
  model.eval();
  Runner runner(o, model,
                read_sentences(o, o.quick ? std::min<int64_t>(o.sentences, 64) : o.sentences, size.vocabulary));
  std::vector<Batching> kinds = kinds_of(o, runner.lengths());
  // Twice: packed weights are kept from the second sight on.
  for (int i = 0; i < 2; ++i) runner.run(kinds[2], 0, false);
  std::vector<Turn> turns = turns_of(kinds);
  for (size_t i = 0; i < turns.size() && !report.interrupted; ++i) {
    o.progress(fmt::format("sequences, batch {} of {}", i + 1, turns.size()));
    runner.run(kinds[turns[i].kind], turns[i].batch, true);
    report.interrupted = interrupted();
  }
  for (const Batching& k : kinds) report.add(to_json(k, kinds[0]));
  if (o.quick) return report;
  report.bars.push_back({{"bar", "useful tokens, bucketed vs naive batches"},
                         {"unit", "x"},
                         {"must", 1.7},
                         {"aim", Json()},
                         {"value", report.results[2]["ratio"]}});
  return report;
}

}  // namespace deft::bench
