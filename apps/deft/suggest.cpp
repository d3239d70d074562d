#include "suggest.h"

#include <fmt/format.h>

#include <algorithm>

namespace deft::cli {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  int best_distance = static_cast<int>(std::max<size_t>(2, word.size() / 2)) + 1;  // farther is no help
  for (const std::string& candidate : candidates) {
    bool begins = word.size() >= 2 && candidate.starts_with(word);
    int distance = begins ? 1 : edit_distance(word, candidate);
    if (distance < best_distance && distance < static_cast<int>(candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_message(std::string_view kind, std::string_view word, const std::vector<std::string>& candidates) {
  std::string near = nearest(word, candidates);
  if (!near.empty()) return fmt::format("unknown {} '{}'; did you mean '{}'?", kind, word, near);
  return fmt::format("unknown {} '{}'; there is: {}", kind, word, fmt::join(candidates, ", "));
}

}  // namespace deft::cli
