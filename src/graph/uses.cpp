#include "graph/uses.h"

#include <algorithm>
#include <numeric>

namespace deft::graph {

namespace {

void add(std::vector<int32_t>& list, size_t place) {
  if (list.empty() || index(list.back()) != place) list.push_back(static_cast<int32_t>(place));
}

}  // namespace

Uses::Uses(const Graph& graph) : g_(graph), places_(graph.buffers.size()), now_(graph.instructions.size()) {
  std::iota(now_.begin(), now_.end(), 0);
  std::vector<bool> used(graph.values.size(), false);
  auto on_buffer = [&](ValueId id) -> Places& { return places_[index(graph.value(id).buffer)]; };
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    const Instruction& x = graph.instructions[i];
    if (!x.def) continue;
    for (ValueId id : x.inputs) {
      if (id == kNone) continue;
      used[index(id)] = true;
      if (x.action != Action::view) add(on_buffer(id).reads, i);
    }
    for (ValueId id : x.outputs) used[index(id)] = true;
    for (ValueId id : written_values(x)) add(on_buffer(id).writes, i);
  }
  for (ValueId id : graph.outputs) used[index(id)] = true;
  for (size_t i = 0; i < used.size(); ++i) places_[index(graph.values[i].buffer)].values += used[i];
}

bool Uses::writes(const Instruction& x, BufferId buffer) const {
  if (!x.def) return false;
  auto written = written_values(x);
  return std::any_of(written.begin(), written.end(), [&](ValueId id) { return g_.value(id).buffer == buffer; });
}
bool Uses::reads(const Instruction& x, BufferId buffer) const {
  if (!x.def || x.action == Action::view) return false;
  return std::any_of(x.inputs.begin(), x.inputs.end(),
                     [&](ValueId id) { return id != kNone && g_.value(id).buffer == buffer; });
}

int32_t Uses::place_now(int32_t place) const {
  while (!g_.instructions[index(place)].def) {
    if (now_[index(place)] == place) return -1;
    place = now_[index(place)];
  }
  return place;
}
std::optional<bool> Uses::any_within(const std::vector<int32_t>& places, size_t from, size_t to) const {
  bool any = false;
  for (int32_t place : places) {
    int32_t now = place_now(place);
    if (now < 0) return std::nullopt;
    any |= index(now) >= from && index(now) < to;
  }
  return any;
}
bool Uses::written_within(BufferId buffer, size_t from, size_t to) const {
  if (index(buffer) < places_.size())
    if (auto known = any_within(places_[index(buffer)].writes, from, to)) return *known;
  for (size_t i = from; i < to; ++i)
    if (writes(g_.instructions[i], buffer)) return true;
  return false;
}
bool Uses::read_within(BufferId buffer, size_t from, size_t to) const {
  if (index(buffer) < places_.size())
    if (auto known = any_within(places_[index(buffer)].reads, from, to)) return *known;
  for (size_t i = from; i < to; ++i)
    if (reads(g_.instructions[i], buffer)) return true;
  return false;
}

int Uses::maker(ValueId id, size_t at) const {
  auto makes = [&](size_t i) {
    const Instruction& x = g_.instructions[i];
    if (!x.def) return false;
    auto written = written_values(x);
    return std::find(written.begin(), written.end(), id) != written.end();
  };
  if (BufferId buffer = g_.value(id).buffer; index(buffer) < places_.size()) {
    int32_t last = -1;
    bool known = true;
    for (int32_t place : places_[index(buffer)].writes) {
      int32_t now = place_now(place);
      known &= now >= 0;
      if (now >= 0 && index(now) < at && makes(index(now))) last = std::max(last, now);
    }
    if (known) return last;
  }
  while (at-- > 0)
    if (makes(at)) return static_cast<int>(at);
  return -1;
}

bool Uses::only_between(ValueId id, size_t maker, size_t reader) const {
  BufferId buffer = g_.value(id).buffer;
  if (g_.buffer_of(id).kind != BufferKind::temporary || index(buffer) >= places_.size()) return false;
  if (read_within(buffer, maker + 1, reader) || written_within(buffer, maker + 1, reader)) return false;
  const Instruction& last = g_.instructions[reader];
  const bool rewritten = last.action == Action::write && last.outputs[0] == id;  // gone with this instruction
  if (rewritten && !is_seen_within(id, maker + 1, reader)) return true;
  if (places_[index(buffer)].values != 1) return false;
  if (rewritten) return true;
  if (read_within(buffer, reader + 1, g_.instructions.size())) return false;
  return std::find(g_.outputs.begin(), g_.outputs.end(), id) == g_.outputs.end();
}
bool Uses::is_seen_within(ValueId id, size_t from, size_t reader) const {
  const BufferId buffer = g_.value(id).buffer;
  auto is_other = [&](ValueId other) { return other != kNone && other != id && g_.value(other).buffer == buffer; };
  const std::vector<ValueId>& inputs = g_.instructions[reader].inputs;
  if (std::any_of(inputs.begin(), inputs.end(), is_other)) return true;
  for (size_t i = from; i < reader; ++i) {
    const Instruction& x = g_.instructions[i];
    if (x.def && x.action == Action::view && g_.value(x.inputs[0]).buffer == buffer) return true;
  }
  return false;
}

bool Uses::inputs_stand(size_t from, size_t to) const {
  const std::vector<ValueId>& inputs = g_.instructions[from].inputs;
  return std::none_of(inputs.begin(), inputs.end(),
                      [&](ValueId id) { return id != kNone && written_within(g_.value(id).buffer, from + 1, to); });
}

bool BufferUses::written_within(size_t from, size_t to) const {
  return std::any_of(writes.begin(), writes.end(), [&](size_t i) { return i > from && i <= to; });
}

std::vector<BufferUses> buffer_uses(const Graph& graph) {
  std::vector<BufferUses> all(graph.buffers.size());
  auto of = [&](ValueId id) -> BufferUses& { return all[index(graph.value(id).buffer)]; };
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    const Instruction& x = graph.instructions[i];
    for (size_t n = 0; n < x.inputs.size(); ++n) {
      if (x.inputs[n] == kNone) continue;
      BufferUses& u = of(x.inputs[n]);
      if (x.action == Action::view) {
        u.views.push_back(i);
      } else {
        u.reads.push_back({i, n});
      }
      u.values.push_back(x.inputs[n]);
    }
    for (ValueId id : x.outputs) of(id).values.push_back(id);
    for (ValueId id : written_values(x)) of(id).writes.push_back(i);
  }
  for (ValueId id : graph.outputs) of(id).is_output = true;
  for (BufferUses& u : all) {
    std::sort(u.values.begin(), u.values.end());
    u.values.erase(std::unique(u.values.begin(), u.values.end()), u.values.end());
  }
  return all;
}

void remove_taken(Graph& graph) {
  std::erase_if(graph.instructions, [](const Instruction& x) { return x.def == nullptr; });
}

}  // namespace deft::graph
