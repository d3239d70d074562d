"""`deft doctor` as a user runs it. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import tempfile
import time
import unittest

DEFT = os.environ["DEFT_CLI"]
SOURCE = pathlib.Path(__file__).resolve().parents[2] / "apps/deft/doctor_workload.cpp"
SMALL = ["-m", "mlp", "-d", "glyphs", "--train-size", "512", "--test-size", "256"]
QUICK = [*SMALL, "--budget", "8s"]
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
        self.assertEqual(self.run_.returncode, FINDINGS if self.report["findings"] else 0, self.run_.stderr)

    def test_findings_never_point_into_deft(self):
        for finding in self.report["findings"]:
            self.assertIsNone(finding["file"])
            self.assertIn(finding["id"], ("D016", "D018", "D019", "D020", "D021"), "rules about code: it is Deft's")

    def test_the_report_has_all_parts(self):
        r = self.report
        self.assertEqual((r["schema"], r["kind"], r["interrupted"]), (1, "deft doctor", False))
        self.assertEqual((r["workload"]["name"], r["workload"]["batch"]), ("mlp on glyphs", r["workload"]["batch"]))
        self.assertIn("what the commands do today", r["workload"]["baseline"])
        for part in ("machine", "bottleneck", "profile", "memory", "latency", "energy", "findings", "trials", "waterfall",
                     "next", "plan", "plan_why", "apply", "written"):
            self.assertIn(part, r)
        self.assertNotIn("tables", r, "of models that nobody asked about")
        if r["bottleneck"]:  # a machine with too much to do has no time for all parts
            self.assertIn(r["bottleneck"]["class"],
                          ("compute-bound", "instruction-bound", "memory-bound", "overhead-bound", "input-bound"))
            buckets = sum(b["s"] for b in r["profile"]["buckets"])
            self.assertAlmostEqual(buckets / r["profile"]["wall_s"], 1, delta=0.02)
            for op in r["profile"]["ops"]:
                self.assertFalse(op["bound"] == "compute-bound" and op["flops_per_byte"] < 1, op)
        if r["latency"]:
            self.assertEqual([c["name"].split(",")[0] for c in r["latency"]["columns"]],
                             ["cold", "warm", "after idle", "open loop"])
        if r["energy"] and r["energy"]["joules_per_sample"] is None:
            self.assertTrue(r["energy"]["reason"])

    def test_every_trial_says_why(self):
        stages = []
        for row in self.report["trials"]:
            stages += [row["stage"]] if row["stage"] not in stages else []
            self.assertTrue(row["reason"], row)
            if row["pairs"] == 0:
                self.assertIsNone(row["speedup"], row)
                self.assertFalse(row["kept"], row)
            else:
                self.assertAlmostEqual(row["before_ms"] / row["after_ms"] / row["speedup"], 1, delta=1e-3, msg=str(row))
            if row["kept"]:
                self.assertEqual(row["reason"], "helps beyond noise", row)
                self.assertGreater(row["speedup_low"], 1, row)
        self.assertEqual(stages, ["input pipeline", "precision", "layout", "compile", "threads and batch size",
                                  "bucketing", "quantization"])

    def test_the_plan_is_written_and_valid(self):
        with open(self.path("deft.plan.json")) as file:
            plan = json.load(file)
        self.assertEqual(plan, self.report["plan"])
        self.assertEqual((plan["eval"], plan["grad_mode"]), (True, "inference"), "as deft infer runs")
        if not any(v["task"] == "infer" and v["verdict"] == "helps" for v in self.report.get("verified", [])):
            self.assertEqual((plan["layout"], plan["autocast"], plan["compile"]["on"], plan["batch"]),
                             ("channels_last", "off", False, 128), "nothing was proved: the defaults")
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
        run = deft("doctor", "-m", str(file), *small, "--budget", "5s", "-o", "json", "--out", self.path("p.json"))
        report = json.loads(run.stdout)
        workload = report["workload"]
        self.assertEqual((workload["model"], workload["data"]), ("mlp", "glyphs"))
        self.assertEqual(workload["learned"], str(file))
        self.assertTrue(report["apply"].startswith("deft infer -m mlp -d glyphs "), report["apply"])
        self.runs_as_printed(report)

    def runs_as_printed(self, report):
        """What the report tells to type; the first of its advice, where there is any, is the same."""
        words = shlex.split(report["apply"])
        self.assertEqual(words[0], "deft")
        run = deft(*words[1:], cwd=self.holder.name)
        self.assertEqual(run.returncode, 0, report["apply"] + ": " + run.stderr)
        commands = [step["how"] for step in report["next"] if step.get("run")]
        self.assertEqual(commands, [report["apply"]] * len(commands))
        if report["next"]:
            self.assertTrue(report["next"][0].get("run"), report["next"])

    def test_what_it_tells_to_type_runs(self):
        self.runs_as_printed(self.report)
        text = pathlib.Path(self.path("a text's file"))
        text.write_text("the cat sat on the mat. " * 600)
        for arguments in ([*SMALL, "--task", "train"], [*SMALL, "--task", "eval"],
                          ["-m", "gpt2", "-d", "text", "--path", str(text), "--length", "16", "--test-size", "16"],
                          ["-m", "bert", "-d", "text", "--path", str(text), "--length", "16", "--test-size", "16"]):
            run = deft("doctor", *arguments, "--budget", "5s", "-o", "json", cwd=self.holder.name)
            self.assertIn(run.returncode, (0, FINDINGS), run.stderr)
            self.runs_as_printed(json.loads(run.stdout))

    def test_other_files_are_refused_with_what_they_are(self):
        header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        weights = len(header).to_bytes(8, "little") + header + bytes(4)
        for name, data, found in (("notes.txt", b"nothing of the kind", "none of the formats"),
                                  ("w.safetensors", weights, "a safetensors file of 1 tensors"),
                                  ("net.onnx", b"\x08\x07\x12\x04", "an ONNX model"),
                                  ("w.pt", b"PK\3\4" + bytes(40), "a zip archive"),
                                  ("deft.json", b'{"kind": "deft plan"}', "JSON text")):
            pathlib.Path(self.path(name)).write_bytes(data)
            for verb in ("doctor", "profile"):
                run = deft(verb, "-m", self.path(name))
                self.assertEqual(run.returncode, UNSUPPORTED, run.stderr)
                self.assertIn(f"found {found}", run.stderr)
                self.assertIn("a checkpoint of deft train or a plan of deft compile", run.stderr)
                self.assertEqual(run.stderr.count("\n"), 1)

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


class Demonstrations(unittest.TestCase):
    def test_the_naive_loop_says_what_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            run = deft("doctor", *SMALL, "--demo", "naive", "--budget", "20s", "-o", "json", cwd=folder)
            self.assertEqual(os.listdir(folder), [], "a plan of it would be none for any command")
        self.assertEqual(run.returncode, FINDINGS, run.stderr)
        report = json.loads(run.stdout)
        self.assertIn("demonstration", report["workload"]["baseline"])
        self.assertEqual(report["workload"]["batch"], 1)
        self.assertIn("D004", {f["id"] for f in report["findings"]})
        self.assertEqual({f["file"] for f in report["findings"]}, {None})
        self.assertNotIn("plan", report)
        if "next" in report:
            self.assertTrue(report["next"][0]["how"].startswith("deft doctor -m mlp -d glyphs"), report["next"])


class OfAPlanFile(unittest.TestCase):
    """`--model FILE` with a plan of deft compile."""

    SIZE = ["--train-size", "256", "--test-size", "128"]

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        task = ["-m", "mlp", "-d", "glyphs", *cls.SIZE, "-b", "32"]
        deft("train", *task, "-e", "1", "--out", cls.holder.name, "-q")
        cls.weights = str(max(pathlib.Path(cls.holder.name).glob("step-*.safetensors")))
        made = deft("compile", *task, "-w", cls.weights, "--out", cls.path("mlp.plan"))
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.holder.name, name)

    def doctor(self, *more, budget="2s", **how):
        return deft("doctor", "-m", self.path("mlp.plan"), *self.SIZE, "--budget", budget, *more, cwd=self.holder.name,
                    **how)

    def test_the_plan_is_measured_on_data_that_fits(self):
        run = self.doctor("-d", "glyphs", "-w", self.weights, "-o", "json", budget="8s")  # all parts have their time
        self.assertIn(run.returncode, (0, FINDINGS), run.stderr)
        report = json.loads(run.stdout)
        workload = report["workload"]
        self.assertEqual((workload["model"], workload["data"], workload["task"]), ("mlp", "glyphs", "infer"))
        self.assertEqual(workload["plan_file"], self.path("mlp.plan"))
        self.assertTrue(any(op["name"] == "fused_linear" for op in report["profile"]["ops"]), "the plan did not run")
        self.assertEqual(report["eager"]["model"], "mlp")
        self.assertEqual((report["eager"]["batch"], report["eager"]["weights"]), (32, self.weights))
        self.assertGreater(report["eager"]["pairs"], 0)
        tried = {row["technique"]: row for row in report["trials"]}
        self.assertTrue(any(name.startswith("batches of") for name in tried), tried)
        self.assertIn("deft compile", tried["autocast bf16"]["reason"])
        self.assertFalse(os.path.exists(self.path("deft.plan.json")), "no command takes it with a plan file")

    def test_it_takes_a_data_set_by_itself(self):
        run = self.doctor()
        self.assertIn(run.returncode, (0, FINDINGS), run.stderr)
        self.assertRegex(run.stdout, r"mlp\.plan, a plan of mlp on (glyphs|fashion|random numbers)")
        self.assertRegex(run.stdout, r"against mlp eager \(first weights\)|not compared with the model itself")

    def test_what_does_not_apply_is_refused(self):
        for arguments, word in ((["--task", "train"], "--task train does not apply"), (["-d", "text"], "text")):
            run = self.doctor(*arguments)
            self.assertEqual(run.returncode, USAGE, run.stderr)
            self.assertIn(word, run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1)

    def test_validation(self):
        run = self.doctor("-d", "glyphs", "--task", "eval", "-o", "json")
        self.assertIn(run.returncode, (0, FINDINGS), run.stderr)
        self.assertEqual(json.loads(run.stdout)["workload"]["task"], "eval")

    def test_profile(self):
        run = deft("profile", "-m", self.path("mlp.plan"), *self.SIZE, "--steps", "3", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        workload = json.loads(run.stdout)["workload"]
        self.assertEqual((workload["task"], workload["batch"], workload["steps"]), ("infer", 32, 3))
        self.assertIn("a plan of mlp on ", workload["name"])
        for arguments, word in ((["--task", "train"], "does not apply"), (["-b", "5"], "batches of 1, 32"),
                                (["--amp", "bf16"], "--amp")):
            run = deft("profile", "-m", self.path("mlp.plan"), *arguments)
            self.assertEqual(run.returncode, USAGE, run.stderr)
            self.assertIn(word, run.stderr)

    def test_profile_of_a_checkpoint(self):
        run = deft("profile", "-m", self.weights, *self.SIZE, "--steps", "2", "-b", "16", "--task", "infer", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        workload = json.loads(run.stdout)["workload"]
        self.assertEqual((workload["model"], workload["data"]), ("mlp", "glyphs"))


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
        log = json.loads(run.stdout)
        self.assertEqual(log["version"], "2.1.0")
        self.assertGreater(len(log["runs"][0]["results"]), 0)
        # Binaries do not know where they were built; tests/doctor/sarif_test.cpp has roots.
        for result in log["runs"][0]["results"]:
            place = result["locations"][0]["physicalLocation"]["artifactLocation"]
            self.assertEqual(pathlib.PurePosixPath(place["uri"]).parts[-3:], ("apps", "deft", SOURCE.name))

    def test_files_that_cannot_be_written_are_told_of_before_measuring(self):
        for verb, flags in (("doctor", ("--html", "--out")), ("profile", ("--html", "--trace"))):
            hours = ["--budget", "3600s"] if verb == "doctor" else ["--steps", "1000000"]
            for flag in flags:
                for path, word in (("/nonexistent/a", "/nonexistent"), ("/", "folder")):
                    run = deft(verb, *hours, flag, path)
                    self.assertEqual(run.returncode, UNSUPPORTED, run.stderr)
                    self.assertIn(word, run.stderr)

    def test_results_that_cannot_be_written_are_no_internal_error(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run([DEFT, "explain"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, UNSUPPORTED, run.stderr)
        self.assertIn("standard output", run.stderr)

    def test_unknown_rules(self):
        for rule, message in (("D999", "unknown rule 'D999' (did you mean 'D009'?); deft explain lists all rules"),
                              ("leak", "unknown rule 'leak'; deft explain lists all rules")):
            run = deft("explain", rule)
            self.assertEqual((run.returncode, run.stderr), (USAGE, f"deft: {message}\n"))

    def test_a_model_that_is_no_file(self):
        run = deft("doctor", "-m", "gone.safetensors")
        self.assertEqual(run.returncode, USAGE)
        self.assertIn("which is not a file", run.stderr)

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

    # A step of this takes seconds: neither the end of the budget nor a signal waits for it.
    SLOW = ["-m", "resnet50", "-d", "glyphs", "--train-size", "256", "--test-size", "256", "--task", "train"]
    LATE = 30  # seconds on a busy machine; it was minutes

    def test_the_budget_is_hard(self):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            run = deft("doctor", *self.SLOW, "--budget", "2s", "-o", "json", "--html", "page.html", cwd=folder)
            self.assertLess(time.monotonic() - start, self.LATE)
            self.assertIn("<html", pathlib.Path(folder, "page.html").read_text())
            plan = pathlib.Path(folder, "deft.plan.json")
            if plan.exists():
                self.assertEqual(json.loads(plan.read_text())["batch"], 128, "as deft train runs")
        self.assertIn(run.returncode, (0, FINDINGS), run.stderr)
        self.assertFalse(json.loads(run.stdout)["interrupted"])

    def test_interrupted_it_gives_what_there_is(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder:
                run = subprocess.Popen([DEFT, "doctor", *self.SLOW, "--budget", "600s", "-o", "json"], text=True,
                                       stdout=subprocess.PIPE, cwd=folder)
                time.sleep(3)
                run.send_signal(number)
                out, _ = run.communicate(timeout=self.LATE)
                self.assertEqual(os.listdir(folder), [], "what a user broke off replaces no plan")
            self.assertEqual(run.returncode, 128 + number)
            self.assertTrue(json.loads(out)["interrupted"])


if __name__ == "__main__":
    unittest.main()
