#include "task.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/grad_mode.h"
#include "data/glyphs.h"
#include "data/image_set.h"
#include "data/order.h"
#include "data/text.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt2.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer_xl.h"

namespace deft::cli {

namespace {

struct ImageData {
  data::ImageSet train, test;
  data::Normalization normalization;
};

constexpr int64_t kGlyphTrain = 40'000, kGlyphTest = 8'000;

data::ImageSet first(data::ImageSet set, int64_t most) {
  if (most <= 0 || most >= set.size()) return set;
  return {set.images.narrow(0, 0, most), set.labels.narrow(0, 0, most), set.classes};
}

ImageData read_images(const TaskOptions& o) {
  ImageData d;
  if (o.data == "glyphs") {
    // Training and test pictures come from different streams.
    d.train = data::make_glyphs(2 * o.seed, o.train_size ? o.train_size : kGlyphTrain);
    d.test = data::make_glyphs(2 * o.seed + 1, o.test_size ? o.test_size : kGlyphTest);
    d.normalization = {0.5f, 0.25f};
    return d;
  }
  DEFT_CHECK(o.data == "fashion" || !o.path.empty(), ValueError, "data set {} needs --path, the folder of its files",
             o.data);
  bool cifar = o.data == "cifar";
  std::string folder = o.path.empty() ? data::fashion_folder() : o.path;
  d.train = first(cifar ? data::read_cifar(folder, true) : data::read_mnist(folder, true), o.train_size);
  d.test = first(cifar ? data::read_cifar(folder, false) : data::read_mnist(folder, false), o.test_size);
  d.normalization = cifar ? data::Normalization{0.473f, 0.251f} : data::Normalization{0.286f, 0.353f};
  return d;
}

std::unique_ptr<nn::Module> make_image_model(const std::string& name, const data::ImageSet& set) {
  int64_t channels = set.images.size(1), pixels = channels * set.images.size(2) * set.images.size(3);
  if (name == "mlp") return std::make_unique<models::Mlp>(std::vector<int64_t>{pixels, 256, 256, set.classes});
  if (name == "cnn")
    return std::make_unique<models::Cnn>(models::CnnOptions{.channels = channels, .classes = set.classes});
  models::ResNetOptions o = name == "resnet18" ? models::resnet18_options() : models::resnet50_options();
  o.channels = channels;
  o.classes = set.classes;
  o.small_input = set.images.size(2) <= 64;
  return std::make_unique<models::ResNet>(o);
}

int64_t count_right(const Tensor& logits, const Tensor& targets) {
  return (logits.argmax(-1) == targets).to(DType::i64).sum().item<int64_t>();
}

class ImageTask : public Task {
 public:
  explicit ImageTask(const TaskOptions& o) : options_(o), data_(read_images(o)) {
    DEFT_CHECK(data_.train.size() >= 1 && data_.test.size() >= 1, ValueError, "data set {} is empty", o.data);
    model_ = make_image_model(o.model, data_.train);
  }
  nn::Module& model() override { return *model_; }
  // The last batch of an epoch is left out where it is short: batch norm needs its usual number of pictures.
  int64_t batches_per_epoch() const override { return std::max<int64_t>(1, data_.train.size() / options_.batch); }
  int64_t samples_per_epoch() const override {
    return std::min(data_.train.size(), batches_per_epoch() * options_.batch);
  }

  Tensor loss(int64_t epoch, int64_t index) override {
    if (epoch != epoch_) {
      order_ = data::epoch_order(data_.train.size(), options_.seed, epoch);
      epoch_ = epoch;
    }
    std::vector<int64_t> rows = rows_of(order_, index);
    Tensor x = (*model_)(data::take_images(data_.train, rows, data_.normalization));
    return cross_entropy(x, data::take_labels(data_.train, rows));
  }

