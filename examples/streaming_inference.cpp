// A stream without an end, chunk by chunk, with a memory of what came before: no graph, and memory that does not grow.
#include <deft/deft.h>

#include <algorithm>
#include <iostream>

using namespace deft;

int main() {
  manual_seed(1);
  nn::LSTM lstm(16, 64, {.batch_first = true});
  nn::Linear out(64, 4);
  lstm.eval();
  out.eval();

  NoGradGuard no_grad;  // the state may still be trained on later; InferenceModeGuard is faster where it never is
  Tensor hidden = zeros({1, 1, 64}), cell = zeros({1, 1, 64});
  int64_t after_warmup = 0, most = 0;
  int64_t counts[4] = {};
  for (int chunk = 0; chunk < 200; ++chunk) {
    MemoryScope memory;
    Tensor samples = randn({1, 50, 16});  // what a sensor sent since the last chunk
    nn::LSTMResult result = lstm(samples, hidden, cell);
    hidden = result.hidden;
    cell = result.cell;
    ++counts[out(result.output.select(1, -1)).argmax(1).item<int64_t>()];
    (chunk < 3 ? after_warmup : most) = std::max(chunk < 3 ? after_warmup : most, memory.peak_growth());
  }
  std::cout << "classes seen: " << counts[0] << ", " << counts[1] << ", " << counts[2] << ", " << counts[3] << "\n";
  std::cout << "a chunk takes at most " << most / 1024 << " KiB, the first ones " << after_warmup / 1024 << " KiB\n";
  std::cout << "nodes of graphs kept: " << graph_stats().live_nodes << "\n";
  return most <= after_warmup && graph_stats().live_nodes == 0 ? 0 : 1;
}
