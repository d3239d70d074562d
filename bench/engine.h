// Benchmarks of the CPU engine: GEMM, convolutions, attention and row kernels against what the machine can do at
// most and against peers, all in the same run, with the error next to the speed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/neighbours.h"
#include "bench/peaks.h"
#include "bench/peer.h"
#include "bench/report.h"

namespace deft::bench {

struct EngineOptions {
  int threads = 1;
  int repeats = 30;                // batches of each side
  int64_t batch = 1;               // images at a time, where the bench has `batches`
  bool quick = false;              // tiny shapes, one batch: to see that it runs, not how fast
  std::string family, dtype;       // "" for all
  std::vector<std::string> peers;  // programs to compare with (bench/peer.h)
  bool library_peers = true;       // OpenBLAS, where it is installed
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// What --family and --dtype choose from.
struct EngineBench {
  const char* name;   // "gemm"
  const char* title;  // "GEMM"
  std::vector<std::string> families, dtypes;
  Report (*measure)(const EngineOptions&);
  bool library_peers = false;  // there is one for these cases
  bool batches = false;        // --batch says how many images
};
EngineBench gemm_bench();
EngineBench conv_bench();
EngineBench attention_bench();
EngineBench rows_bench();

// How far results are from exact ones, on a scale on which `bound` holds for any order of the same operations.
struct Accuracy {
  double error = 0, bound = 0;
};

// A side of a row that runs in this process.
struct Contestant {
  std::string name;
  std::function<void()> call;
};

// One row before it is measured.
struct EngineRow {
  std::string name = {};      // "gemm f32 128x768x768": what peers are asked for
  std::string family = {};    // "bert"
  std::string dtype = {};     // "f32"
  std::string variant = {};   // "prepacked"; "" where there is only one
  double flops = 0;           // multiplications and additions
  double bytes = 0;           // that must come from or go to memory; 0: the caches hold all of it
  int reads = 1, writes = 0;  // mix of these bytes
  Arithmetic arithmetic = Arithmetic::f32;
  Accuracy accuracy = {};
  int64_t count = 1;  // how often a total holds it
};

// A run: peaks, peers and the report that grows row by row.
class EngineRun {
 public:
  explicit EngineRun(const EngineOptions& options);
  ~EngineRun();
  EngineRun(const EngineRun&) = delete;
  EngineRun& operator=(const EngineRun&) = delete;

  const EngineOptions& options() const { return options_; }
  // Rows of this kind were asked for; false once interrupted. To be asked before inputs are made.
  bool wanted(const std::string& family, const std::string& dtype);
  // Names the row that comes next. False once interrupted.
  bool go_on(const std::string& what);
  // Measures `ours`, `others` and the peers in turns and adds the row.
  void add(const EngineRow& row, const std::function<void()>& ours, const std::vector<Contestant>& others = {});
  // Wall time of one thread over that of options().threads, each in turn; only with more than one.
  void add_scaling(const EngineRow& row, const std::function<void()>& call);
  // Over the rows so far of this dtype (and variant, if given): all convolutions of a network as one.
  void add_total(const std::string& name, const std::string& family, const std::string& dtype,
                 const std::string& variant = "");

  // A goal over the rows that `in` accepts: geometric mean and worst of the values under `key`. Left out where no row
  // was measured.
  struct Bar {
    const char* name;
    const char* unit;  // "% of peak"
    double must, aim;
    const char* key = "percent_of_peak";
  };
  void add_bar(const Bar& bar, const std::function<bool(const Json& row)>& in);
  Report finish();

 private:
  // The time a row cannot be faster than, and what sets it: `now`, measured again in about that many ns.
  struct Limit {
    double ns = 0;
    std::string name;
    std::function<double(double ns)> now;
  };
  Limit limit_of(const EngineRow& row);

  EngineOptions options_;
  Report report_;
  Peaks peaks_;
  std::optional<Neighbours> neighbours_;  // none in a quick run
  std::vector<std::unique_ptr<Peer>> peers_;
  int threads_before_;
};

}  // namespace deft::bench
