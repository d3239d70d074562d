// A run's whole state in one file, and a folder of such files from which the newest whole one is taken.
//
// A file is a safetensors file (so any tool can read the weights) whose metadata holds the values and a checksum of
// everything. It is written beside its place, forced to disk and renamed: a crash at any moment leaves the old files as
// they were.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "core/state.h"
#include "io/load_options.h"
#include "io/safetensors.h"

namespace deft::io {

struct CheckpointInfo {
  int64_t step = 0;
  // What must agree for the state to make sense: model, optimizer, ...; compared when loading. Written as "name=value
  // name=value", the error names what differs.
  std::string config;
};
struct Checkpoint {
  State state;
  CheckpointInfo info;
};

void save_checkpoint(const std::string& path, const State& state, const CheckpointInfo& info = {});
// LoadError if the file is damaged in any way, or made by a later version of the format.
Checkpoint load_checkpoint(const std::string& path, const LoadOptions& options = {});
// LoadError if a file that was read as safetensors is a checkpoint, and another one than was written; others pass.
void check_if_checkpoint(const SafetensorsFile& file, const std::string& path);
// The value of `name` in such a config, "" if it is not there.
std::string config_value(const std::string& config, const std::string& name);
// In which names two of them differ: "lr is 0.5 there, 0.1 here; ...", or both as they are where they name nothing.
std::string config_difference(const std::string& there, const std::string& here);

class CheckpointFolder {
 public:
  // Keeps the newest `keep` files; made if it is not there.
  explicit CheckpointFolder(std::string folder, int keep = 2);
  ~CheckpointFolder();  // waits; a failure of the last save_async is lost
  CheckpointFolder(CheckpointFolder&&) = default;
  // Writes step-<step>.safetensors, then removes what is too old and what killed savers left. Returns the path. Several
  // savers may use one folder.
  std::string save(const State& state, const CheckpointInfo& info);
  // Copies the tensors and writes them on a thread of its own: the state may change as soon as this returns. Takes
  // memory for one copy of the state until it is written. One at a time: waits for the one before, whose failure it
  // throws.
  void save_async(const State& state, const CheckpointInfo& info);
  bool saving() const;  // whether a save_async is under way; when it is over, wait() takes no time
  // The path of the last save_async, when it is written, or "" if there was none since the last wait(). SaveError if it
  // failed.
  std::string wait();
  struct Found {
    Checkpoint checkpoint;
    std::string path;
    std::vector<std::string> skipped;  // newer files that are damaged, each with the reason
  };
  // The newest whole one; empty if there are no files. LoadError if none of the files loads, or the newest whole one
  // was made by a later version; ValueError if its config is another than the one given (and one is given).
  std::optional<Found> newest(const std::string& config = "") const;
  const std::string& folder() const { return folder_; }
  // Its checkpoints, whole or not, the newest first; and without them.
  std::vector<std::string> files() const;
  void clear();

 private:
  std::string folder_;
  int keep_;
  std::future<std::string> pending_;
};

}  // namespace deft::io
