#include "task_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "amp/autocast.h"
#include "base/note.h"
#include "model_file.h"

namespace deft::cli {

void add_data_flags(Command command, TaskOptions& o) {
  command.add_option("--path", o.path, "Folder or file of the data, where it is not in its usual place")
      .type_name("PATH");
  command.add_option("--length", o.length, "Tokens per row of text; default 128")
      .check(whole_number(2, 65536))
      .type_name("N");
  command.add_option("--train-size", o.train_size, "At most this many training samples; default: all")
      .check(whole_number(1, 1'000'000'000))
      .type_name("N");
  command.add_option("--test-size", o.test_size, "At most this many test samples; default: all")
      .check(whole_number(1, 1'000'000'000))
      .type_name("N");
}

void add_model_flag(Command command, TaskOptions& o, bool files) {
  const char* file = files ? ", or a checkpoint of deft train or a plan of deft compile" : "";
  command.add_option("-m,--model", o.model, fmt::format("{}{}; default cnn", fmt::join(model_names(), ", "), file))
      .check(files ? a_model() : one_of("model", model_names()))
      .type_name(files ? "NAME|FILE" : "NAME");
}

void add_task_flags(Command command, TaskOptions& o, bool files) {
  add_model_flag(command, o, files);
  command
      .add_option("-d,--data", o.data,
                  fmt::format("{}; default glyphs, which needs no file", fmt::join(data_names(), ", ")))
      .check(one_of("data set", data_names()))
      .type_name("NAME");
  command.add_option("-b,--batch", o.batch, "Batch size; default 128").check(whole_number(1, 65536)).type_name("N");
  add_data_flags(command, o);
  command.add_option("--image-size", o.image_size, "Side of the images of --data images; default 224")
      .check(whole_number(16, 4096))
      .type_name("N");
  command.add_option("--workers", o.workers, "Loader threads; default: chosen while it runs")
      .check(whole_number(0, data::kMaxWorkers))
      .type_name("N");
  command.add_option("--seed", o.seed, "Seed of weights, order and dropout; default 1")
      .check(whole_number(0, std::numeric_limits<int64_t>::max()))
      .type_name("N");
}

void add_on_error_flag(Command command, TaskOptions& o) {
  command
      .add_option(
          "--on-error",
          [&o](const std::string& word) { o.on_error = word == "skip" ? data::OnError::skip : data::OnError::raise; },
          "Samples that cannot be read: stop (default), exit code 3, or skip them, counted and named")
      .check(one_of("way", {"skip", "stop"}))
      .type_name("skip|stop");
}

void tell_left_out(const std::string& verb, const LeftOut& left_out) {
  if (left_out.count == 0) return;
  std::vector<std::string> different;  // an epoch repeats those of the one before
  for (const std::string& error : left_out.errors)
    if (std::ranges::find(different, error) == different.end()) different.push_back(error);
  print_note("{}: {} times a sample could not be read and was left out: {}\n", verb, left_out.count,
             fmt::join(different, "; "));
}

void add_amp_flag(Command command, std::string& amp) {
  command.add_option("--amp", amp, "Mixed precision of matmuls and convolutions: off (default), auto, bf16 or f16")
      .check(one_of("precision", {"off", "auto", "bf16", "f16"}))
      .type_name("off|auto|bf16|f16");
}

DType amp_dtype(const std::string& amp, bool quiet, Device device) {
  if (amp == "bf16") return DType::bf16;
  if (amp == "f16") return DType::f16;
  if (amp == "off") return DType::f32;
  AutocastChoice choice = choose_autocast(device);
  if (!quiet) print_note("amp: {}: {}\n", name_of(choice.dtype), choice.reason);
  return choice.dtype;
}

void add_threads_flag(Command command, CommonFlags& flags) {
  command.add_option("-t,--threads", flags.threads, "Threads; default: one per core")
      .check(whole_number(1, 1024))
      .type_name("N");
}

}  // namespace deft::cli
