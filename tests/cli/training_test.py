"""`deft train`, `eval`, `infer`, `generate` and `bench models` as a user runs them. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import random
import signal
import subprocess
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
        events = [json.loads(line) for line in pathlib.Path(self.path("log")).read_text().splitlines()]
        self.assertEqual([e["epoch"] for e in events if e["event"] == "epoch"], list(range(1, 9)))

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

    def test_numbers_that_go_bad_are_named(self):
        run = deft("train", *QUICK, "--optimizer", "sgd", "--lr", "1e30", "--schedule", "constant", "--out", self.path("run"))
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, "layers|linear|cross_entropy")


class Resume(InFolder):
    def states(self, folder):
        return pathlib.Path(newest(folder)).read_bytes()

    def test_stopped_at_random_steps_and_resumed_is_the_same_run(self):
        common = ["-e", "3", "--save-every", "5"]
        self.train(*common, "--out", self.path("straight"))
        expected = self.states(self.path("straight"))
        chance = random.Random(1)
        for trial in range(3):
            out, steps = self.path(f"run{trial}"), 0
            while steps < 48:
                process = subprocess.Popen([DEFT, "train", *QUICK, *common, "--out", out, "--resume", "-o", "json"],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                time.sleep(chance.uniform(0.02, 0.4))
                process.send_signal(chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL]))
                text, errors = process.communicate(timeout=120)
                self.assertIn(process.returncode, (0, 143, 130, -9, -15, -2), errors)
                if process.returncode in (0, 143, 130):
                    steps = json.loads(text)["results"][0]["steps"]
            self.assertEqual(self.states(out), expected)

    def test_signals_save_and_say_so(self):
        for sent, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
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
        self.assertIn("belongs to another run", run.stderr)

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
        self.assertIn("missing", run.stderr)
        pathlib.Path(self.path("bad.safetensors")).write_bytes(b"\xff" * 20)
        run = deft("eval", *QUICK, "-w", self.path("bad.safetensors"))
        self.assertEqual(run.returncode, 3)

    def test_language_models(self):
        text = self.path("text")
        pathlib.Path(text).write_text("the cat sat on the mat. " * 2000)
        for model in ("gpt2", "bert", "transformer-xl"):
            row = result_of("train", "-m", model, "-d", "text", "--path", text, "--length", "24", "-b", "8", "-e", "1",
                            "--test-size", "64", "--out", self.path(model))[0]
            self.assertGreater(row["accuracy_percent"], 15, model)
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


if __name__ == "__main__":
    unittest.main()
