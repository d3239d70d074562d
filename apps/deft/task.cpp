#include "task.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/grad_mode.h"
#include "data/loader.h"
#include "data/normalize_images.h"
#include "data/tensor_dataset.h"
#include "data/text.h"
#include "image_data.h"
#include "io/crc32.h"
#include "model_sizes.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "models/transformer_xl.h"

namespace deft::cli {

namespace {

// Models take images of the data and answer its classes, unless their weights say otherwise.
ModelSizes sizes_for(const TaskOptions& o, const ImageData& d) {
  ModelSizes sizes;
  sizes.channels = d.channels;
  sizes.classes = d.classes;
  sizes.small_input = d.height <= 64;
  sizes.layers = {d.channels * d.height * d.width, 256, 256, d.classes};
  if (!o.sizes) return sizes;
  ModelSizes said = *o.sizes;
  if (said.channels == 0) said.channels = sizes.channels;
  if (said.classes == 0) said.classes = sizes.classes;
  if (said.layers.empty()) said.layers = sizes.layers;
  const bool mlp = o.model == "mlp";
  const int64_t wants = mlp ? said.layers.front() : said.channels, is = mlp ? sizes.layers[0] : sizes.channels;
  DEFT_CHECK(wants == is, ValueError, "the weights take images of {} {}, those of data set {} have {}", wants,
             mlp ? "values" : "channels", o.data, is);
  return said;
}

// Batches of a loader by number: in order without delay, others by going there.
class BatchesByNumber {
 public:
  explicit BatchesByNumber(data::DataLoader loader) : loader_(std::move(loader)) {}
  data::LoaderStats stats() const { return loader_.stats(); }
  const data::Batch& at(int64_t epoch, int64_t index) {
    bool next = epoch == epoch_ && index == index_ + 1;
    bool next_epoch = epoch == epoch_ + 1 && index == 0 && index_ + 1 == loader_.batches();
    if (next_epoch) loader_.next(batch_);  // the end of the last one
    if (!next && !next_epoch) go_to(epoch, index);
    DEFT_CHECK(loader_.next(batch_), IndexError, "batch {} of epoch {}: there are only {}", index, epoch,
               loader_.batches());
    epoch_ = epoch, index_ = index;
    return batch_;
  }

 private:
  void go_to(int64_t epoch, int64_t index) {
    State s = loader_.state();
    s.values["epoch"] = epoch;
    s.values["batch"] = index;
    s.values["ahead"] = std::vector<int64_t>();
    loader_.load_state(s);
  }
  data::DataLoader loader_;
  data::Batch batch_;
  int64_t epoch_ = -1, index_ = -1;
};

int64_t count_right(const Tensor& logits, const Tensor& targets) {
  return (logits.argmax(-1) == targets).to(DType::i64).sum().item<int64_t>();
}

class ImageTask : public Task {
 public:
  explicit ImageTask(const TaskOptions& o)
      : options_(o), data_(read_images(o)), sizes_(sizes_for(o, data_)), train_(train_loader()) {
    model_ = new_model();
  }
  nn::Module& model() override { return *model_; }
  // The last batch of an epoch is left out where it is short: batch norm needs its usual number of images.
  int64_t batches_per_epoch() const override { return std::max<int64_t>(1, data_.train->size() / options_.batch); }
  int64_t samples_per_epoch() const override {
    return std::min(data_.train->size(), batches_per_epoch() * options_.batch);
  }

  using Task::loss;
  TaskBatch batch(int64_t epoch, int64_t index) override {
    const data::Batch& b = train_.at(epoch, index);
    return {images_of(b), b["label"]};
  }
  Tensor loss(const TaskBatch& b) override { return cross_entropy((*model_)(b.inputs), b.targets); }
  Tensor outputs(const Tensor& inputs) override { return (*model_)(inputs); }

