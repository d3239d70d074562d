"""`deft compile` and `deft infer --plan` as a user runs them. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
QUICK = ["-m", "mlp", "-d", "glyphs", "--train-size", "256", "--test-size", "70", "-b", "32", "-t", "1"]


def deft(*arguments):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300)


def result_of(*arguments):
    run = deft(*arguments, "-o", "json")
    assert run.returncode == 0, f"deft {' '.join(arguments)}: exit {run.returncode}\n{run.stderr}"
    return json.loads(run.stdout)["results"]


class Compile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = cls.holder.name
        result_of("train", *QUICK, "-e", "1", "--out", cls.folder)
        cls.weights = str(max(pathlib.Path(cls.folder).glob("*.safetensors")))

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def compile(self, *more):
        path = os.path.join(self.folder, "a.plan")
        return path, result_of("compile", *QUICK, "-w", self.weights, "--out", path, *more)

    def test_a_plan_gives_the_model_s_answers(self):
        path, rows = self.compile()
        self.assertEqual(sorted(row["batch"] for row in rows), [1, 32])
        for row in rows:
            self.assertEqual(row["case"], "mlp")
            self.assertGreater(row["kernels"], 0)
        by_model = result_of("infer", *QUICK, "-w", self.weights, "--top", "2")
        by_plan = result_of("infer", "--plan", path, "-d", "glyphs", "--test-size", "70", "-t", "1", "--top", "2")
        self.assertEqual(len(by_plan), 140)  # two whole batches and six single samples
        self.assertEqual([r["class"] for r in by_plan], [r["class"] for r in by_model])
        for a, b in zip(by_plan, by_model):
            self.assertAlmostEqual(a["probability"], b["probability"], places=4)

    def test_precisions(self):
        for more in (["--amp", "bf16"], ["--half"]):
            path, _ = self.compile(*more)
            self.assertEqual(len(result_of("infer", "--plan", path, "--test-size", "33")), 33, more)

    def test_bad_files_and_flags(self):
        path, _ = self.compile()
        whole = pathlib.Path(path).read_bytes()
        broken = os.path.join(self.folder, "broken.plan")
        for data, word in ((whole[:-5], "broken.plan"), (whole[:-5] + b"\0" * 5, "damaged"), (b"", "broken.plan")):
            pathlib.Path(broken).write_bytes(data)
            run = deft("infer", "--plan", broken)
            self.assertEqual(run.returncode, 3, run.stderr)
            self.assertIn(word, run.stderr)
        run = deft("infer", "--plan", self.weights)
        self.assertEqual(run.returncode, 3)
        self.assertIn("no plan of Deft", run.stderr)
        self.assertEqual(deft("infer", "-d", "glyphs").returncode, 2)
        self.assertEqual(deft("infer", "-w", self.weights, "--plan", path).returncode, 2)
        self.assertEqual(deft("infer", "--plan-file", path, "--test-size", "1").returncode, 0)  # its older name
        for verb in ("train", "eval"):
            run = deft(verb, *QUICK, *([] if verb == "train" else ["-w", self.weights]), "--plan", path)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn("deft infer --plan", run.stderr)
        self.assertEqual(deft("compile", *QUICK, "-w", self.weights).returncode, 2)
        run = deft("compile", *QUICK, "-w", self.weights, "--out", "/no/such/folder/a.plan")
        self.assertEqual(run.returncode, 3)


if __name__ == "__main__":
    unittest.main()
