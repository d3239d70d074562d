#include "kernels/cpu/autotune.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/note.h"
#include "runtime/cache_file.h"
#include "runtime/config.h"
#include "runtime/context.h"
#include "runtime/cpu_info.h"
#include "runtime/cpu_isa.h"
#include "runtime/parallel.h"

namespace deft::cpu {

namespace {

constexpr int64_t kSaveEvery = 1'000'000'000;  // ns

int64_t nanoseconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}
// The caller's CPU time excludes other programs, but also the pool threads it waits for.
int64_t real_time(bool several_threads) {
  return nanoseconds(several_threads ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID);
}

// ---- The file: a first line with version and checksum, then one line per result:
//   <machine> TAB <shape> <kind> <choice> <tried>
constexpr const char* kKind = "autotune";
constexpr int kFormat = 2;
constexpr size_t kMostBytes = 1 << 20;

std::string machine_name() { return fmt::format("deft {}, {}", kVersion, cpu_info().model); }

}  // namespace

int size_class(int64_t size) {
  if (size < 64) return static_cast<int>(std::max<int64_t>(size, 0));
  const int octave = std::bit_width(static_cast<uint64_t>(size)) - 1;
  return 64 + (octave - 6) * 4 + static_cast<int>(size >> (octave - 2) & 3);
}

TuneKey::TuneKey(TunedOp op, DType dtype, uint32_t layout, std::initializer_list<int64_t> sizes) : shape(0) {
  DEFT_ASSERT(sizes.size() <= kMostSizes && layout < 1u << 16);
  for (int64_t size : sizes) shape = shape << 9 | static_cast<uint64_t>(size_class(size));
  const int threads = in_parallel_region() ? 1 : num_threads();
  kind = static_cast<uint64_t>(op) | static_cast<uint64_t>(threads) << 4 | static_cast<uint64_t>(isa_level()) << 15 |
         static_cast<uint64_t>(dtype) << 19 | static_cast<uint64_t>(layout) << 27;
}

struct Tuner::Line {
  std::string_view text, machine;
  TuneKey key{0, 0};
  Result result;

  // Nothing for a line that is none.
  static bool parse(std::string_view text, Line& line) {
    line.text = text;
    const size_t tab = text.find('\t');
    if (tab == text.npos) return false;
    line.machine = text.substr(0, tab);
    unsigned long long shape = 0, kind = 0;
    int choice = 0, tried = 0;
    const std::string rest(text.substr(tab + 1));
    if (std::sscanf(rest.c_str(), "%llx %llx %d %d", &shape, &kind, &choice, &tried) != 4) return false;
    line.key = {shape, kind};
    line.result = {static_cast<int16_t>(choice), static_cast<int16_t>(tried)};
    return kind != 0 && choice >= 0 && choice < tried && tried <= kMostCandidates;
  }
  static std::vector<Line> all(const std::string& body) {
    std::vector<Line> lines;
    const std::string_view rest = body;
    for (size_t at = 0, end; (end = rest.find('\n', at)) != rest.npos; at = end + 1) {
      Line line;
      if (parse(rest.substr(at, end - at), line)) lines.push_back(line);
    }
    return lines;
  }
};

Tuner::Tuner(Options options)
    : options_(std::move(options)), slots_(std::make_unique<Slot[]>(kSlots)), last_save_(nanoseconds(CLOCK_MONOTONIC)) {
  if (!options_.file.empty()) load();
}
Tuner::~Tuner() { save(); }

Tuner::Slot* Tuner::find(const TuneKey& key) const {
  for (size_t i = TuneKeyHash{}(key) % kSlots;; i = (i + 1) % kSlots) {
    Slot& s = slots_[i];
    const uint64_t kind = s.kind.load(std::memory_order_acquire);
    if (kind == 0) return nullptr;
    if (kind == key.kind && s.shape.load(std::memory_order_relaxed) == key.shape) return &s;
  }
}
Tuner::Slot* Tuner::find_or_add(const TuneKey& key) {
  if (Slot* s = find(key)) return s;
  if (keys() == kMostKeys) return nullptr;
  size_t i = TuneKeyHash{}(key) % kSlots;
  while (slots_[i].kind.load(std::memory_order_relaxed) != 0) i = (i + 1) % kSlots;
  slots_[i].shape.store(key.shape, std::memory_order_relaxed);
  slots_[i].kind.store(key.kind, std::memory_order_release);
  keys_.fetch_add(1, std::memory_order_relaxed);
  return &slots_[i];
}

int Tuner::found(const TuneKey& key) const {
  const Slot* s = find(key);
  const Result r = s ? s->result.load(std::memory_order_relaxed) : Result{};
  return r.tried > 0 ? r.choice : -1;
}

Tuner::Pick Tuner::pick(const TuneKey& key, int candidates, Autotune mode) {
  const int wanted = std::min(candidates, mode == Autotune::exhaustive ? kMostCandidates : kShortList);
  if (wanted <= 1 || mode == Autotune::off) return {0, false};
  if (const Slot* s = find(key)) {
    const Result r = s->result.load(std::memory_order_relaxed);
    if (r.tried >= wanted && r.choice < candidates) return {r.choice, false};
  }
  return try_next(key, wanted);
}

