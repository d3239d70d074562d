// The part of a recurrent layer that runs step by step, as one node of the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace deft::nn {

enum class Cell : uint8_t { tanh, relu, lstm, gru };
constexpr int gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

struct Recurrence {
  Cell cell;
  std::vector<int64_t> rows;  // that take part in each step, never rising: sequences that end leave at the end
  bool reverse = false;       // from the last step to the first
};
struct RecurrenceResult {
  Tensor output;        // [all rows of all steps, hidden]
  Tensor hidden, cell;  // [n, hidden] after each row's last step; a cell only with lstm
};
// gates [all rows of all steps, gates * hidden] is the input's side, step after step; h, c [n, hidden] are the first
// states; weight [gates * hidden, hidden] and bias (gru only, or undefined) are the hidden side.
RecurrenceResult run_recurrence(const Recurrence& kind, const Tensor& gates, const Tensor& h, const Tensor& c,
                                const Tensor& weight, const Tensor& bias);

}  // namespace deft::nn
