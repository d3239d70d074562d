"""`deft train`, `eval`, `infer`, `generate` and `bench models` as a user runs them. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DEFT = os.environ["DEFT_CLI"]
QUICK = ["-m", "mlp", "-d", "glyphs", "--train-size", "512", "--test-size", "128", "-b", "32", "-t", "1"]


def deft(*arguments):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300)


def result_of(*arguments):
    run = deft(*arguments, "-o", "json")
    assert run.returncode == 0, f"deft {' '.join(arguments)}: exit {run.returncode}\n{run.stderr}"
    return json.loads(run.stdout)["results"]


def newest(folder):
    return str(max(pathlib.Path(folder).glob("*.safetensors")))


def events_of(log):
    """The whole lines; the last one may be on its way."""
    return [json.loads(line) for line in pathlib.Path(log).read_text().splitlines(True) if line.endswith("\n")]


class InFolder(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = self.holder.name

    def tearDown(self):
        self.holder.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, *more):
        return result_of("train", *QUICK, *more)[0]


class Train(InFolder):
    def test_learns_and_says_so(self):
        row = self.train("-e", "8", "--log", self.path("log"))
        self.assertGreater(row["accuracy_percent"], 15)  # 5 by chance
        self.assertEqual((row["epochs"], row["steps"]), (8, 128))
        self.assertEqual([e["epoch"] for e in events_of(self.path("log")) if e["event"] == "epoch"], list(range(1, 9)))

    def test_target_decides_the_exit_code(self):
        self.assertEqual(deft("train", *QUICK, "-e", "1", "--target", "0.01").returncode, 0)
        self.assertEqual(deft("train", *QUICK, "-e", "1", "--target", "1").returncode, 1)

    def test_settings_take_part(self):
        plain = self.train("-e", "1")["test_loss"]
        for more in (["--amp", "bf16"], ["--amp", "f16"], ["--accumulate", "2"], ["--clip", "0.1"], ["--seed", "2"],
                     ["--optimizer", "sgd"], ["--freeze", "layers.0"], ["--lr", "0.01"], ["--schedule", "cosine"],
                     ["--weight-decay", "1"]):
            self.assertNotEqual(self.train("-e", "1", *more)["test_loss"], plain, more)
        self.assertEqual(self.train("-e", "1")["test_loss"], plain)

    def test_threads_do_not_change_the_result(self):
        a = result_of("train", *QUICK, "-e", "1")[0]
        b = result_of("train", *QUICK[:-2], "-t", "2", "-e", "1")[0]
        self.assertEqual(a["test_loss"], b["test_loss"])

    def test_bad_combinations(self):
        for arguments, word in ((["-m", "gpt2", "-d", "glyphs"], "learns text"), (["-d", "mnist"], "--path"),
                                ([*QUICK, "--resume"], "--out"), ([*QUICK, "--freeze", "nothing"], "no module"),
                                ([*QUICK, "--accumulate", "1000"], "--accumulate")):
            run = deft("train", *arguments)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(word, run.stderr)
        self.assertEqual(deft("train", "-d", "mnist", "--path", self.folder).returncode, 3)

    def test_numbers_that_are_none_are_usage_errors(self):
        for flag, words in (("--lr", ["abc", "0", "-1", "1e", "0x1p3", "nan", "inf", "1e400", "0,1", "1 2", "+"]),
                            ("--weight-decay", ["abc", "-1", "nan", "inf", "1e400"]), ("--clip", ["abc", "0", "-1", "nan", "inf"]),
                            ("--target", ["abc", "0", "nan", "92"]), ("--epochs", ["abc", "0", "-1", "1.5", "1e3", "99999999999999999999"]),
                            ("--accumulate", ["abc", "0", "2.5"]), ("--save-every", ["abc", "0", "-5"]), ("-b", ["abc", "0", "1e2"]),
                            ("--seed", ["abc", "-1", "1.5", "99999999999999999999999"]), ("--train-size", ["abc", "-1"]),
                            ("--test-size", ["abc", "-1"]), ("--threads", ["abc", "0", "-1"])):
            for word in words:
                run = deft("train", "-m", "mlp", "-d", "glyphs", f"{flag}={word}")
                self.assertEqual((run.returncode, run.stdout), (2, ""), f"{flag}={word}: {run.stderr}")
                self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
                self.assertIn("expected", run.stderr, f"{flag}={word}")

    def test_numbers_that_go_bad_are_named(self):
        run = deft("train", *QUICK, "--optimizer", "sgd", "--lr", "1e30", "--schedule", "constant", "--out", self.path("run"))
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, "layers|linear|cross_entropy")

    def test_numbers_that_go_bad_end_the_run_and_lose_nothing(self):
        # Whatever shows first: a loss, a gradient, a weight or the score of the test set.
        for lr in ("1e6", "1e19", "1e25", "1e38"):
            for more in (["--optimizer", "sgd", "-e", "2"], ["--optimizer", "adamw", "-e", "2"], ["--optimizer", "sgd", "-e", "1", "--accumulate", "16"]):
                out = self.path(f"run{lr}{len(os.listdir(self.folder))}")
                run = deft("train", *QUICK, "--schedule", "constant", "--lr", lr, "--out", out, *more, "-o", "json")
                if run.returncode == 0:  # then all of it is finite
                    self.assertTrue(abs(json.loads(run.stdout)["results"][0]["test_loss"]) < 1e38)
                    continue
                self.assertEqual(run.returncode, 1, run.stderr)
                self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
                self.assertRegex(run.stderr, "finite|is nan|is inf|is -nan")
                if "the last good state is in" in run.stderr:
                    self.assertIn(newest(out), run.stderr)
                    weights = result_of("eval", *QUICK, "-w", newest(out))[0]  # whole; its numbers may be large
                    self.assertEqual(weights["samples"], 128)

    def test_a_gradient_that_is_not_finite_saves_the_steps_before_it(self):
        run = deft("train", *QUICK, "--optimizer", "sgd", "--lr", "1e12", "--schedule", "constant", "--out", self.path("run"))
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("the last good state is in " + newest(self.path("run")), run.stderr)


class Resume(InFolder):
    def states(self, folder):
        return pathlib.Path(newest(folder)).read_bytes()

    def test_stopped_at_random_steps_and_resumed_is_the_same_run(self):  # FI15, FI18
        common = ["-e", "3", "--save-every", "5"]
        self.train(*common, "--out", self.path("straight"))
        expected = self.states(self.path("straight"))
        chance = random.Random(1)
        for trial in range(3):
            out, code = self.path(f"run{trial}"), None
            while code != 0:
                workers = str(chance.choice([0, 1, 4]))  # FI16
                process = subprocess.Popen([DEFT, "train", *QUICK, *common, "--out", out, "--resume", "--workers", workers,
                                            "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                time.sleep(chance.uniform(0.02, 0.4))
                process.send_signal(chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL]))
                text, errors = process.communicate(timeout=120)
                code = process.returncode
                self.assertIn(code, (0, 143, 130, -9, -15, -2), errors)
            self.assertEqual(json.loads(text)["results"][0]["steps"], 48)
            self.assertEqual(self.states(out), expected)

    def test_signals_save_and_say_so(self):
        for sent, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGXFSZ, 153)):
            out = self.path(f"run{code}")
            process = subprocess.Popen([DEFT, "train", *QUICK, "-e", "100000", "--out", out, "--save-every", "20", "-o", "json"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while not list(pathlib.Path(out).glob("*.safetensors")):
                time.sleep(0.01)
            process.send_signal(sent)
            text, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code, errors)
            row = json.loads(text)["results"][0]
            self.assertEqual(row["ended"], "stopped")
            self.assertEqual(row["checkpoint"], newest(out))

    def test_another_configuration_is_refused(self):
        self.train("-e", "1", "--out", self.path("run"))
        run = deft("train", *QUICK, "-e", "1", "--lr", "0.5", "--out", self.path("run"), "--resume")
        self.assertEqual(run.returncode, 2)
        self.assertIn("belongs to another run: lr is 0 there, 0.5 here\n", run.stderr)

    def test_other_data_is_another_run(self):
        texts = [self.path("a"), self.path("b"), self.path("moved")]
        for path, word in zip(texts, ("cat", "dog", "cat")):
            pathlib.Path(path).write_text(f"the {word} sat on the mat. " * 600)
        common = ["train", "-m", "gpt2", "-d", "text", "--length", "16", "-b", "8", "-e", "1", "--train-size", "16",
                  "--test-size", "16", "--out", self.path("run")]
        self.assertEqual(deft(*common, "--path", texts[0]).returncode, 0)
        run = deft(*common, "--path", texts[1], "--resume")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertRegex(run.stderr, "belongs to another run: content is [0-9a-f]{8} there, [0-9a-f]{8} here\n")
        self.assertEqual(deft(*common, "--path", texts[2], "--resume").returncode, 0)  # the same, elsewhere

    def test_a_used_folder_is_not_written_over(self):
        self.train("-e", "1", "--out", self.path("run"))
        before = self.states(self.path("run"))
        run = deft("train", *QUICK, "-e", "1", "--seed", "2", "--out", self.path("run"))
        self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
        for word in ("--resume", "--overwrite", newest(self.path("run"))):
            self.assertIn(word, run.stderr)
        self.assertEqual(self.states(self.path("run")), before)
        shorter = ["64" if word == "512" else word for word in QUICK]  # two steps an epoch
        result_of("train", *shorter, "-e", "2", "--out", self.path("run"), "--overwrite")
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["step-0000000002.safetensors", "step-0000000004.safetensors"])
        self.assertEqual(deft("train", *QUICK, "--out", self.path("run"), "--overwrite", "--resume").returncode, 2)
        self.assertEqual(deft("train", *QUICK, "--overwrite").returncode, 2)
        os.mkdir(self.path("empty"))
        self.train("-e", "1", "--out", self.path("empty"))

    def test_what_a_resume_resumed_is_the_same_run(self):  # FI18
        common = ["-e", "4", "--out"]
        self.train(*common, self.path("straight"))
        for stop in (10, 25, 40, 55):  # steps of 64; a run that ends there by itself
            self.stop_after(stop, *common, self.path("run"), "--resume")
        self.train(*common, self.path("run"), "--resume")
        self.assertEqual(self.states(self.path("run")), self.states(self.path("straight")))

    def stop_after(self, step, *more):
        """Ends a run by SIGTERM when its log tells of a checkpoint of this step or a later one."""
        log = pathlib.Path(self.path(f"log{step}"))
        process = subprocess.Popen([DEFT, "train", *QUICK, *more, "--save-every", "1", "--log", log, "-q"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not log.exists() or not any(e["event"] == "saved" and e["step"] >= step for e in events_of(log)):
            self.assertIsNone(process.poll(), "ended before it was stopped")
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 143), errors)

    def test_the_last_checkpoint_is_whole_when_a_signal_ended_the_run(self):
        self.stop_after(3, "-e", "1000", "--out", self.path("run"))
        saved = [e for e in events_of(self.path("log3")) if e["event"] == "saved"]
        self.assertEqual(saved[-1]["path"], newest(self.path("run")))
        self.assertEqual([e["step"] for e in saved], sorted({e["step"] for e in saved}))
        self.assertEqual(len(os.listdir(self.path("run"))), 2)  # no temporary file

    def test_nohup_is_respected(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        process = subprocess.Popen([DEFT, "train", *QUICK, "-e", "2", "--log", self.path("log"), "-o", "json"], preexec_fn=ignore,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.send_signal(signal.SIGHUP)
        text, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(json.loads(text)["results"][0]["ended"], "all epochs done")

    def test_a_disk_that_is_full_ends_the_run_with_the_reason(self):
        limited = "import resource, signal, os, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); " \
                  "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)); os.execv(sys.argv[1], sys.argv[1:])"
        run = subprocess.run([sys.executable, "-c", limited, DEFT, "train", *QUICK, "-e", "1", "--out", self.path("run")],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertIn("bytes are needed", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertEqual(os.listdir(self.path("run")), [])

    def test_a_missing_section_is_an_error(self):  # FI19
        self.train("-e", "1", "--out", self.path("run"))
        file = pathlib.Path(newest(self.path("run")))
        data = file.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        del header["__metadata__"]["value.run.rng_seed"]

        def resume():
            text = json.dumps(header, separators=(",", ":")).encode()
            file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
            return deft("train", *QUICK, "-e", "1", "--out", self.path("run"), "--resume")

        run = resume()
        self.assertEqual(run.returncode, 3, run.stderr)
        header["__metadata__"]["deft.crc32"] = re.search("is ([0-9a-f]{8}) where", run.stderr).group(1)
        run = resume()
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("rng_seed", run.stderr)

    def test_damaged_checkpoints_are_skipped(self):
        self.train("-e", "2", "--out", self.path("run"))
        file = pathlib.Path(newest(self.path("run")))
        file.write_bytes(file.read_bytes()[:-7])
        row = self.train("-e", "2", "--out", self.path("run"), "--resume", "--log", self.path("log"))
        self.assertEqual(row["steps"], 32)
        self.assertIn("skipped_checkpoint", pathlib.Path(self.path("log")).read_text())


class Use(InFolder):
    def test_eval_and_infer_agree_with_training(self):
        trained = self.train("-e", "2", "--out", self.path("run"))
        weights = newest(self.path("run"))
        row = result_of("eval", *QUICK, "-w", weights)[0]
        self.assertEqual(row["test_loss"], trained["test_loss"])
        rows = result_of("infer", *QUICK, "-w", weights, "--top", "2")
        self.assertEqual(len(rows), 256)
        self.assertGreaterEqual(rows[0]["probability"], rows[1]["probability"])
        half = result_of("infer", *QUICK, "-w", weights, "--half")
        same = sum(a["class"] == b["class"] for a, b in zip(rows[::2], half))
        self.assertGreater(same, 100)

    def test_weights_of_another_model_are_refused(self):
        self.train("-e", "1", "--out", self.path("run"))
        run = deft("eval", "-m", "cnn", "-d", "glyphs", "--train-size", "32", "--test-size", "32", "-w", newest(self.path("run")))
        self.assertEqual(run.returncode, 2)
        self.assertIn("looks like weights of mlp", run.stderr)
        self.assertEqual(run.stderr.count(" is missing") + run.stderr.count(" is not in the model"), 5, run.stderr)
        self.assertLess(len(run.stderr), 700)
        pathlib.Path(self.path("bad.safetensors")).write_bytes(b"\xff" * 20)
        run = deft("eval", *QUICK, "-w", self.path("bad.safetensors"))
        self.assertEqual(run.returncode, 3)

    def test_train_size_is_honoured(self):
        text = self.path("text")
        pathlib.Path(text).write_text("the cat sat on the mat. " * 2000)
        for model in ("gpt2", "transformer-xl"):
            row = result_of("train", "-m", model, "-d", "text", "--path", text, "--length", "16", "-b", "8", "-e", "1",
                            "--train-size", "40", "--test-size", "16")[0]
            self.assertIn(row["steps"], (4, 5), model)  # of 43,200 tokens: 337
            self.assertEqual(row["left_out_samples"], 0)

    def test_language_models(self):
        text = self.path("text")
        pathlib.Path(text).write_text("the cat sat on the mat. " * 2000)
        for model in ("gpt2", "bert", "transformer-xl"):
            row = result_of("train", "-m", model, "-d", "text", "--path", text, "--length", "24", "-b", "8", "-e", "1",
                            "--test-size", "64", "--out", self.path(model))[0]
            self.assertGreater(row["accuracy_percent"], 15, model)
            # A score is one of the weights and the text: the batch has no part in it, and the file says the rest.
            scores = [result_of("eval", "-w", newest(self.path(model)), "--path", text, "--test-size", "64", "-b", b)[0]
                      for b in ("1", "8", "100")]
            self.assertEqual({(s["test_loss"], s["accuracy_percent"], s["case"]) for s in scores},
                             {(row["test_loss"], row["accuracy_percent"], model)})
        for amp in ("bf16", "auto"):
            run = deft("generate", "-w", newest(self.path("gpt2")), "-p", "the cat", "-n", "8", "--amp", amp, "-q")
            self.assertEqual(run.returncode, 0, run.stderr)
        run = deft("generate", "-w", newest(self.path("gpt2")), "-p", "the cat", "-n", "30", "--temperature", "0")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(run.stdout.startswith("the cat"))
        self.assertEqual(deft("generate", "-w", newest(self.path("gpt2")), "-n", "5000").returncode, 2)

    def test_bench_models(self):
        rows = result_of("bench", "models", "-m", "mlp", "-b", "4", "-r", "2", "-t", "1")
        by = {(r["pass"], r["mode"], r["type"]): r for r in rows}
        self.assertEqual(len(by), 9)
        train, grad, without = by["train", "grad", "f32"], by["validate", "grad", "f32"], by["validate", "no_grad", "f32"]
        self.assertGreater(train["saved_for_backward_mb"], 0)
        self.assertGreater(grad["saved_for_backward_mb"], 0)
        self.assertEqual(without["saved_for_backward_mb"], 0)
        self.assertGreater(train["peak_mb_by_category"]["gradient"], 0)

    def test_bench_models_tables(self):
        rows = result_of("bench", "models", "--tables", "-m", "mlp,cnn", "-b", "16", "-r", "3", "-t", "1")
        modes = [r for r in rows if r["table"] == "modes"]
        self.assertEqual([r["what"] for r in modes], ["training with gradients", "validation with gradients",
                                                      "validation in no_grad", "inference in no_grad, bf16"])
        self.assertEqual({(r["case"], r["epoch_samples"]) for r in modes}, {("mlp", 48)})
        self.assertGreater(modes[0]["peak_mb"], modes[1]["peak_mb"])
        self.assertGreater(modes[2]["peak_mb"], modes[3]["peak_mb"])
        self.assertEqual(modes[0]["times_training"], 1)
        families = [r for r in rows if r["table"] == "families"]
        self.assertEqual([(r["case"], r["type"]) for r in families],
                         [("mlp", "f32"), ("mlp", "bf16"), ("cnn", "f32"), ("cnn", "bf16")])
        for row in families:
            self.assertAlmostEqual(row["samples_per_second"], 16e3 / row["p50_ms"], delta=row["samples_per_second"] / 50)
        text = deft("bench", "models", "--tables", "-m", "mlp", "-b", "2", "-r", "1", "-q").stdout
        self.assertEqual(text.count("\n|--"), 2, text)
        self.assertEqual(deft("bench", "models", "--tables", "--peer", DEFT).returncode, 2)


if __name__ == "__main__":
    unittest.main()
