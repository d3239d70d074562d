#include "doctor/device_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "core/describe.h"

namespace deft::doctor {

namespace {

constexpr int64_t kAlikeElements = 1024;  // fewer are alike by chance
constexpr size_t kFetchedTensors = 256;   // remembered per step
constexpr int64_t kUnpinnedSteps = 4;

SeenCopy plain(const DeviceCopy& c) {
  const bool to_host = c.to.device().is_cpu();
  return {.to_host = to_host,
          .pinned = c.pinned,
          .non_blocking = c.non_blocking,
          .host = (to_host ? c.to : c.from).impl()->storage,
          .kind = std::string(name_of(c.to.dtype())) + to_string(c.to.sizes()),
          .floating = is_floating(c.to.dtype()),
          .elements = c.to.numel(),
          .bytes = c.to.numel() * static_cast<int64_t>(c.to.element_size()),
          .site = c.site};
}

// Waits that no caller can avoid: numbers that a function returns by its contract, and choosing a kernel once.
bool is_unavoidable(std::string_view what) {
  constexpr std::array<std::string_view, 6> names = {"total_norm",     "clip_norm_",    "first_not_finite",
                                                     "scale_tensors_", "gemm autotune", "conv benchmark"};
  return std::ranges::count(names, what) > 0;
}

const char* advice_for(std::string_view what) {
  if (what == "copy from pageable memory") return "give the loader a device, or pin_memory() what is copied";
  if (what == "copy to pageable memory") return "to(kCPU, true) copies without waiting";
  if (what == "synchronize") return "streams and events order work without the host";
  return "add it up on the device and read it every hundredth step";
}

}  // namespace

// --- D011 --------------------------------------------------------------------------------------------------------

// Values may come back in the step after; what is older is forgotten.
void DevicePingPong::turn_page() {
  const int64_t passed = steps().now() - step_;
  if (passed == 0) return;
  before_ = passed == 1 ? std::move(now_) : Fetched{};
  now_ = {};
  step_ = steps().now();
}

const Site* DevicePingPong::source_of(const void* host) const {
  for (const Fetched* page : {&now_, &before_})
    if (auto it = page->values.find(host); it != page->values.end()) return &it->second;
  return nullptr;
}

void DevicePingPong::seen(const SeenCopy& copy) {
  turn_page();
  if (copy.to_host) {
    if (now_.values.size() < kFetchedTensors) now_.values[copy.host] = copy.site;
    if (copy.floating && copy.elements >= kAlikeElements) now_.kinds[copy.kind] = copy.site;
    return;
  }
  const Site* source = source_of(copy.host);
  const bool same_values = source && copy.elements > 1;
  // Without a batch or an optimizer the start of a step is unknown: what was fetched may belong to the one before.
  const bool sure = steps().kind() <= Steps::kOptimizer;
  auto alike = now_.kinds.find(copy.kind);
  if (!same_values && (!sure || alike == now_.kinds.end())) return;
  Trip& trip = trips_[{copy.site}];
  trip.run.add(steps());
  trip.bytes += copy.bytes;
  trip.fetched_at = same_values ? *source : alike->second;
  trip.same_values = same_values;
}

bool DevicePingPong::made(std::span<const void* const> from, const void* to) {
  turn_page();
  for (const void* f : from) {
    const Site* source = source_of(f);
    if (!source || now_.values.size() >= kFetchedTensors) continue;
    now_.values[to] = Site(*source);
    return true;
  }
  return false;
}

void DevicePingPong::keep(const Tensor& t) {
  if (now_.kept.size() < kFetchedTensors) now_.kept.push_back(t.detach());
}

void DevicePingPong::copied(const DeviceCopy& copy) {
  const SeenCopy c = plain(copy);
  seen(c);
  if (c.to_host) keep(copy.to);
}

void DevicePingPong::op_ran(const OpDef&, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool,
                            const Site&) {
  if ((now_.values.empty() && before_.values.empty()) || outputs.empty() || !outputs[0].defined()) return;
  if (!outputs[0].device().is_cpu()) return;
  std::vector<const void*> from;
  for (const Tensor* t : inputs)
    if (t->defined()) from.push_back(t->impl()->storage);
  if (made(from, outputs[0].impl()->storage)) keep(outputs[0]);
}

void DevicePingPong::report(std::vector<Finding>& findings) {
  for (const auto& [line, trip] : trips_) {
    if (trip.run.longest < kStepsInARow) continue;
    const double mb = static_cast<double>(trip.bytes) / static_cast<double>(trip.run.steps) / 1e6;
    Finding f = finding(
        "D011", line.site,
        fmt::format("In each of {} steps {:.3f} MB go back to the device here, {} the host got from it at {}.",
                    trip.run.steps, mb, trip.same_values ? "made from what" : "of the same type and sizes as what",
                    to_string(trip.fetched_at)));
    f.count = trip.run.count;
    f.figures = {{"mb_per_step", mb}, {"copies_per_step", trip.run.per_step()}};
    findings.push_back(std::move(f));
  }
}

// --- D012 --------------------------------------------------------------------------------------------------------

void HiddenSyncs::host_waited(const char* what, const Site& site) {
  if (site.line() == 0 || is_unavoidable(what)) return;
  Waits& waits = lines_[{site}];
  waits.run.add(steps());
  waits.what = what;
}

void HiddenSyncs::report(std::vector<Finding>& findings) {
  for (const auto& [line, waits] : lines_) {
    if (waits.run.longest < kStepsInARow) continue;
    Finding f = finding("D012", line.site,
                        fmt::format("The host waits for the device here ({}), {:.1f} times in each of {} steps; {}.",
                                    waits.what, waits.run.per_step(), waits.run.steps, advice_for(waits.what)));
    f.count = waits.run.count;
    f.figures = {{"waits_per_step", waits.run.per_step()}};
    findings.push_back(std::move(f));
  }
}

// --- D013 --------------------------------------------------------------------------------------------------------

void UnpinnedCopies::copied(const DeviceCopy& copy) { seen(plain(copy)); }

void UnpinnedCopies::seen(const SeenCopy& copy) {
  if (!copy.non_blocking || copy.pinned || copy.to_host || copy.bytes == 0) return;
  Copies& copies = lines_[{copy.site}];
  copies.run.add(steps());
  copies.bytes += copy.bytes;
}

void UnpinnedCopies::report(std::vector<Finding>& findings) {
  for (const auto& [line, copies] : lines_) {
    if (copies.run.longest < kUnpinnedSteps) continue;
    const double mb = static_cast<double>(copies.bytes) / static_cast<double>(copies.run.steps) / 1e6;
    Finding f =
        finding("D013", line.site,
                fmt::format("The copy of {:.3f} MB in each of {} steps is asked not to block, but its memory is not "
                            "pinned: the host waits for it all the same.",
                            mb, copies.run.steps));
    f.count = copies.run.count;
    f.figures = {{"mb_per_step", mb}, {"copies_per_step", copies.run.per_step()}};
    findings.push_back(std::move(f));
  }
}

std::vector<std::unique_ptr<Rule>> make_device_rules() {
  std::vector<std::unique_ptr<Rule>> rules;
  rules.push_back(make_rule<DevicePingPong>());
  rules.push_back(make_rule<HiddenSyncs>());
  rules.push_back(make_rule<UnpinnedCopies>());
  return rules;
}

}  // namespace deft::doctor
