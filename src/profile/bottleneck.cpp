#include "profile/bottleneck.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "profile/device_peaks.h"
#include "profile/roofline.h"

namespace deft::profile {

namespace {

// Freeing results and moving handles around lies between the zones of ops: so much of the program's own time goes with
// each of them.
constexpr double kBetweenOps = 2e-6;
// A device that works this part of the time is what the host waits for, as it should.
constexpr double kBusy = 0.8;

bool is_arithmetic(Bound bound) { return bound == Bound::compute || bound == Bound::instructions; }
// Of rows: the time of arithmetic is one share, whatever kind it is of.
bool is_of(const OpRow& row, Bound bound) {
  return row.bound == bound || (is_arithmetic(row.bound) && is_arithmetic(bound));
}

// Ops, not waits and steps.
int64_t calls_of(const Profile& p) {
  int64_t calls = 0;
  for (const OpRow& row : p.ops)
    if (is_kernel(row.bucket) || row.bucket == Bucket::dispatch) calls += row.calls;
  return calls;
}

// How near a row came to its limit while it had a core.
double nearness(const OpRow& row, double core_share) {
  return row.on_device ? row.of_limit : std::min(1.0, row.of_limit / core_share);
}

// Seconds of a row's kernels that are the price of calling them.
double call_price(const OpRow& row, double core_share) {
  const double explained = std::isnan(row.of_limit) ? 0 : nearness(row, core_share);
  return std::min(row.kernel_seconds * (1 - explained), static_cast<double>(row.calls) * kCallSeconds / core_share);
}

// Rows also hold kernels that ran inside of optimizers and loaders, whose time counts there: the time of the bucket is
// shared out by rows.
void add_kernels(const Profile& p, Bucket bucket, Shares& s) {
  Shares part;
  double total = 0;
  for (const OpRow& row : p.ops) {
    if (row.bucket != bucket) continue;
    const double price = call_price(row, p.core_share), rest = row.kernel_seconds - price;
    const bool is_memory = row.bound == Bound::memory || (row.bound == Bound::overhead && bucket == Bucket::kernel);
    const bool is_compute = is_arithmetic(row.bound) || (row.bound == Bound::overhead && !is_memory);
    part.overhead += price;
    (is_memory ? part.memory : is_compute ? part.compute : part.unknown) += rest;
    total += row.kernel_seconds;
  }
  if (!(total > 0)) {
    s.unknown += p[bucket];
    return;
  }
  const double scale = p[bucket] / total;
  s.overhead += part.overhead * scale;
  s.memory += part.memory * scale;
  s.compute += part.compute * scale;
  s.unknown += part.unknown * scale;
}

// A step of an optimizer reads and writes all parameters once; that of a model whose ops are all overhead is, too.
void add_optimizer(const Profile& p, Shares& s) {
  (s.overhead > s.memory + s.compute ? s.overhead : s.memory) += p[Bucket::optimizer];
}

bool is_busy(const Profile& p) { return p.device_busy_seconds >= kBusy * p.wall_seconds; }

// While a device works, the host's waiting for it is the time of its kernels.
void give_to_kernels(Shares& s) {
  const double known = s.memory + s.compute;
  if (known > 0) {
    const double scale = 1 + s.sync / known;
    s.memory *= scale, s.compute *= scale;
  } else {
    s.unknown += s.sync;
  }
  s.sync = 0;
}

// Only what applies is advised: layouts are of images, and what is compiled need not be compiled.
bool has_images(const Profile& p) {
  return std::ranges::any_of(p.ops, [](const OpRow& row) {
    return row.name.find("conv2d") != row.name.npos || row.name.find("pool2d") != row.name.npos;
  });
}
bool is_compiled(const Profile& p) {
  return std::ranges::any_of(p.ops, [](const OpRow& row) { return row.name == "plan"; });
}
// "larger batches, channels_last or compile()".
std::string any_of(std::initializer_list<const char*> ways) {
  std::vector<std::string> list;
  for (const char* way : ways)
    if (*way) list.emplace_back(way);
  const std::string last = list.back();
  list.pop_back();
  return list.empty() ? last : fmt::format("{} or {}", fmt::join(list, ", "), last);
}
std::string what_fills(const Profile& p) {
  return any_of({"larger batches", has_images(p) ? "channels_last" : "", is_compiled(p) ? "" : "compile()"});
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string count(int64_t n) {
  if (n >= 1'000'000) return fmt::format("{:.1f} million", static_cast<double>(n) / 1e6);
  if (n >= 10'000) return fmt::format("{:.0f} thousand", static_cast<double>(n) / 1e3);
  return fmt::format("{}", n);
}

// Of the rows of a class: the longest op, and how near they all are to the limit.
struct ClassRows {
  std::string longest;
  Bound bound = Bound::unknown;    // of that one
  Bucket bucket = Bucket::kernel;  // of that one
  DType dtype = DType::f32;
  double of_limit = NAN;
};
ClassRows rows_of(const Profile& p, Bound bound) {
  double time = 0, limit = 0;
  const OpRow* longest = nullptr;
  for (const OpRow& row : p.ops) {
    if (!is_of(row, bound) || std::isnan(row.of_limit) || !is_kernel(row.bucket)) continue;
    time += row.kernel_seconds;
    limit += nearness(row, p.core_share) * row.kernel_seconds;
    if (!longest || row.kernel_seconds > longest->kernel_seconds) longest = &row;
  }
  if (!longest || !(time > 0)) return {};
  return {longest->name + (longest->backward ? " in backward" : ""), longest->bound, longest->bucket, longest->dtype,
          limit / time};
}

std::string named(const ClassRows& rows) {
  return rows.longest.empty() ? "" : fmt::format(", most of it in {}", rows.longest);
}

std::string input_sentence(const Profile&, double share) {
  return fmt::format(
      "{} of the time the loop waits for its data: more loader workers, prefetching or less work per sample would help "
      "most.",
      percent(share));
}

// The buckets of the table that the share is made of: it is none of them.
std::string parts_of_overhead(const Profile& p, double share) {
  const double dispatch = p[Bucket::dispatch] / p.sum(), autograd = p[Bucket::autograd] / p.sum();
  const double rest = share - dispatch - autograd;
  std::vector<std::string> parts;
  for (const auto& [name, part] : {std::pair{"dispatch", dispatch}, std::pair{"autograd", autograd},
                                   std::pair{"what calls cost in kernels, allocation and between ops", rest}})
    if (part >= 0.01) parts.push_back(fmt::format("{} {}", name, percent(part)));
  return parts.size() < 2 ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

std::string overhead_sentence(const Profile& p, double share) {
  const int64_t calls = calls_of(p);
  const std::string ops = calls > 0 ? count(calls) + " small ops" : "small ops";
  const double each = calls > 0 ? share * p.sum() * p.core_share / static_cast<double>(calls) : 0;
  const std::string price = each > 0 ? fmt::format(" ({:.1f} us each)", each * 1e6) : "";
  return fmt::format("{} of the time goes into starting {}{}, not into their arithmetic{}: {} would help most.",
                     percent(share), ops, price, parts_of_overhead(p, share),
                     any_of({"larger batches", is_compiled(p) ? "" : "compile()"}));
}

std::string memory_sentence(const Profile& p, double share) {
  if (p[Bucket::optimizer] > share * p.sum() / 2)
    return fmt::format(
        "{} of the time goes into reading and writing memory, most of it in the optimizer, which goes over every "
        "parameter at each step: larger batches take fewer steps, and an optimizer with less state moves fewer bytes.",
        percent(share));
  const ClassRows rows = rows_of(p, Bound::memory);
  const std::string speed =
      std::isnan(rows.of_limit) ? "" : fmt::format(" at {} of the machine's bandwidth", percent(rows.of_limit));
  return fmt::format("{} of the time goes into moving bytes{}{}: {}16-bit floats would help most.", percent(share),
                     speed, named(rows), is_compiled(p) ? "" : "compile(), which makes one pass of several ops, or ");
}

std::string compute_sentence(const Profile& p, double share) {
  constexpr double kNearLimit = 0.6;
  const ClassRows rows = rows_of(p, Bound::compute);
  if (rows.bound == Bound::instructions && rows.bucket == Bucket::kernel)
    return fmt::format(
        "{} of the time is arithmetic on single elements{}, which takes longer than their bytes do: more threads, or "
        "cheaper functions and fewer of them, would help.",
        percent(share), named(rows));
  const std::string speed =
      std::isnan(rows.of_limit) ? "" : fmt::format(" at {} of what the machine can do", percent(rows.of_limit));
  const bool wide = rows.dtype == DType::f32 || rows.dtype == DType::f64;
  const std::string help = !(rows.of_limit >= kNearLimit) ? what_fills(p) + " would bring it nearer"
                           : wide ? "only cheaper arithmetic helps: autocast to bf16, or a smaller model"
                                  : "only less arithmetic helps: quantization, or a smaller model";
  return fmt::format("{} of the time is arithmetic{}{}: {}.", percent(share), speed, named(rows), help);
}

std::string copy_sentence(const Profile&, double share) {
  return fmt::format(
      "{} of the time goes into copies between host and device: keep tensors on the device, and copy batches from "
      "pinned memory with non_blocking while the last one is computed.",
      percent(share));
}

std::string sync_sentence(const Profile& p, double share) {
  const std::string busy = p.device_busy_seconds < 0
                               ? ""
                               : fmt::format(", which works {} of it", percent(p.device_busy_seconds / p.wall_seconds));
  return fmt::format(
      "{} of the time the program waits for the device{}: read losses and metrics every few steps instead of every "
      "step.",
      percent(share), busy);
}

std::string own_sentence(const Profile&, double share) {
  return fmt::format("{} of the time is the program's own code between Deft's calls: profile that first.",
                     percent(share));
}

std::string unknown_sentence(const Profile& p, double share) {
  if (is_busy(p))
    return fmt::format("The device works {} of the time: cheaper kernels would help most, by {}.",
                       percent(p.device_busy_seconds / p.wall_seconds),
                       any_of({"16-bit floats", is_compiled(p) ? "" : "compile()"}));
  return fmt::format("{} of the time goes into kernels whose limits are not known.", percent(share));
}

// Figures describe the program alone only if no other program ran.
std::string disturbance(const Profile& p) {
  constexpr double kDisturbed = 0.9;
  if (p.core_share >= kDisturbed || p.bound == Bound::input || p.bound == Bound::sync) return "";
  return fmt::format(" Other programs had its core for {} of the time.", percent(1 - p.core_share));
}

struct Candidate {
  double share;
  Bound bound;
  std::string (*sentence)(const Profile&, double share);
};

}  // namespace

Shares shares_of(const Profile& p) {
  const double calls = static_cast<double>(calls_of(p)) / p.core_share, total = p.sum();
  Shares s{.input = p[Bucket::data_wait], .copy = p[Bucket::copy], .sync = p[Bucket::sync]};
  if (!(total > 0)) return {};
  add_kernels(p, Bucket::linear_algebra, s);
  add_kernels(p, Bucket::kernel, s);
  // Allocations that take longer than calls do map fresh memory.
  const double small = std::min(p[Bucket::allocation], calls * kMostOverhead);
  const double between = std::min(p[Bucket::other], calls * kBetweenOps);
  s.memory += p[Bucket::allocation] - small;
  s.overhead += p[Bucket::dispatch] + p[Bucket::autograd] + small + between;
  s.own = p[Bucket::other] - between;
  add_optimizer(p, s);
  if (is_busy(p)) give_to_kernels(s);
  for (double* share : {&s.input, &s.overhead, &s.memory, &s.compute, &s.copy, &s.sync, &s.own, &s.unknown})
    *share /= total;
  return s;
}

namespace {

// Seconds a device worked for ops of this class.
double device_seconds(const Profile& p, Bound bound) {
  double seconds = 0;
  for (const OpRow& row : p.ops)
    if (row.on_device && is_of(row, bound)) seconds += row.kernel_seconds;
  return seconds;
}

// What a busy device is busy with: by the classes of its ops, or by the names of its kernels where a plan runs them all
// at once and ops cannot be distinguished.
void find_busy_device_bottleneck(Profile& p, double busy) {
  const double compute = device_seconds(p, Bound::compute), memory = device_seconds(p, Bound::memory),
               overhead = device_seconds(p, Bound::overhead);
  const double known = compute + memory + overhead;
  const std::string works = fmt::format("The device works {} of the time", percent(busy));
  if (known < p.device_busy_seconds / 2) {
    double products = 0, all = 0;
    for (const DeviceRow& row : p.device) {
      all += row.seconds;
      if (row.bucket == Bucket::linear_algebra) products += row.seconds;
    }
    p.bound = products >= 0.5 * all ? Bound::compute : Bound::memory;
    p.sentence = fmt::format(
        "{}, {} of that in {}", works, percent(all > 0 ? std::max(products, all - products) / all : 0),
        p.bound == Bound::compute ? fmt::format("products and convolutions: 16-bit floats{} make these cheaper.",
                                                has_images(p) ? " and channels_last" : "")
                                  : fmt::format("kernels that mostly move data: {}16-bit floats halve it.",
                                                is_compiled(p) ? "" : "compile() fuses them, "));
    return;
  }
  const double most = std::max({compute, memory, overhead});
  p.bound = most == compute ? Bound::compute : most == memory ? Bound::memory : Bound::overhead;
  const ClassRows rows = rows_of(p, p.bound);
  const std::string share = fmt::format("{}, {} of that", works, percent(most / known));
  if (p.bound == Bound::overhead)
    p.sentence = fmt::format("{} in kernels too small to fill it: {} would help most.", share,
                             any_of({"larger batches", is_compiled(p) ? "" : "compile()"}));
  else if (p.bound == Bound::memory)
    p.sentence = fmt::format("{} moving bytes at {} of its bandwidth{}: {}16-bit floats halve it.", share,
                             percent(rows.of_limit), named(rows),
                             is_compiled(p) ? "" : "compile() makes one pass of several ops, ");
  else
    p.sentence =
        fmt::format("{} in arithmetic at {} of what it can do{}: {}.", share, percent(rows.of_limit), named(rows),
                    rows.dtype == DType::f32 ? std::string("16-bit floats or TF32 make it cheaper")
                                             : what_fills(p) + " bring it nearer");
}

// How busy a device is, and with what, decides.
void find_device_bottleneck(Profile& p) {
  constexpr double kFed = 0.7;
  const double busy = p.device_busy_seconds / p.wall_seconds;
  if (busy >= kFed) return find_busy_device_bottleneck(p, busy);
  const auto share = [&](Bucket b) { return p[b] / p.wall_seconds; };
  const double idle = 1 - busy;
  if (share(Bucket::data_wait) > idle / 2) {
    p.bound = Bound::input;
    p.sentence = input_sentence(p, share(Bucket::data_wait));
  } else if (share(Bucket::sync) > idle / 2) {
    p.bound = Bound::sync;
    p.sentence = sync_sentence(p, share(Bucket::sync));
  } else {
    p.bound = Bound::overhead;
    p.sentence = fmt::format(
        "The device is idle {} of the time: the host cannot give it work fast enough, so larger batches{} would help "
        "most.",
        percent(idle), is_compiled(p) ? "" : " or compile(), which launches a whole plan at once,");
  }
}

}  // namespace

void find_bottleneck(Profile& profile) {
  if (!profile.device.empty()) return find_device_bottleneck(profile);
  const Shares s = shares_of(profile);
  const std::array candidates = {
      Candidate{s.input, Bound::input, input_sentence},    Candidate{s.overhead, Bound::overhead, overhead_sentence},
      Candidate{s.memory, Bound::memory, memory_sentence}, Candidate{s.compute, Bound::compute, compute_sentence},
      Candidate{s.copy, Bound::copy, copy_sentence},       Candidate{s.sync, Bound::sync, sync_sentence},
      Candidate{s.own, Bound::unknown, own_sentence},      Candidate{s.unknown, Bound::unknown, unknown_sentence},
  };
  const Candidate& most = *std::max_element(candidates.begin(), candidates.end(),
                                            [](const Candidate& a, const Candidate& b) { return a.share < b.share; });
  profile.bound = most.share > 0 ? most.bound : Bound::unknown;
  if (profile.bound == Bound::compute && rows_of(profile, Bound::compute).bound == Bound::instructions)
    profile.bound = Bound::instructions;
  profile.sentence =
      most.share > 0 ? most.sentence(profile, most.share) + disturbance(profile) : "Nothing was profiled.";
}

void judge(Profile& profile, const MachinePeaks& host, const MachinePeaks& device) {
  classify(profile, host, device);
  find_bottleneck(profile);
}

void judge(Profile& profile) {
  judge(profile, machine_peaks(), profile.device_busy_seconds < 0 ? MachinePeaks() : device_peaks());
}

const MachinePeaks& roofs_of(const Profile& p) {
  const bool there = p.device_busy_seconds >= 0 &&
                     std::any_of(p.ops.begin(), p.ops.end(), [](const OpRow& row) { return row.on_device; });
  return there ? device_peaks() : machine_peaks();
}

}  // namespace deft::profile