  Score evaluate(const std::function<void(double)>& progress) override {
    DEFT_CHECK(sizes_.classes == data_.classes, ValueError,
               "the weights answer {} classes, data set {} has {}: these are not the classes that they learned",
               sizes_.classes, options_.data, data_.classes);
    nn::EvalGuard eval(*model_);
    NoGradGuard no_grad;
    data::LoaderOptions o = loader_options(options_.batch);
    o.on_error = options_.on_error;
    data::DataLoader loader(data_.test, o);
    Score score;
    int64_t right = 0;
    for (const data::Batch& batch : loader) {
      Tensor logits = answers(images_of(batch)).to(DType::f32);
      const Tensor& labels = batch["label"];
      score.loss += cross_entropy(logits, labels).item() * static_cast<double>(batch.rows());
      right += count_right(logits, labels);
      score.samples += batch.rows();
      progress(static_cast<double>(score.samples) / static_cast<double>(data_.test->size()));
    }
    add(left_out_, loader.stats());
    if (score.samples == 0)
      throw LoadError("data set", options_.path, "test set", 0,
                      fmt::format("none of its samples can be read; {}", fmt::join(left_out_.errors, "; ")));
    score.loss /= static_cast<double>(score.samples);
    score.accuracy = static_cast<double>(right) / static_cast<double>(score.samples);
    return score;
  }

  Tensor test_inputs(int64_t count) const override {
    data::LoaderOptions o = loader_options(std::min(count, data_.test->size()));
    o.workers = 0;
    data::DataLoader loader(data_.test, o);
    data::Batch batch;
    loader.next(batch);
    return images_of(batch);
  }
  Tensor normalize(const Tensor& bytes) const override {
    return data::normalize_images(bytes.to(options_.device), data_.scale.mean, data_.scale.std);
  }
  std::string identity() const override {
    return fmt::format("picture={}x{}x{} classes={} content={:08x}", data_.channels, data_.height, data_.width,
                       data_.classes, data_.content());
  }
  std::vector<std::string> class_names() const override { return data_.names; }
  LeftOut left_out() const override {
    LeftOut all = left_out_;
    add(all, train_.stats());
    return all;
  }
  std::unique_ptr<nn::Module> new_model() const override {
    auto model = make_model(options_.model, sizes_);
    model->to(options_.device);
    return model;
  }
  std::shared_ptr<const data::Dataset> samples(bool train) const override { return train ? data_.train : data_.test; }
  TaskBatch taken(const data::Batch& batch, DType dtype, MemoryFormat format) const override {
    return {images_of(batch, dtype, format), batch["label"]};
  }

 private:
  data::LoaderOptions loader_options(int64_t batch) const {
    data::LoaderOptions o{.batch_size = batch, .seed = options_.seed, .workers = options_.workers};
    o.prefetch = options_.prefetch;
    // A copy of a small image takes less than handing it over.
    if (data_.in_memory && o.workers == data::kAuto) o.workers = 0;
    o.device = options_.device;
    return o;
  }
  data::DataLoader train_loader() const {
    data::LoaderOptions o = loader_options(std::min(options_.batch, data_.train->size()));
    o.shuffle = true;
    o.drop_last = true;
    // Another sample for one that cannot be read: batches keep their size, and the run its number of steps.
    if (options_.on_error == data::OnError::skip) o.on_error = data::OnError::replace;
    return data::DataLoader(data_.train, o);
  }
  Tensor images_of(const data::Batch& batch, DType dtype = DType::f32,
                   MemoryFormat format = MemoryFormat::channels_last) const {
    Tensor bytes = batch["image"];
    if (data_.channels_last) bytes = bytes.permute({0, 3, 1, 2});
    return data::normalize_images(bytes, data_.scale.mean, data_.scale.std, dtype, format);
  }
  static void add(LeftOut& to, const data::LoaderStats& stats) {
    to.count += stats.skipped + stats.replaced;
    to.errors.insert(to.errors.end(), stats.errors.begin(), stats.errors.end());
  }
  TaskOptions options_;
  ImageData data_;
  ModelSizes sizes_;
  LeftOut left_out_;  // of the test set
  std::unique_ptr<nn::Module> model_;
  BatchesByNumber train_;
};

// Language models of a size that learns on a CPU in minutes. Tokens are bytes; BERT has one more, for what is hidden.
constexpr int64_t kMaskToken = data::kByteTokens;

ModelSizes byte_sizes(const TaskOptions& o) {
  if (!o.sizes) return byte_model_sizes(o.length);
  const int64_t tokens = o.model == "bert" ? o.sizes->bert.vocabulary - 1 : o.sizes->gpt2.vocabulary;
  DEFT_CHECK(o.model == "transformer-xl" || tokens == data::kByteTokens, ValueError,
             "the weights know {} tokens, data set text is made of bytes; give tokens: deft infer -m {} -w FILE -i "
             "tokens.npy",
             tokens, o.model);
  return *o.sizes;
}

class TextTask : public Task {
 public:
  explicit TextTask(const TaskOptions& o)
      : options_(o), sizes_(byte_sizes(o)), text_(data::read_text(o.path.empty() ? data::bible_file() : o.path)) {
    const int64_t rows = text_.train.numel() / o.length;
    if (o.train_size > 0 && o.train_size < rows) text_.train = text_.train.narrow(0, 0, o.train_size * o.length + 1);
    // Of the text and its limit alone: the score does not depend on the batch.
    const int64_t most = o.test_size > 0 ? std::min(o.test_size, kTestRows) : kTestRows;
    test_rows_ = std::clamp<int64_t>(text_.test.numel() / (o.length + 1), 1, most);
  }
  int64_t batches_per_epoch() const override {
    return std::max<int64_t>(1, text_.train.numel() / (options_.batch * options_.length));
  }
  int64_t samples_per_epoch() const override { return batches_per_epoch() * options_.batch; }

