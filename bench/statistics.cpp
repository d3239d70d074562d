#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deft::bench {

double percentile(std::vector<double> samples, double p) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  auto rank = static_cast<size_t>(std::ceil(p / 100 * static_cast<double>(samples.size())));
  auto nth = samples.begin() + static_cast<std::ptrdiff_t>(std::clamp<size_t>(rank, 1, samples.size()) - 1);
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

double spread(const std::vector<double>& samples) {
  return (percentile(samples, 84) - percentile(samples, 16)) / 2 / percentile(samples, 50);
}

double rounded(double value, int decimals) {
  double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

}  // namespace deft::bench