  Score evaluate(const std::function<void(double)>& progress) override {
    nn::EvalGuard eval(*model_);
    NoGradGuard no_grad;
    std::vector<int64_t> order(static_cast<size_t>(data_.test.size()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    Score score;
    int64_t right = 0;
    for (int64_t i = 0; i * options_.batch < data_.test.size(); ++i) {
      std::vector<int64_t> rows = rows_of(order, i);
      Tensor labels = data::take_labels(data_.test, rows);
      Tensor logits = (*model_)(data::take_images(data_.test, rows, data_.normalization)).to(DType::f32);
      score.loss += cross_entropy(logits, labels).item() * static_cast<double>(rows.size());
      right += count_right(logits, labels);
      score.samples += static_cast<int64_t>(rows.size());
      progress(static_cast<double>(score.samples) / static_cast<double>(data_.test.size()));
    }
    score.loss /= static_cast<double>(score.samples);
    score.accuracy = static_cast<double>(right) / static_cast<double>(score.samples);
    return score;
  }

  Tensor test_inputs(int64_t count) const override {
    std::vector<int64_t> rows(static_cast<size_t>(std::min(count, data_.test.size())));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    return data::take_images(data_.test, rows, data_.normalization);
  }
  Tensor normalize(const Tensor& bytes) const override {
    const data::Normalization& n = data_.normalization;
    return (bytes.to(DType::f32) / 255 - n.mean) / n.std;
  }

 private:
  std::vector<int64_t> rows_of(const std::vector<int64_t>& order, int64_t index) const {
    auto begin = std::min(order.size(), static_cast<size_t>(index * options_.batch));
    auto end = std::min(order.size(), begin + static_cast<size_t>(options_.batch));
    return {order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  TaskOptions options_;
  ImageData data_;
  std::unique_ptr<nn::Module> model_;
  std::vector<int64_t> order_;
  int64_t epoch_ = -1;
};

// Language models of a size that learns on a CPU in minutes. Tokens are bytes; BERT has one more, for what is hidden.
constexpr int64_t kMaskToken = data::kByteTokens;

class TextTask : public Task {
 public:
  explicit TextTask(const TaskOptions& o)
      : options_(o), text_(data::read_text(o.path.empty() ? data::bible_file() : o.path)) {
    test_rows_ = std::min<int64_t>(o.batch, 16);
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
      Score s = score(data::stream_text(text_.test, test_rows_, options_.length, i), i);
      sum.loss += s.loss;
      sum.accuracy += s.accuracy;
      sum.samples += test_rows_;
      progress(static_cast<double>(i + 1) / static_cast<double>(batches));
    }
    sum.loss /= static_cast<double>(batches);
    sum.accuracy /= static_cast<double>(batches);
    return sum;
  }

 protected:
  virtual void start_evaluation() {}
  virtual Score score(const data::TextBatch& batch, int64_t index) = 0;
  data::TextBatch random_batch(int64_t epoch, int64_t index) const {
    uint64_t draw = static_cast<uint64_t>(epoch * batches_per_epoch() + index);
    return data::take_text(text_.train, options_.batch, options_.length, options_.seed, draw);
  }
  static Score score_of(const Tensor& logits, const Tensor& targets) {
    Tensor flat = logits.reshape({-1, logits.size(-1)}).to(DType::f32), wanted = targets.reshape({-1});
    return {cross_entropy(flat, wanted).item(),
            static_cast<double>(count_right(flat, wanted)) / static_cast<double>(wanted.numel()), 0};
  }
  TaskOptions options_;
  data::TextSet text_;
  int64_t test_rows_;
};

class Gpt2Task : public TextTask {
 public:
  explicit Gpt2Task(const TaskOptions& o) : TextTask(o), model_(byte_gpt2_options()) {}
  nn::Module& model() override { return model_; }
  Tensor loss(int64_t epoch, int64_t index) override {
    data::TextBatch b = random_batch(epoch, index);
    return cross_entropy(model_(b.inputs).reshape({-1, data::kByteTokens}), b.targets.reshape({-1}));
  }

 private:
  Score score(const data::TextBatch& b, int64_t) override { return score_of(model_(b.inputs), b.targets); }
  models::Gpt2 model_;
};

class BertTask : public TextTask {
 public:
  explicit BertTask(const TaskOptions& o)
      : TextTask(o),
        model_({.vocabulary = data::kByteTokens + 1,
                .hidden = 192,
                .layers = 4,
                .heads = 6,
                .intermediate = 768,
                .positions = std::max<int64_t>(o.length, 256),
                .dropout = 0,
                .attention_dropout = 0}) {}
  nn::Module& model() override { return model_; }
  Tensor loss(int64_t epoch, int64_t index) override {
    return masked_loss(random_batch(epoch, index).inputs, static_cast<uint64_t>(epoch * batches_per_epoch() + index))
        .first;
  }

 private:
  Score score(const data::TextBatch& b, int64_t index) override {
    auto [value, right] = masked_loss(b.inputs, ~static_cast<uint64_t>(index));
    return {value.item(), right, 0};
  }
  // The loss and the part of right answers where one token in seven is hidden.
  std::pair<Tensor, double> masked_loss(const Tensor& tokens, uint64_t draw) {
    RngScope rng({options_.seed, draw});
    Tensor hide = rand(tokens.sizes()) < 0.15;
    Tensor logits = model_.logits(tokens.masked_fill(hide, kMaskToken)).reshape({-1, kMaskToken + 1});
    Tensor targets = tokens.masked_fill(!hide, -100).reshape({-1});
    double count = std::max(1.0, hide.to(DType::f32).sum().item());
    return {cross_entropy(logits, targets), static_cast<double>(count_right(logits, targets)) / count};
  }
  models::BertForMaskedLM model_;
};

class TransformerXLTask : public TextTask {
 public:
  explicit TransformerXLTask(const TaskOptions& o)
      : TextTask(o),
        model_({.vocabulary = data::kByteTokens,
                .cutoffs = {128},
                .hidden = 192,
                .layers = 4,
                .heads = 6,
                .head_size = 32,
                .intermediate = 768,
                .memory = o.length,
                .dropout = 0}) {}
  nn::Module& model() override { return model_; }
  int64_t batches_per_epoch() const override {
    return data::stream_batches(text_.train, options_.batch, options_.length);
  }
  Tensor loss(int64_t, int64_t index) override {
    if (index == 0) memory_.clear();
    data::TextBatch b = data::stream_text(text_.train, options_.batch, options_.length, index);
    return model_.loss(b.inputs, b.targets, memory_).mean();
  }
  State state() const override {
    State s;
    for (size_t i = 0; i < memory_.size(); ++i) s.tensors.push_back({std::to_string(i), memory_[i]});
    return s;
  }
  void load_state(const State& s) override {
    memory_.clear();
    for (const NamedTensor& t : s.tensors) memory_.push_back(t.tensor);
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

bool is_text_model(const std::string& model) { return model == "gpt2" || model == "bert" || model == "transformer-xl"; }

}  // namespace

models::Gpt2Options byte_gpt2_options() {
  return {.vocabulary = data::kByteTokens,
          .positions = kTextPositions,
          .hidden = 192,
          .layers = 4,
          .heads = 6,
          .dropout = 0};
}

Tensor Task::test_inputs(int64_t) const { DEFT_FAIL(UnsupportedError, "infer takes models of pictures"); }
Tensor Task::normalize(const Tensor&) const { DEFT_FAIL(UnsupportedError, "infer takes models of pictures"); }

std::vector<std::string> model_names() {
  return {"cnn", "mlp", "resnet18", "resnet50", "gpt2", "bert", "transformer-xl"};
}
std::vector<std::string> data_names() { return {"glyphs", "fashion", "mnist", "cifar", "text"}; }

std::unique_ptr<Task> make_task(const TaskOptions& o) {
  bool text = o.data == "text";
  DEFT_CHECK(text == is_text_model(o.model), ValueError,
             "model {} learns {}, data set {} has {}; choose another of the two", o.model,
             is_text_model(o.model) ? "text" : "pictures", o.data, text ? "text" : "pictures");
  RngScope rng({o.seed, 0});  // first weights
  if (!text) return std::make_unique<ImageTask>(o);
  if (o.model == "gpt2") return std::make_unique<Gpt2Task>(o);
  if (o.model == "bert") return std::make_unique<BertTask>(o);
  return std::make_unique<TransformerXLTask>(o);
}

}  // namespace deft::cli