  Score evaluate(const std::function<void(double)>& progress) override {
    nn::EvalGuard eval(model());
    NoGradGuard no_grad;
    int64_t batches = data::stream_batches(text_.test, test_rows_, options_.length);
    if (options_.test_size) batches = std::min(batches, std::max<int64_t>(1, options_.test_size / test_rows_));
    DEFT_CHECK(batches > 0, ValueError, "the text is too short: {} test tokens for {} rows of {}", text_.test.numel(),
               test_rows_, options_.length);
    Score sum;
    start_evaluation();
    for (int64_t i = 0; i < batches; ++i) {
      Score s = score(on_device(data::stream_text(text_.test, test_rows_, options_.length, i)), i);
      sum.loss += s.loss;
      sum.accuracy += s.accuracy;
      sum.samples += test_rows_;
      progress(static_cast<double>(i + 1) / static_cast<double>(batches));
    }
    sum.loss /= static_cast<double>(batches);
    sum.accuracy /= static_cast<double>(batches);
    return sum;
  }

  std::string identity() const override {
    uint32_t crc = 0;
    for (const Tensor& part : {text_.train, text_.test})
      crc = io::crc32(crc, {static_cast<const std::byte*>(part.data_ptr()), static_cast<size_t>(part.numel())});
    return fmt::format("content={:08x}", crc);
  }
  // Rows of the text one after the other, each with the tokens that follow.
  std::shared_ptr<const data::Dataset> samples(bool train) const override {
    const Tensor& text = train ? text_.train : text_.test;
    int64_t rows = (text.numel() - 1) / options_.length;
    int64_t most = train ? options_.train_size : options_.test_size;
    rows = std::min(rows, most ? most : kTextRows);
    DEFT_CHECK(rows >= 1, ValueError, "the text is too short: {} tokens for a row of {}", text.numel(),
               options_.length);
    Shape sizes{rows, options_.length};
    auto from = [&](int64_t at) { return text.narrow(0, at, rows * options_.length).to(DType::i64).reshape(sizes); };
    return std::make_shared<data::TensorDataset>(NamedTensors{{"tokens", from(0)}, {"following", from(1)}});
  }
  TaskBatch taken(const data::Batch& batch, DType, MemoryFormat) const override {
    return {batch["tokens"], batch["following"]};
  }

