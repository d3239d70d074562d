// Summaries of samples.
#pragma once

#include <vector>

namespace deft::bench {

// The smallest value that `p` percent of the samples do not exceed; NaN without samples.
double percentile(std::vector<double> samples, double p);

// How unsteady the bulk of the samples is: half the distance of the 16th and 84th percentile over the median. For a
// normal distribution the coefficient of variation, but one outlier among hundreds does not decide it.
double spread(const std::vector<double>& samples);

// To that many decimals.
double rounded(double value, int decimals);

}  // namespace deft::bench
