// BERT over real sentences in naive batches, in batches of like length and in packed rows: how many useful tokens per
// second. Sentences are the verses of a text, cut into words and punctuation marks, with one token before and one
// after.
#pragma once

#include <functional>
#include <string>

#include "bench/report.h"

namespace deft::bench {

struct SequencesOptions {
  std::string text;         // a file with a sentence per line; "": data::bible_file()
  int64_t sentences = 384;  // drawn from it
  int64_t rows = 32;        // of the naive batches
  int64_t max_tokens = 1024;
  int64_t longest = 128;  // sentences are cut off here; also the length of the rows that are all the same
  int threads = 2;
  bool quick = false;  // a tiny model and few sentences: to see that it runs; no bar
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// A row per kind of batch, and the bar: bucketed against naive batches. All kinds take turns, batch by batch, on the
// same sentences; of rows of one length every fourth batch is run.
Report measure_sequences(const SequencesOptions& options);

}  // namespace deft::bench
