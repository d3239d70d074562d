// "did you mean ...": the nearest of the words that would have been right.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace deft::cli {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);
// "" where nothing is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// "unknown <kind> 'wrod'; did you mean 'word'?", or the whole list where nothing is near.
std::string unknown_message(std::string_view kind, std::string_view word, const std::vector<std::string>& candidates);

}  // namespace deft::cli
