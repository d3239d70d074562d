// A built-in model together with a data set it can learn: batches, loss and score.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/state.h"
#include "data/dataset.h"
#include "data/loader_options.h"
#include "nn/module.h"

namespace deft::cli {

struct ModelSizes;  // model_sizes.h

struct TaskOptions {
  std::string model = "cnn";
  std::string data = "glyphs";
  std::string path;  // folder or file of the data; "" where Debian or ./dev setup put it
  int64_t batch = 128;
  int64_t length = 128;                   // tokens per row of text
  int64_t train_size = 0, test_size = 0;  // at most this many samples; 0: all
  uint64_t seed = 1;
  int64_t image_size = 224;    // images of a folder are brought to this size
  int workers = data::kAuto;   // threads that load data
  int prefetch = data::kAuto;  // batches they make ahead
  Device device = kCPU;        // of the model; batches are put together on the CPU
  // Samples that cannot be read: raise ends the run; skip leaves them out, in training for another one.
  data::OnError on_error = data::OnError::raise;
  std::shared_ptr<const ModelSizes> sizes;  // of the weights that the model gets; null: as the data wants it
};

// Samples that were left out: how often, and which came first.
struct LeftOut {
  int64_t count = 0;
  std::vector<std::string> errors;
};

struct Score {
  double loss = 0;
  double accuracy = 0;  // of classes or of next tokens
  int64_t samples = 0;
};

struct TaskBatch {
  Tensor inputs, targets;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual nn::Module& model() = 0;
  virtual int64_t batches_per_epoch() const = 0;
  virtual int64_t samples_per_epoch() const = 0;
  // The mean loss over batch `index` of epoch `epoch`: a pure function of these, the seed and the model's state.
  virtual Tensor loss(int64_t epoch, int64_t index) { return loss(batch(epoch, index)); }
  // The two halves of it; UnsupportedError for models whose loss needs more than a batch (`has_batches()` is false).
  virtual bool has_batches() const { return true; }
  virtual TaskBatch batch(int64_t epoch, int64_t index);
  virtual Tensor loss(const TaskBatch& batch);
  // Over the whole test set, in eval mode and without gradients. `progress` gets the part that is done.
  virtual Score evaluate(const std::function<void(double)>& progress) = 0;
  // What the model says of a batch; evaluate() asks `forward` instead where it is set: a compiled form of the model.
  virtual Tensor outputs(const Tensor& inputs);
  std::function<Tensor(const Tensor& inputs)> forward;
  // What the loss depends on besides the model: the memory of a Transformer-XL.
  virtual State state() const { return {}; }
  virtual void load_state(const State&) {}
  // Images of the test set, and images given as bytes, as the model takes them; UnsupportedError for text.
  virtual Tensor test_inputs(int64_t count) const;
  virtual Tensor normalize(const Tensor& bytes) const;
  // What decides the numbers besides the options, as "name=value": the form of the samples and a sum over their
  // content.
  virtual std::string identity() const { return ""; }
  virtual std::vector<std::string> class_names() const { return {}; }
  virtual LeftOut left_out() const { return {}; }
  // For runs of their own making: a model like this one with first weights, the samples of the test or training set,
  // and what a batch of them is to the model. Undefined targets: there are none to compare the model's outputs with.
  virtual std::unique_ptr<nn::Module> new_model() const = 0;
  virtual std::shared_ptr<const data::Dataset> samples(bool train) const = 0;
  virtual TaskBatch taken(const data::Batch& batch, DType dtype, MemoryFormat format) const = 0;

 protected:
  Tensor answers(const Tensor& inputs) { return forward ? forward(inputs) : outputs(inputs); }
};

std::vector<std::string> model_names();
bool is_text_model(const std::string& model);
std::vector<std::string> data_names();
// ValueError for a model that cannot learn this data set.
std::unique_ptr<Task> make_task(const TaskOptions& options);

}  // namespace deft::cli