 protected:
  static constexpr int64_t kTextRows = 4096;  // samples() makes no more
  static constexpr int64_t kTestRows = 16;    // read side by side by evaluate()
  virtual void start_evaluation() {}
  virtual Score score(const data::TextBatch& batch, int64_t index) = 0;
  template <class M, class Options>
  std::unique_ptr<nn::Module> fresh(const Options& options) const {
    auto model = std::make_unique<M>(options);
    model->to(options_.device);
    return model;
  }
  data::TextBatch random_batch(int64_t epoch, int64_t index) const {
    uint64_t draw = static_cast<uint64_t>(epoch * batches_per_epoch() + index);
    return on_device(data::take_text(text_.train, options_.batch, options_.length, options_.seed, draw));
  }
  data::TextBatch on_device(const data::TextBatch& b) const {
    return {b.inputs.to(options_.device), b.targets.to(options_.device)};
  }
  static Score score_of(const Tensor& logits, const Tensor& targets) {
    Tensor flat = logits.reshape({-1, logits.size(-1)}).to(DType::f32), wanted = targets.reshape({-1});
    return {cross_entropy(flat, wanted).item(),
            static_cast<double>(count_right(flat, wanted)) / static_cast<double>(wanted.numel()), 0};
  }
  TaskOptions options_;
  ModelSizes sizes_;
  data::TextSet text_;
  int64_t test_rows_;
};

class Gpt2Task : public TextTask {
 public:
  explicit Gpt2Task(const TaskOptions& o) : TextTask(o), model_(sizes_.gpt2) { model_.to(o.device); }
  nn::Module& model() override { return model_; }
  std::unique_ptr<nn::Module> new_model() const override { return fresh<models::Gpt2>(sizes_.gpt2); }
  using Task::loss;
  TaskBatch batch(int64_t epoch, int64_t index) override {
    data::TextBatch b = random_batch(epoch, index);
    return {b.inputs, b.targets};
  }
  Tensor loss(const TaskBatch& b) override {
    return cross_entropy(model_(b.inputs).reshape({-1, data::kByteTokens}), b.targets.reshape({-1}));
  }
  Tensor outputs(const Tensor& inputs) override { return model_(inputs); }

 private:
  Score score(const data::TextBatch& b, int64_t) override { return score_of(answers(b.inputs), b.targets); }
  models::Gpt2 model_;
};

class BertTask : public TextTask {
 public:
  explicit BertTask(const TaskOptions& o) : TextTask(o), model_(sizes_.bert) { model_.to(o.device); }
  nn::Module& model() override { return model_; }
  std::unique_ptr<nn::Module> new_model() const override { return fresh<models::BertForMaskedLM>(sizes_.bert); }
  // One token in seven is hidden, always the same one of each row, so that samples do not depend on their batch.
  TaskBatch taken(const data::Batch& batch, DType, MemoryFormat) const override {
    const Tensor& tokens = batch["tokens"];
    Tensor hide = arange(tokens.size(1)).remainder(7).to(tokens.device()) == 3;
    return {tokens.masked_fill(hide, kMaskToken), tokens.masked_fill(!hide, -100)};
  }
  using Task::loss;
  TaskBatch batch(int64_t epoch, int64_t index) override {
    return hide_tokens(random_batch(epoch, index).inputs, static_cast<uint64_t>(epoch * batches_per_epoch() + index));
  }
  Tensor loss(const TaskBatch& b) override { return cross_entropy(flat(outputs(b.inputs)), b.targets); }
  Tensor outputs(const Tensor& inputs) override { return model_.logits(inputs); }

