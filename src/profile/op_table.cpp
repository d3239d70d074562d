#include "profile/op_table.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace deft::profile {

namespace {

// A site is a pointer to what the compiler wrote down of it. A line may have several, so rows() puts them together.
static_assert(sizeof(Site) == sizeof(uintptr_t));
uintptr_t id_of(const Site& site) { return std::bit_cast<uintptr_t>(site); }

uint64_t kind_of(const OpTotal& op) {
  return static_cast<uint64_t>(op.bucket) | static_cast<uint64_t>(op.dtype) << 8 |
         static_cast<uint64_t>(op.backward) << 16 | static_cast<uint64_t>(op.on_device) << 17;
}

bool is_same(const OpTotal& a, const OpTotal& b) {
  return a.name == b.name && id_of(a.site) == id_of(b.site) && kind_of(a) == kind_of(b);
}

}  // namespace

void OpTable::add(const OpTotal& op, int32_t& row) {
  if (row < 0 || !is_same(totals_[static_cast<size_t>(row)], op)) [[unlikely]]
    row = find(op);
  OpTotal& t = totals_[static_cast<size_t>(row)];
  t.calls += op.calls;
  t.kernel += op.kernel;
  t.overhead += op.overhead;
  t.flops += op.flops;
  t.bytes += op.bytes;
}

[[gnu::noinline]] int32_t OpTable::find(const OpTotal& op) {
  const uint64_t hash = mix(mix(kind_of(op), reinterpret_cast<uintptr_t>(op.name)), id_of(op.site));
  const int32_t found = index_.find(hash, [&](int32_t i) { return is_same(totals_[static_cast<size_t>(i)], op); });
  if (found >= 0) return found;
  const int32_t added = static_cast<int32_t>(totals_.size());
  totals_.push_back({.name = op.name,
                     .site = op.site,
                     .bucket = op.bucket,
                     .backward = op.backward,
                     .on_device = op.on_device,
                     .dtype = op.dtype,
                     .calls = 0});
  index_.add(hash, added);
  return added;
}

std::vector<OpRow> OpTable::rows(double seconds_per_tick) const {
  std::map<std::tuple<std::string, std::string, uint32_t, uint64_t>, OpRow> by_line;
  for (const OpTotal& t : totals_) {
    OpRow& row = by_line[{t.name, t.site.file_name(), t.site.line(), kind_of(t)}];
    row.name = t.name;
    row.bucket = t.bucket;
    row.backward = t.backward;
    row.on_device = t.on_device;
    row.dtype = t.dtype;
    row.site = t.site.line() ? to_string(t.site) : "";
    row.calls += t.calls;
    row.kernel_seconds += static_cast<double>(t.kernel) * seconds_per_tick;
    row.overhead_seconds += static_cast<double>(t.overhead) * seconds_per_tick;
    row.flops += t.flops;
    row.bytes += t.bytes;
  }
  std::vector<OpRow> rows;
  for (auto& [key, row] : by_line) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) { return a.seconds() > b.seconds(); });
  return rows;
}

}  // namespace deft::profile
