#include "nn/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/creation.h"
#include "ops/gather_scatter.h"
#include "ops/shape_ops.h"
#include "ops/view.h"

namespace deft::nn {

namespace {

// The place of a step of a row among the rows of a padded tensor seen as one dimension.
struct Places {
  int64_t steps, batch;
  bool batch_first;
  int64_t operator()(int64_t step, int64_t row) const { return batch_first ? row * steps + step : step * batch + row; }
};

Tensor index_on(const std::vector<int64_t>& index, Device device) { return tensor(index).to(device); }

// Row numbers, the longest first, equal ones in their order.
std::vector<int64_t> by_length(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return order;
}

void check_lengths(const std::vector<int64_t>& lengths, int64_t steps, int64_t batch, bool enforce_sorted) {
  DEFT_CHECK(
      static_cast<int64_t>(lengths.size()) == batch && batch > 0, ShapeError,
      "pack_padded_sequence: there are {} lengths for a batch of {}; give one for each row, and at least one row",
      lengths.size(), batch);
  for (size_t i = 0; i < lengths.size(); ++i) {
    DEFT_CHECK(lengths[i] > 0 && lengths[i] <= steps, ValueError,
               "pack_padded_sequence: length {} is {}, expected 1 to {} steps", i, lengths[i], steps);
    DEFT_CHECK(!enforce_sorted || i == 0 || lengths[i] <= lengths[i - 1], ValueError,
               "pack_padded_sequence: length {} is {} after {}; put the longest sequences first or give enforce_sorted "
               "= false",
               i, lengths[i], lengths[i - 1]);
  }
}

}  // namespace

void PackedSequence::check(const char* who) const {
  DEFT_CHECK(data.defined() && data.dim() >= 1 && !batch_sizes.empty(), ValueError, "{}: the packed sequence is empty",
             who);
  int64_t all = 0, rows = batch_sizes[0];
  for (int64_t n : batch_sizes) {
    DEFT_CHECK(n > 0 && n <= rows, ValueError, "{}: batch sizes must be positive and never rise, found {} after {}",
               who, n, rows);
    all += rows = n;
  }
  DEFT_CHECK(data.size(0) == all, ShapeError, "{}: the batch sizes add up to {} rows, the data has {}", who, all,
             data.size(0));
  size_t n = static_cast<size_t>(batch());
  bool ordered = sorted_indices.size() == n && unsorted_indices.size() == n;
  for (size_t i = 0; ordered && i < n; ++i) {
    auto from = static_cast<size_t>(sorted_indices[i]);
    ordered = from < n && unsorted_indices[from] == static_cast<int64_t>(i);
  }
  DEFT_CHECK(ordered || (sorted_indices.empty() && unsorted_indices.empty()), ValueError,
             "{}: sorted_indices and unsorted_indices do not undo each other over {} rows", who, n);
}

std::vector<int64_t> PackedSequence::lengths() const {
  std::vector<int64_t> result(static_cast<size_t>(batch()));
  for (int64_t rows : batch_sizes)
    for (int64_t row = 0; row < rows; ++row)
      ++result[static_cast<size_t>(sorted_indices.empty() ? row : sorted_indices[static_cast<size_t>(row)])];
  return result;
}

PackedSequence pack_padded_sequence(const Tensor& input, const std::vector<int64_t>& lengths, bool batch_first,
                                    bool enforce_sorted, Site site) {
  SiteScope scope(site);
  DEFT_CHECK(input.defined() && input.dim() >= 2, ShapeError,
             "pack_padded_sequence: takes a tensor of at least 2 dimensions, steps and batch");
  Places places{input.size(batch_first ? 1 : 0), input.size(batch_first ? 0 : 1), batch_first};
  check_lengths(lengths, places.steps, places.batch, enforce_sorted);
  PackedSequence result;
  std::vector<int64_t> order = by_length(lengths), from;
  for (int64_t step = 0; step < lengths[static_cast<size_t>(order[0])]; ++step) {
    int64_t rows = 0;
    for (; rows < places.batch && lengths[static_cast<size_t>(order[static_cast<size_t>(rows)])] > step; ++rows)
      from.push_back(places(step, order[static_cast<size_t>(rows)]));
    result.batch_sizes.push_back(rows);
  }
  Tensor flat = input.flatten(0, 1);
  result.data = index_select(flat, 0, index_on(from, input.device()));
  if (enforce_sorted) return result;
  result.sorted_indices = result.unsorted_indices = order;
  for (size_t i = 0; i < order.size(); ++i)
    result.unsorted_indices[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return result;
}

std::pair<Tensor, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& sequence, bool batch_first,
                                                            double padding_value, std::optional<int64_t> total_length,
                                                            Site site) {
  SiteScope scope(site);
  sequence.check("pad_packed_sequence");
  int64_t longest = static_cast<int64_t>(sequence.batch_sizes.size()), batch = sequence.batch();
  int64_t steps = total_length.value_or(longest);
  DEFT_CHECK(steps >= longest, ValueError,
             "pad_packed_sequence: total_length is {}, but the longest sequence has {} steps", steps, longest);
  const Tensor& data = sequence.data;
  int64_t all = data.size(0), at = 0;
  Places places{steps, batch, batch_first};
  std::vector<int64_t> from(static_cast<size_t>(steps * batch), all);  // the row of padding
  for (int64_t step = 0; step < longest; ++step)
    for (int64_t row = 0; row < sequence.batch_sizes[static_cast<size_t>(step)]; ++row, ++at) {
      int64_t was = sequence.sorted_indices.empty() ? row : sequence.sorted_indices[static_cast<size_t>(row)];
      from[static_cast<size_t>(places(step, was))] = at;
    }
  Shape row = data.sizes(), sizes{batch_first ? batch : steps, batch_first ? steps : batch};
  row[0] = 1;
  for (int64_t i = 1; i < data.dim(); ++i) sizes.push_back(data.size(i));
  Tensor padding = full(row, padding_value, {data.dtype(), data.device()});
  Tensor flat = index_select(cat({data, padding}), 0, index_on(from, data.device()));
  return {flat.view(sizes), sequence.lengths()};
}

}  // namespace deft::nn
