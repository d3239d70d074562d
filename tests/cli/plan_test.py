"""`deft plan show` and `--plan` of train, eval and infer as a user runs them. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
DATA = ["-m", "cnn", "-d", "glyphs", "--train-size", "128", "--test-size", "96"]


def deft(*arguments):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300)


def result_of(*arguments):
    run = deft(*arguments, "-o", "json")
    assert run.returncode == 0, f"deft {' '.join(arguments)}: exit {run.returncode}\n{run.stderr}"
    return json.loads(run.stdout)["results"], run.stderr


class WithPlans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        run = deft("train", *DATA, "-b", "16", "-e", "6", "--out", str(cls.folder / "run"))
        assert run.returncode == 0, run.stderr
        cls.weights = str(max((cls.folder / "run").glob("*.safetensors")))

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def plan(self, **settings):
        plan = {"schema": 1, "kind": "deft plan", "workload": "cnn on glyphs, infer", **settings}
        path = self.folder / f"{len(os.listdir(self.folder))}.plan.json"
        path.write_text(json.dumps(plan))
        return str(path)


    def training_plan(self, **settings):
        return self.plan(workload="cnn on glyphs, train", **settings)


class Show(WithPlans):
    def test_in_words(self):
        path = self.plan(batch=64, grad_mode="inference", eval=True, layout="channels_last", autocast="bf16", threads=2,
                         compile={"on": True, "off_passes": ["fuse_rows"]}, machine="abacus, 1 thread")
        run = deft("plan", "show", path)
        self.assertEqual(run.returncode, 0, run.stderr)
        for words in ("cnn on glyphs, infer", "inference", "channels_last", "bf16", "64", "without fuse_rows"):
            self.assertIn(words, run.stdout)
        self.assertIn("measured on abacus, 1 thread", run.stderr)

    def test_json_is_the_plan(self):
        run = deft("plan", "show", self.plan(batch=7), "-o", "json")
        shown = json.loads(run.stdout)
        self.assertEqual((shown["schema"], shown["kind"], shown["batch"], shown["foreign"]), (1, "deft plan", 7, None))
        self.assertEqual(run.stderr, "")

    def test_what_is_no_plan_is_refused_with_the_key(self):
        for settings, word in (({"batch": 0}, "batch"), ({"batches": 3}, "batches"), ({"layout": "sideways"}, "layout"),
                               ({"schema": 2}, "schema"), ({"compile": {"on": True, "off_passes": ["magic"]}}, "magic")):
            path = self.plan(**settings)
            for arguments in (["plan", "show", path], ["infer", *DATA, "-w", self.weights, "--plan", path]):
                run = deft(*arguments)
                self.assertEqual((run.returncode, run.stdout), (3, ""), settings)
                self.assertIn(word, run.stderr)
        self.assertEqual(deft("plan", "show", str(self.folder / "none")).returncode, 3)


class Use(WithPlans):
    PLANS = ({"batch": 48}, {"layout": "channels_last", "batch": 32}, {"compile": {"on": True}, "batch": 40},
             {"autocast": "bf16", "batch": 96}, {"dtype": "bf16", "batch": 64},
             {"grad_mode": "inference", "eval": True, "workers": 1, "prefetch": 2, "batch": 32, "layout": "channels_last",
              "compile": {"on": True, "off_passes": ["fuse_rows"]}, "threads": 1})

    def test_infer_finds_the_same_classes(self):
        plain, _ = result_of("infer", *DATA, "-w", self.weights)
        for settings in self.PLANS:
            planned, said = result_of("infer", *DATA, "-w", self.weights, "--plan", self.plan(**settings))
            self.assertEqual(said, "", settings)
            exact = not {"autocast", "dtype"} & set(settings)
            if exact:
                self.assertEqual([r["class"] for r in planned], [r["class"] for r in plain], settings)
            apart = max(abs(a["probability"] - b["probability"]) for a, b in zip(plain, planned) if a["class"] == b["class"])
            self.assertLess(apart, 1e-5 if exact else 0.05, settings)
            self.assertGreater(apart, 0 if not exact else -1, settings)  # bf16 rounds: the plan was really used
            self.assertGreaterEqual(sum(a["class"] == b["class"] for a, b in zip(plain, planned)), 93, settings)

    def test_eval_finds_the_same_score(self):
        plain = result_of("eval", *DATA, "-w", self.weights)[0][0]
        self.assertGreater(plain["accuracy_percent"], 20)  # 5 by chance
        for settings in self.PLANS:
            planned = result_of("eval", *DATA, "-w", self.weights, "--plan", self.plan(**settings))[0][0]
            low = {"autocast", "dtype"} & set(settings)
            self.assertAlmostEqual(planned["test_loss"], plain["test_loss"], delta=0.02 if low else 1e-5)
            self.assertAlmostEqual(planned["accuracy_percent"], plain["accuracy_percent"], delta=2.5 if low else 0.01)
            self.assertEqual(planned["amp"], settings.get("autocast", settings.get("dtype", "f32")))

    def test_training_learns_the_same(self):
        flags = ["train", *DATA, "-e", "1"]
        plain = result_of(*flags, "-b", "32")[0][0]
        for settings in ({"layout": "channels_last"}, {"compile": {"on": True}}, {"workers": 1, "prefetch": 3},
                         {"compile": {"on": True, "off_passes": ["fuse_norms"]}, "layout": "channels_last"}):
            planned = result_of(*flags, "--plan", self.training_plan(batch=32, **settings))[0][0]
            self.assertEqual(planned["steps"], plain["steps"])
            self.assertAlmostEqual(planned["test_loss"], plain["test_loss"], delta=0.02 * plain["test_loss"], msg=str(settings))
        half = result_of(*flags, "--plan", self.training_plan(batch=32, autocast="bf16", compile={"on": True}))[0][0]
        self.assertEqual(half["amp"], "bf16")
        self.assertNotEqual(half["test_loss"], plain["test_loss"])
        self.assertAlmostEqual(half["test_loss"], plain["test_loss"], delta=0.1 * plain["test_loss"])
        # SGD, since AdamW does not notice gradients that are all too large.
        sgd = ["-b", "16", "--accumulate", "2", "--optimizer", "sgd", "--lr", "0.02"]
        accumulated = [result_of(*flags, *sgd, *more)[0][0]["test_loss"]
                       for more in ([], ["--plan", self.training_plan(batch=16, compile={"on": True})])]
        self.assertAlmostEqual(*accumulated, delta=0.005 * accumulated[0])

    def test_a_compiled_run_goes_on_as_itself_only(self):
        plan = self.training_plan(batch=32, compile={"on": True})
        flags = ["train", *DATA, "-e", "1", "--out", str(self.folder / "compiled")]
        self.assertEqual(deft(*flags, "--plan", plan).returncode, 0)
        self.assertEqual(deft(*flags, "--plan", plan, "--resume").returncode, 0)
        self.assertIn("belongs to another run", deft(*flags, "-b", "32", "--resume").stderr)

    def test_flags_win_and_say_so(self):
        path = self.plan(batch=64, autocast="bf16", threads=2, workers=1)
        rows, said = result_of("eval", *DATA, "-w", self.weights, "--plan", path, "--amp", "off", "-b", "8", "-t", "2")
        self.assertEqual(rows[0]["amp"], "f32")
        self.assertEqual(said, f"{path}: flags win over the plan: --batch 8 (plan: 64), --amp off (plan: bf16)\n")
        self.assertEqual(result_of("eval", *DATA, "-w", self.weights, "--plan", path, "-b", "8", "-q")[1], "")

    def test_what_does_not_fit_is_named(self):
        infer = self.plan(workload="", batch=32, grad_mode="inference", eval=True, dtype="bf16", buckets=[8, 16])
        said = result_of("train", *DATA, "-e", "1", "--plan", infer)[1]
        for words in ("grad mode inference", "weights in bf16", "buckets"):
            self.assertIn(words, said)
        other = self.plan(workload="mlp on fashion, infer", machine="abacus, 1 thread")
        said = result_of("eval", *DATA, "-w", self.weights, "--plan", other)[1]
        self.assertIn("measured for mlp on fashion, infer, this is cnn on glyphs", said)
        self.assertIn("measured on abacus", said)
        said = result_of("eval", *DATA, "-w", self.weights, "--plan", self.plan(workload="cnn on fashion, eval"))[1]
        self.assertIn("measured for cnn on fashion, eval, this is cnn on glyphs", said)
        run = deft("infer", *DATA, "--plan", other, "--plan-file", other)
        self.assertEqual(run.returncode, 2)

    def test_a_plan_of_a_test_is_none_for_training(self):
        for task in ("infer", "eval"):
            run = deft("train", *DATA, "-e", "1", "--plan", self.plan(workload=f"cnn on glyphs, {task}", batch=1))
            self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
            self.assertIn("deft doctor --task train", run.stderr)
        said = result_of("eval", *DATA, "-w", self.weights, "--plan", self.training_plan(batch=32))[1]
        self.assertIn("measured for training; deft doctor --task eval", said)
        self.assertEqual(result_of("eval", *DATA, "-w", self.weights, "--plan", self.plan(batch=32))[1], "")

    def test_text(self):
        text = self.folder / "text"
        text.write_text("the cat sat on the mat. " * 600)
        for model in ("gpt2", "bert", "transformer-xl"):
            flags = ["-m", model, "-d", "text", "--path", str(text), "--length", "24", "--test-size", "32"]
            path = self.plan(workload=f"{model} on text, train", batch=8, compile={"on": True})
            out = str(self.folder / model)
            trained, said = result_of("train", *flags, "-e", "1", "--plan", path, "--out", out)
            self.assertEqual("carries a memory" in said, model == "transformer-xl", said)
            plain = result_of("train", *flags, "-b", "8", "-e", "1")[0][0]
            self.assertAlmostEqual(trained[0]["test_loss"], plain["test_loss"], delta=0.05 * plain["test_loss"])
            weights = str(max(pathlib.Path(out).glob("*.safetensors")))
            scores = [result_of("eval", *flags, "-b", "8", "-q", "-w", weights, *more)[0][0]["test_loss"]
                      for more in ([], ["--plan", path])]
            self.assertAlmostEqual(*scores, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
