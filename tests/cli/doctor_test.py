"""`deft doctor` as a user runs it. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

DEFT = os.environ["DEFT_CLI"]
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "apps/deft/doctor_workload.cpp"
QUICK = ["-m", "mlp", "-d", "glyphs", "--train-size", "512", "--test-size", "256", "--budget", "4s"]
FINDINGS, USAGE, UNSUPPORTED = 4, 2, 3


def deft(*arguments, **more):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300, **more)


def line_of(text):
    return 1 + next(i for i, line in enumerate(SOURCE.read_text().splitlines()) if text in line)


class Doctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.run_ = deft("doctor", *QUICK, "--html", "page.html", "-o", "json", cwd=cls.holder.name)
        cls.report = json.loads(cls.run_.stdout) if cls.run_.stdout else None

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def path(self, name):
        return os.path.join(self.holder.name, name)

    def test_findings_decide_the_exit_code(self):
        self.assertEqual(self.run_.returncode, FINDINGS, self.run_.stderr)
        self.assertTrue(self.report["findings"])
        for finding in self.report["findings"]:
            self.assertRegex(finding["id"], r"^D\d{3}$")

    def test_the_naive_loop_is_to_blame(self):
        lines = {(pathlib.Path(f["file"]).name, f["line"]) for f in self.report["findings"]}
        begin, end = line_of("void infer() {"), line_of("void validate() {")
        forward = line_of("Tensor forward(const Tensor& x)")
        there = [line for file, line in lines if file == SOURCE.name and (begin < line < end or line == forward)]
        self.assertTrue(there, lines)

    def test_the_report_has_all_parts(self):
        r = self.report
        self.assertEqual((r["schema"], r["kind"], r["interrupted"]), (1, "deft doctor", False))
        self.assertEqual(r["workload"]["name"], "mlp on glyphs")
        for part in ("machine", "bottleneck", "profile", "memory", "latency", "energy", "trials", "waterfall", "next",
                     "tables", "plan", "written"):
            self.assertTrue(r[part], part)
        self.assertIn(r["bottleneck"]["class"], ("compute-bound", "memory-bound", "overhead-bound", "input-bound"))
        buckets = sum(b["s"] for b in r["profile"]["buckets"])
        self.assertAlmostEqual(buckets / r["profile"]["wall_s"], 1, delta=0.02)
        self.assertEqual([c["name"].split(",")[0] for c in r["latency"]["columns"]],
                         ["cold", "warm", "after idle", "open loop"])
        if r["energy"]["joules_per_sample"] is None:
            self.assertTrue(r["energy"]["reason"])
        self.assertEqual(len(r["tables"]["modes"]), 4)

    def test_every_trial_says_why(self):
        stages = []
        for row in self.report["trials"]:
            stages += [row["stage"]] if row["stage"] not in stages else []
            self.assertTrue(row["reason"], row)
            if row["pairs"] == 0:
                self.assertIsNone(row["speedup"], row)
                self.assertFalse(row["kept"], row)
            elif row["kept"] and row["reason"] == "helps beyond noise":
                self.assertGreater(row["speedup_low"], 1, row)
        self.assertEqual(stages, ["input pipeline", "grad mode and eval", "precision", "layout", "compile",
                                  "threads and batch size", "bucketing", "quantization"])

    def test_the_plan_is_written_and_valid(self):
        with open(self.path("deft.plan.json")) as file:
            plan = json.load(file)
        self.assertEqual(plan, self.report["plan"])
        self.assertTrue(plan["eval"])
        shown = deft("plan", "show", self.path("deft.plan.json"))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(shown.stderr, "")

    def test_the_page_is_written(self):
        page = pathlib.Path(self.path("page.html")).read_text()
        self.assertIn("mlp", page)
        self.assertNotIn("http://", page.replace("http://www.w3.org", ""))

    def test_a_checkpoint_says_what_it_is_of(self):
        small = ["--train-size", "256", "--test-size", "64"]
        deft("train", "-m", "mlp", "-d", "glyphs", *small, "-b", "64", "-e", "1", "--out", self.path("run"), "-q")
        [file] = list(pathlib.Path(self.path("run")).glob("step-*.safetensors"))
        run = deft("doctor", "-m", str(file), *small, "--budget", "1s", "-o", "json", "--out", self.path("p.json"))
        workload = json.loads(run.stdout)["workload"]
        self.assertEqual((workload["model"], workload["data"]), ("mlp", "glyphs"))
        self.assertEqual(workload["learned"], str(file))

    def test_a_file_that_is_no_checkpoint_is_refused(self):
        pathlib.Path(self.path("notes.txt")).write_text("nothing of the kind")
        run = deft("doctor", "-m", self.path("notes.txt"))
        self.assertEqual(run.returncode, UNSUPPORTED, run.stderr)
        self.assertIn("notes.txt", run.stderr)

    def test_the_plan_runs(self):
        weights = self.path("w")
        size = ["-m", "mlp", "-d", "glyphs", "--train-size", "512", "--test-size", "256"]
        trained = deft("train", *size, "-e", "1", "-b", "64", "--out", weights)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        checkpoint = str(max(pathlib.Path(weights).glob("*.safetensors")))
        accuracy = []
        for plan in ([], ["--plan", self.path("deft.plan.json")]):
            run = deft("eval", *size, "-w", checkpoint, *plan, "-o", "json")
            self.assertEqual(run.returncode, 0, run.stderr)
            accuracy.append(json.loads(run.stdout)["results"][0]["accuracy_percent"])
        self.assertAlmostEqual(accuracy[0], accuracy[1], delta=1)


class Others(unittest.TestCase):
    def test_the_leak_is_named_with_its_line(self):
        run = deft("doctor", "--demo", "leak", "-o", "json")
        self.assertEqual(run.returncode, FINDINGS, run.stderr)
        found = [f for f in json.loads(run.stdout)["findings"] if f["id"] == "D003"]
        self.assertEqual(len(found), 1, run.stdout)
        self.assertEqual(pathlib.Path(found[0]["file"]).name, SOURCE.name)
        self.assertEqual(found[0]["line"], line_of("total = total + loss"))
        self.assertGreater(found[0]["figures"]["mb_per_step"], 1)

    def test_sarif(self):
        run = deft("doctor", "--demo", "leak", "-o", "sarif")
        self.assertEqual(json.loads(run.stdout)["version"], "2.1.0")

    def test_usage(self):
        for arguments, word in ((["--budget", "soon"], "'soon'"), (["--budget", "0s"], "'0s'"),
                                (["--task", "inference"], "infer"), (["--max-drop", "-1"], "'-1'"),
                                (["-o", "csv"], "csv"), (["--demo", "leek"], "leak")):
            run = deft("doctor", *arguments)
            self.assertEqual(run.returncode, USAGE, arguments)
            self.assertIn(word, run.stderr)
            self.assertEqual(run.stdout, "")

    def test_models_and_data_must_fit(self):
        self.assertEqual(deft("doctor", "-m", "gpt2", "-d", "glyphs").returncode, USAGE)

    def test_a_plan_that_cannot_be_written_is_an_error(self):
        run = deft("doctor", *QUICK[:-1], "1s", "--out", "/nonexistent/plan.json")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertIn("/nonexistent", run.stderr)

    def test_interrupted_it_gives_what_there_is(self):
        with tempfile.TemporaryDirectory() as folder:
            long = QUICK[:-1] + ["120s"]
            run = subprocess.Popen([DEFT, "doctor", *long, "-o", "json"], stdout=subprocess.PIPE, text=True, cwd=folder)
            time.sleep(12)
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate(timeout=120)
        self.assertEqual(run.returncode, 128 + signal.SIGINT)
        report = json.loads(out)
        self.assertTrue(report["interrupted"])
        self.assertTrue(report["findings"])


if __name__ == "__main__":
    unittest.main()
