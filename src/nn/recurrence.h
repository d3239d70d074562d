// The part of a recurrent layer that runs step by step, as one node of the graph.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace deft::nn {

enum class Cell : uint8_t { tanh, relu, lstm, gru };
constexpr int gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

struct Recurrence {
  Cell cell;
  bool reverse = false;  // from the last step to the first
};
struct RecurrenceResult {
  Tensor output;  // [steps, n, hidden]
  Tensor cell;    // lstm: [n, hidden] after the last step
};
// gates [steps, n, gates * hidden] is the input's side of all steps; h, c [n, hidden] are the first states; weight
// [gates * hidden, hidden] and bias (gru only, or undefined) are the hidden side.
RecurrenceResult run_recurrence(const Recurrence& kind, const Tensor& gates, const Tensor& h, const Tensor& c,
                                const Tensor& weight, const Tensor& bias);

}  // namespace deft::nn
