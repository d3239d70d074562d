// Flags that take several numbers at once: -b 1,8,32, 1-64*2 (doubling), 1-9+2 (steps of two), 4-6 (each).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"
#include "command_line.h"

namespace deft::cli {

// In the order given, each once; ValueError for what is no number or range within [low, high].
std::vector<int64_t> parse_sweep(const std::string& text, int64_t low, int64_t high);
void add_sweep_flag(Command command, const std::string& names, std::vector<int64_t>& values, const std::string& help,
                    int64_t low, int64_t high);

struct Sweep {
  std::vector<int64_t> threads, batches;  // empty: what the library and the models choose
};
// -b and -t.
void add_sweep_flags(Command command, Sweep& sweep);
// One report of all combinations; a batch of 0 is the model's own. Rows tell their threads where there are several.
bench::Report run_sweep(const Sweep& sweep, const std::function<bench::Report(int64_t batch)>& measure);
// ", 2 threads", or "" where rows tell.
std::string threads_text(const Sweep& sweep, const bench::Report& report);

}  // namespace deft::cli
