// A run's whole state in one file, and a folder of such files from which the newest whole one is taken.
//
// A file is a safetensors file (so any tool can read the weights) whose metadata holds the values and a checksum of
// everything. It is written beside its place, forced to disk and renamed: a crash at any moment leaves the old files as
// they were.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/state.h"
#include "io/load_options.h"

namespace deft::io {

struct CheckpointInfo {
  int64_t step = 0;
  std::string config;  // what must agree for the state to make sense: model, optimizer, ...; compared when loading
};
struct Checkpoint {
  State state;
  CheckpointInfo info;
};

void save_checkpoint(const std::string& path, const State& state, const CheckpointInfo& info = {});
// LoadError if the file is damaged in any way, or made by a later version of the format.
Checkpoint load_checkpoint(const std::string& path, const LoadOptions& options = {});

class CheckpointFolder {
 public:
  // Keeps the newest `keep` files; made if it is not there.
  explicit CheckpointFolder(std::string folder, int keep = 2);
  // Writes step-<step>.safetensors, then removes what is too old. Returns the path.
  std::string save(const State& state, const CheckpointInfo& info);
  struct Found {
    Checkpoint checkpoint;
    std::string path;
    std::vector<std::string> skipped;  // newer files that are damaged, each with the reason
  };
  // The newest whole one. ValueError if its config is another than the one given (and one is given).
  std::optional<Found> newest(const std::string& config = "") const;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  int keep_;
};

}  // namespace deft::io
