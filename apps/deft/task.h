// A built-in model together with a data set it can learn: batches, loss and score.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/state.h"
#include "data/loader_options.h"
#include "models/gpt2.h"
#include "nn/module.h"

namespace deft::cli {

struct TaskOptions {
  std::string model = "cnn";
  std::string data = "glyphs";
  std::string path;  // folder or file of the data; "" where Debian or ./dev setup put it
  int64_t batch = 128;
  int64_t length = 128;                   // tokens per row of text
  int64_t train_size = 0, test_size = 0;  // at most this many samples; 0: all
  uint64_t seed = 1;
  int64_t image_size = 224;   // pictures of a folder are brought to this size
  int workers = data::kAuto;  // threads that load data
  Device device = kCPU;       // of the model; batches are put together on the CPU
};

struct Score {
  double loss = 0;
  double accuracy = 0;  // of classes or of next tokens
  int64_t samples = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual nn::Module& model() = 0;
  virtual int64_t batches_per_epoch() const = 0;
  virtual int64_t samples_per_epoch() const = 0;
  // The mean loss over batch `index` of epoch `epoch`: a pure function of these, the seed and the model's state.
  virtual Tensor loss(int64_t epoch, int64_t index) = 0;
  // Over the whole test set, in eval mode and without gradients. `progress` gets the part that is done.
  virtual Score evaluate(const std::function<void(double)>& progress) = 0;
  // What the loss depends on besides the model: the memory of a Transformer-XL.
  virtual State state() const { return {}; }
  virtual void load_state(const State&) {}
  // Pictures of the test set, and pictures given as bytes, as the model takes them; UnsupportedError for text.
  virtual Tensor test_inputs(int64_t count) const;
  virtual Tensor normalize(const Tensor& bytes) const;
};

// The GPT-2 of `deft train -d text`: bytes as tokens, small enough to learn on a CPU.
inline constexpr int64_t kTextPositions = 512;
models::Gpt2Options byte_gpt2_options();

std::vector<std::string> model_names();
std::vector<std::string> data_names();
// ValueError for a model that cannot learn this data set.
std::unique_ptr<Task> make_task(const TaskOptions& options);

}  // namespace deft::cli
