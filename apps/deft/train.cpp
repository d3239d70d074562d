// deft train
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/note.h"
#include "exit_code.h"
#include "output.h"
#include "plan_flags.h"
#include "runtime/parallel.h"
#include "stop_signal.h"
#include "task_flags.h"
#include "trainer.h"
#include "verbs.h"

namespace deft::cli {

namespace {

struct TrainFlags : CommonFlags {
  TrainOptions train;
  std::string plan_file, amp = "off", device = "cpu", log;
};

void add_flags(Command command, TrainFlags& f) {
  add_common_flags(command, f);
  add_threads_flag(command, f);
  add_task_flags(command, f.train.task);
  command.add_option("-e,--epochs", f.train.epochs, "Epochs; default 5")
      .check(whole_number(1, 1'000'000))
      .type_name("N");
  command.add_option("--optimizer", f.train.optimizer, "adamw (default) or sgd, with momentum 0.9")
      .check(one_of("optimizer", {"adamw", "sgd"}));
  command.add_option("--lr", f.train.lr, "Peak learning rate; default 0.003 for adamw, 0.1 for sgd")
      .check(number_from(0, false))
      .type_name("X");
  command
      .add_option("--weight-decay", f.train.weight_decay, "Weight decay, not applied to biases and norms; default 0.01")
      .check(number_from(0, true))
      .type_name("X");
  command.add_option("--schedule", f.train.schedule, "one-cycle (default), cosine or constant")
      .check(one_of("schedule", {"one-cycle", "cosine", "constant"}));
  add_amp_flag(command, f.amp);
  add_device_flag(command, f.device, "--device");
  add_plan_flag(command, f.plan_file);
  command.add_option("--accumulate", f.train.accumulate, "Batches per step; default 1")
      .check(whole_number(1, 100'000))
      .type_name("N");
  command.add_option("--clip", f.train.clip, "Clip the global gradient norm to this; default: none")
      .check(number_from(0, false))
      .type_name("X");
  command.add_option("--freeze", f.train.freeze, "Modules whose name begins with this do not train").type_name("NAME");
  auto at_most_all = [](const std::string& word) {
    return std::stod(word) <= 1 ? std::string() : fmt::format("found '{}', expected a part of 1, such as 0.92", word);
  };
  command.add_option("--target", f.train.target, "Stop when the test accuracy reaches this, 0 to 1")
      .check(number_from(0, false))
      .check(at_most_all)
      .type_name("X");
  command.add_option("--out", f.train.folder, "Folder for checkpoints; default: none are written").type_name("DIR");
  command.add_option("--save-every", f.train.save_every, "Steps between checkpoints; default: after every epoch")
      .check(whole_number(1, 1'000'000'000))
      .type_name("N");
  command.add_flag("--resume", f.train.resume, "Resume from the newest intact checkpoint in --out");
  command.add_flag("--overwrite", f.train.overwrite, "Delete the checkpoints of an earlier run in --out")
      .excludes(command.flag("--resume"));
  add_on_error_flag(command, f.train.task);
  command.add_option("--log", f.log, "File for one line of JSON per event").type_name("FILE");
}

bench::Json to_json(const TrainOptions& o, const TrainResult& r, int64_t parameters) {
  return bench::object("case", o.task.model, "data", o.task.data, "parameters", parameters, "amp",
                       std::string(name_of(o.amp)), "epochs", r.epochs, "steps", r.steps, "skipped_steps", r.skipped,
                       "left_out_samples", r.left_out.count, "test_loss", r.score.loss, "accuracy_percent",
                       100 * r.score.accuracy, "seconds", r.seconds, "samples_per_second", r.samples_per_second,
                       "checkpoint", r.checkpoint.empty() ? bench::Json() : bench::Json(r.checkpoint), "ended",
                       r.stopped   ? "stopped"
                       : r.reached ? "target reached"
                                   : "all epochs done");
}

// An unwritable log is reported at once and by the exit code; the run continues.
class Log {
 public:
  explicit Log(const std::string& path) : path_(path) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    if (!file_) throw SaveError(fmt::format("the log {} cannot be opened for writing", path));
  }
  void operator()(const std::string& line) {
    if (path_.empty() || failed_ || file_ << line << std::endl) return;
    failed_ = true;
    print_note("deft: the log {} cannot be written ({}); it ends here\n", path_, std::strerror(errno));
  }
  bool failed() const { return failed_; }

 private:
  std::string path_;
  std::ofstream file_;
  bool failed_ = false;
};

int run(TrainFlags& f, Command command) {
  watch_for_stop();
  check_folder(f.train);
  f.train.plan = plan_for(command, f.plan_file, PlanUse::train, f, f.train.task, f.amp);
  if (f.threads > 0) set_num_threads(f.threads);
  f.train.task.device = chosen_device(f.device);
  f.train.amp = amp_dtype(f.amp, f.quiet, f.train.task.device);
  Log log(f.log);
  bench::Report report;
  TrainResult result;
  {
    Progress progress("train", f.quiet);
    Trainer trainer(
        f.train, [&](const std::string& line) { log(line); }, [&](const std::string& what) { progress.show(what); });
    result = trainer.run();
    report.results.push_back(to_json(f.train, result, trainer.model().parameter_count()));
  }
  Presentation p;
  p.title = fmt::format("{} on {}", f.train.task.model, f.train.task.data);
  p.columns = {{"case", "model"},
               {"parameters", "parameters"},
               {"amp", "type"},
               {"epochs", "epochs"},
               {"steps", "steps"},
               {"test_loss", "test loss", 4},
               {"accuracy_percent", "test accuracy %", 2},
               {"seconds", "s", 1},
               {"samples_per_second", "samples/s", 0},
               {"checkpoint", "checkpoint"},
               {"ended", "ended"}};
  tell_left_out("train", result.left_out);
  int code = print_report(report, f, p);
  if (result.stopped) return stop_exit_code();
  if (log.failed() && code == kOk) return kUnsupported;
  return code == kOk && f.train.target > 0 && !result.reached ? kRegression : code;
}

}  // namespace

std::function<int()> add_train(Command command) {
  auto flags = std::make_shared<TrainFlags>();
  add_flags(command, *flags);
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
