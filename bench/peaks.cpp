#include "bench/peaks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/statistics.h"

namespace deft::bench {

std::vector<Json> Peaks::to_json() const {
  std::vector<Json> out;
  for (const auto& [arithmetic, peak] : computed())
    out.push_back({{"peak", fmt::format("{} {}", name_of(arithmetic), peak.instruction)},
                   {"threads", threads()},
                   {"gflops", rounded(peak.gflops, 1)},
                   {"gb_per_s", nullptr}});
  for (const auto& [mix, gb] : bandwidths())
    out.push_back({{"peak", mix_name(mix.first, mix.second)},
                   {"threads", threads()},
                   {"gflops", nullptr},
                   {"gb_per_s", rounded(gb, 1)}});
  return out;
}

}  // namespace deft::bench
