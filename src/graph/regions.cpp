#include "graph/regions.h"

namespace deft::graph {

namespace {

bool same_strides(const Meta& a, const Meta& b) {
  for (int d = 0; d < a.rank(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}
}  // namespace

bool same_place(const Value& a, const Value& b) {
  return a.offset == b.offset && a.meta.dtype == b.meta.dtype && a.meta.sizes == b.meta.sizes &&
         same_strides(a.meta, b.meta);
}

namespace {

// The distance of the rows of a value, in elements, if that is a multiple for all outer dimensions; 0 otherwise.
int64_t row_distance(const Meta& m) {
  const int last = m.rank() - 1;
  if (last < 1 || m.strides[last] != 1) return 0;
  int64_t least = 0;
  for (int d = 0; d < last; ++d)
    if (m.sizes[d] > 1 && (least == 0 || m.strides[d] < least)) least = m.strides[d];
  for (int d = 0; d < last; ++d)
    if (m.sizes[d] > 1 && (least <= 0 || m.strides[d] % least != 0)) return 0;
  return least;
}

}  // namespace

bool are_apart(const Value& a, const Value& b) {
  const int64_t size = element_bytes(a);
  if (a.offset + a.meta.span() * size <= b.offset || b.offset + b.meta.span() * element_bytes(b) <= a.offset)
    return true;
  const int64_t row = row_distance(a.meta) * size;
  if (row == 0 || row != row_distance(b.meta) * element_bytes(b)) return false;
  const int64_t from_a = a.offset % row, from_b = b.offset % row;
  const int64_t end_a = from_a + a.meta.sizes.back() * size, end_b = from_b + b.meta.sizes.back() * element_bytes(b);
  return end_a <= row && end_b <= row && (end_a <= from_b || end_b <= from_a);
}

bool is_whole(const Graph& graph, ValueId id) {
  const Value& v = graph.value(id);
  return v.offset == 0 && v.meta.contiguous &&
         static_cast<size_t>(v.meta.numel * element_bytes(v)) == graph.buffer_of(id).bytes;
}

std::optional<Value> widened(const Value& v, int64_t from, int64_t to) {
  const int64_t size = element_bytes(v), first = v.offset / size, column = first % from;
  Shape strides = v.meta.strides;
  int64_t reach = column;
  for (int d = 0; d < v.meta.rank(); ++d) {
    if (strides[d] % from == 0) {
      strides[d] = strides[d] / from * to;
    } else {
      reach += (v.meta.sizes[d] - 1) * strides[d];
    }
  }
  if (reach >= from || v.meta.numel == 0) return {};
  Value wide{v.meta, v.buffer, (first / from * to + column) * size};
  wide.meta.set_strides(strides);
  return wide;
}

}  // namespace deft::graph