Tuner::Pick Tuner::try_next(const TuneKey& key, int wanted) {
  std::lock_guard lock(mutex_);
  if (!find_or_add(key)) return {0, false};
  Trial& t = trials_[key];
  if (t.wanted != wanted) t = Trial{.wanted = wanted};
  const auto least = std::min_element(t.started, t.started + wanted);
  if (*least >= kRuns) return {0, false};  // the last ones are under way
  ++*least;
  return {static_cast<int>(least - t.started), true};
}

void Tuner::finish(const TuneKey& key, int choice, int64_t ns) {
  std::lock_guard lock(mutex_);
  const auto at = trials_.find(key);
  if (at == trials_.end() || choice >= at->second.wanted) return;  // decided or begun anew in between
  Trial& t = at->second;
  if (ns < 0 || !t.warm) {
    t.warm = t.warm || ns >= 0;
    t.started[choice] -= t.started[choice] > 0;
    return;
  }
  t.best[choice] = t.done[choice] == 0 ? ns : std::min(t.best[choice], ns);
  ++t.done[choice];
  t.spent += ns;
  const int least = *std::min_element(t.done, t.done + t.wanted);
  const bool long_enough = t.wanted <= kShortList && t.spent >= kMostTime;
  if (least < (long_enough ? 1 : kRuns)) return;
  decide(key, t);
  trials_.erase(at);
  if (nanoseconds(CLOCK_MONOTONIC) - last_save_ >= kSaveEvery) save_locked();
}

void Tuner::decide(const TuneKey& key, const Trial& t) {
  const auto best = std::min_element(t.best, t.best + t.wanted);
  const double gain = *std::min_element(t.done, t.done + t.wanted) < kRuns ? kGainOfFew : kGain;
  const bool first = static_cast<double>(t.best[0]) <= static_cast<double>(*best) * gain;
  const Result r{static_cast<int16_t>(first ? 0 : best - t.best), static_cast<int16_t>(t.wanted)};
  find(key)->result.store(r, std::memory_order_relaxed);
  unsaved_[key] = r;
}

void Tuner::load() {
  const CacheFile file = read_cache_file(options_.file, kKind, kFormat, kMostBytes);
  if (file.state == CacheFileState::damaged || file.state == CacheFileState::foreign) {
    print_note(
        "deft: {} is {}; ignored\n", options_.file,
        file.state == CacheFileState::damaged ? "damaged or of another version" : "not a file of autotuning results");
  }
  std::vector<Line> lines = Line::all(file.body);
  std::erase_if(lines, [&](const Line& line) { return line.machine != options_.machine; });
  const size_t skip = lines.size() - std::min(lines.size(), kMostKeys / 2);  // the oldest; leaves room for new keys
  for (size_t i = skip; i < lines.size(); ++i) find_or_add(lines[i].key)->result.store(lines[i].result);
}

void Tuner::save() {
  std::lock_guard lock(mutex_);
  save_locked();
}
void Tuner::save_locked() {
  last_save_ = nanoseconds(CLOCK_MONOTONIC);
  if (unsaved_.empty() || options_.file.empty()) return;
  const CacheFile file = read_cache_file(options_.file, kKind, kFormat, kMostBytes);
  if (file.state == CacheFileState::foreign) return;
  std::vector<std::string> lines;  // oldest first
  for (const Line& line : Line::all(file.body)) {
    if (line.machine != options_.machine || !unsaved_.contains(line.key)) lines.emplace_back(line.text);
  }
  for (const auto& [key, r] : unsaved_) {
    lines.push_back(fmt::format("{}\t{:x} {:x} {} {}", options_.machine, key.shape, key.kind, r.choice, r.tried));
  }
  std::string body;
  for (size_t i = lines.size() - std::min(lines.size(), kMostLines); i < lines.size(); ++i) body += lines[i] + '\n';
  write_cache_file(options_.file, kKind, kFormat, body);
  unsaved_.clear();
}

std::string tuner_file() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/autotune.txt";
}

Tuner& tuner() {
  // Never destroyed: threads may outlive static destruction.
  static Tuner& all = *new Tuner({tuner_file(), machine_name(), real_time});
  struct SaveAtExit {
    ~SaveAtExit() { all.save(); }
  };
  static const SaveAtExit save;
  return all;
}

void TunedRun::start(const TuneKey& key, int64_t candidates, Tuner* use) {
  const Autotune mode = autotune();
  if (mode == Autotune::off || context().bits & kDeterministic) return;
  Tuner& t = use ? *use : tuner();
  const Tuner::Pick pick = t.pick(key, static_cast<int>(candidates), mode);
  choice_ = pick.choice;
  if (!pick.timed) return;
  key_ = key;
  timed_by_ = &t;
  exceptions_ = std::uncaught_exceptions();
  start_ = t.now(key.threads() > 1);
}
void TunedRun::report() noexcept {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  const int64_t ns = failed ? -1 : timed_by_->now(key_.threads() > 1) - start_;
  try {
    timed_by_->finish(key_, choice_, ns);
  } catch (...) {  // no memory: the class stays untuned
  }
}

}  // namespace deft::cpu