 private:
  Score score(const data::TextBatch& b, int64_t index) override {
    TaskBatch m = hide_tokens(b.inputs, ~static_cast<uint64_t>(index));
    Tensor logits = flat(answers(m.inputs)).to(DType::f32);
    double hidden = std::max(1.0, (m.targets >= 0).to(DType::f32).sum().item());
    return {cross_entropy(logits, m.targets).item(), static_cast<double>(count_right(logits, m.targets)) / hidden, 0};
  }
  static Tensor flat(const Tensor& logits) { return logits.reshape({-1, kMaskToken + 1}); }
  // One token in seven is hidden; -100 is no target.
  TaskBatch hide_tokens(const Tensor& tokens, uint64_t draw) {
    RngScope rng({options_.seed, draw});
    Tensor hide = rand(tokens.sizes(), {DType::f32, tokens.device()}) < 0.15;
    return {tokens.masked_fill(hide, kMaskToken), tokens.masked_fill(!hide, -100).reshape({-1})};
  }
  models::BertForMaskedLM model_;
};

class TransformerXLTask : public TextTask {
 public:
  explicit TransformerXLTask(const TaskOptions& o) : TextTask(o), model_(sizes_.transformer_xl) { model_.to(o.device); }
  nn::Module& model() override { return model_; }
  std::unique_ptr<nn::Module> new_model() const override { return fresh<models::TransformerXL>(sizes_.transformer_xl); }
  TaskBatch taken(const data::Batch& batch, DType, MemoryFormat) const override { return {batch["tokens"], {}}; }
  int64_t batches_per_epoch() const override {
    return data::stream_batches(text_.train, options_.batch, options_.length);
  }
  bool has_batches() const override { return false; }  // the loss depends on the memory
  using Task::loss;
  Tensor loss(int64_t, int64_t index) override {
    if (index == 0) memory_.clear();
    data::TextBatch b = on_device(data::stream_text(text_.train, options_.batch, options_.length, index));
    return model_.loss(b.inputs, b.targets, memory_).mean();
  }
  State state() const override {
    State s;
    for (size_t i = 0; i < memory_.size(); ++i) s.tensors.push_back({std::to_string(i), memory_[i]});
    return s;
  }
  void load_state(const State& s) override {
    memory_.clear();
    for (const NamedTensor& t : s.tensors) memory_.push_back(t.tensor.to(options_.device));
  }

 private:
  void start_evaluation() override { test_memory_.clear(); }
  Score score(const data::TextBatch& b, int64_t) override {
    Tensor hidden = model_.encode(b.inputs, test_memory_).reshape({-1, model_.options().hidden});
    return score_of(model_.softmax()(hidden), b.targets);
  }
  models::TransformerXL model_;
  models::TransformerXL::Memory memory_, test_memory_;
};

}  // namespace

TaskBatch Task::batch(int64_t, int64_t) {
  DEFT_FAIL(UnsupportedError, "the loss of this model needs more than a batch");
}
Tensor Task::loss(const TaskBatch&) { DEFT_FAIL(UnsupportedError, "the loss of this model needs more than a batch"); }
Tensor Task::outputs(const Tensor&) { DEFT_FAIL(UnsupportedError, "the answers of this model need its memory"); }
Tensor Task::test_inputs(int64_t) const {
  DEFT_FAIL(UnsupportedError, "this model takes tokens: deft infer -i FILE.npy, whole numbers [n, length]");
}
Tensor Task::normalize(const Tensor&) const { DEFT_FAIL(UnsupportedError, "this model takes no images"); }

bool is_text_model(const std::string& model) { return model == "gpt2" || model == "bert" || model == "transformer-xl"; }

std::vector<std::string> model_names() {
  return {"cnn", "mlp", "resnet18", "resnet50", "gpt2", "bert", "transformer-xl"};
}
std::vector<std::string> data_names() { return {"glyphs", "fashion", "mnist", "cifar", "images", "text"}; }

std::unique_ptr<Task> make_task(const TaskOptions& o) {
  bool text = o.data == "text";
  DEFT_CHECK(text == is_text_model(o.model), ValueError,
             "model {} learns {}, but data set {} has {}; choose another model or data set", o.model,
             is_text_model(o.model) ? "text" : "images", o.data, text ? "text" : "images");
  RngScope rng({o.seed, 0});  // first weights
  if (!text) return std::make_unique<ImageTask>(o);
  if (o.model == "gpt2") return std::make_unique<Gpt2Task>(o);
  if (o.model == "bert") return std::make_unique<BertTask>(o);
  return std::make_unique<TransformerXLTask>(o);
}

}  // namespace deft::cli
