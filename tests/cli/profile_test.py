"""`deft profile` and `deft explain` as a user runs them. The program is named by DEFT_CLI."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
QUICK = ["--train-size", "256", "--test-size", "64", "-b", "16", "--steps", "4"]
BUCKETS = ["data wait", "copies", "linear algebra", "other kernels", "autograd", "dispatch", "optimizer", "sync", "allocation", "other"]


def deft(*arguments):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300)


class Profile(unittest.TestCase):
    reports = {}

    @classmethod
    def report(cls, *arguments):
        if arguments not in cls.reports:
            run = deft("profile", *QUICK, *arguments, "-o", "json")
            assert run.returncode == 0 and run.stderr == "", run.stderr
            cls.reports[arguments] = json.loads(run.stdout)
        return cls.reports[arguments]

    def test_the_form_of_the_report(self):
        report = self.report()
        self.assertEqual(list(report), ["schema", "kind", "version", "machine", "workload", "bottleneck", "profile", "memory"])
        self.assertEqual(report["kind"], "deft profile")
        self.assertEqual({k: report["workload"][k] for k in ("name", "task", "batch", "steps", "samples")},
                         {"name": "cnn on glyphs", "task": "train", "batch": 16, "steps": 4, "samples": 64})
        self.assertTrue(report["bottleneck"]["class"].endswith("bound"))
        self.assertGreater(len(report["bottleneck"]["sentence"]), 20)

    def test_buckets_add_up(self):
        for task in ("train", "eval", "infer"):
            p = self.report("--task", task)["profile"]
            self.assertEqual([b["name"] for b in p["buckets"]], BUCKETS)
            total = sum(b["s"] for b in p["buckets"])
            self.assertAlmostEqual(total, p["wall_s"], delta=0.02 * p["wall_s"])
            self.assertAlmostEqual(p["sum_s"], total, delta=1e-5)
            self.assertIsNone(p["device_utilisation_percent"])
            self.assertGreater(p["cpu_utilisation_percent"], 0)
            self.assertLess(p["overhead_percent"], 20)  # tiny steps

    def test_training_has_what_training_does(self):
        p = self.report()["profile"]
        seconds = {b["name"]: b["s"] for b in p["buckets"]}
        for name in ("data wait", "linear algebra", "other kernels", "autograd", "dispatch", "optimizer"):
            self.assertGreater(seconds[name], 0, name)
        ops = {(o["name"], o["pass"]) for o in p["ops"]}
        self.assertIn(("convolution", "forward"), ops)
        conv = [o for o in p["ops"] if o["name"] == "convolution" and o["pass"] == "forward"]
        self.assertEqual(sum(o["calls"] for o in conv) % 4, 0)  # steps
        for op in conv:
            self.assertGreater(op["gflops"], 0)
            self.assertRegex(op["site"], r"\.\w+:\d+$")
        self.assertIn("backward", {o["pass"] for o in p["ops"]})
        self.assertTrue(any(m["name"] for m in p["modules"]))

    def test_inference_keeps_nothing(self):
        report = self.report("--task", "infer")
        self.assertEqual(report["memory"]["highest_by_category_mb"]["gradients"], 0)
        self.assertEqual(report["memory"]["saved_for_backward_peak_mb"], 0)
        self.assertEqual({o["pass"] for o in report["profile"]["ops"]}, {"forward"})
        train = self.report()["memory"]
        self.assertGreater(train["saved_for_backward_peak_mb"], 0)
        for category in ("parameters", "gradients", "optimizer"):
            self.assertGreater(train["highest_by_category_mb"][category], 0)
        self.assertAlmostEqual(sum(train["peak_by_category_mb"].values()), train["peak_mb"], delta=0.001)

    def test_tables_and_their_order(self):
        run = deft("profile", *QUICK, "--top", "3", "--sort", "calls")
        self.assertEqual(run.returncode, 0, run.stderr)
        tables = run.stdout.split("\n\n")
        ops = next(t for t in tables if t.startswith("| op ")).splitlines()
        self.assertEqual(len(ops), 2 + 3)
        calls = [int(row.split("|")[ops[0].split("|").index(next(c for c in ops[0].split("|") if "calls" in c))]) for row in ops[2:]]
        self.assertEqual(calls, sorted(calls, reverse=True))
        for words in ("| time ", "| module", "memory at its peak", "The profiler's own cost", "CPU in use"):
            self.assertIn(words, run.stdout)

    def test_trace_and_page(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, page = f"{folder}/trace.json", f"{folder}/page.html"
            run = deft("profile", *QUICK, "--trace", trace, "--html", page)
            self.assertEqual(run.returncode, 0, run.stderr)
            events = json.loads(pathlib.Path(trace).read_text())
            events = events["traceEvents"] if isinstance(events, dict) else events
            self.assertIn("convolution", {e.get("name") for e in events})
            text = pathlib.Path(page).read_text()
            self.assertIn("<!doctype html>", text.lower())
            self.assertIn("convolution", text)
            run = deft("profile", *QUICK, "--trace", f"{folder}/no/such/file")
            self.assertEqual(run.returncode, 3)

    def test_two_profiles_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, task in enumerate((["--task", "train"], ["--task", "infer"])):
                paths.append(f"{folder}/{i}.json")
                pathlib.Path(paths[-1]).write_text(json.dumps(self.report(*task)))
            run = deft("compare", *paths, "-o", "json")
            self.assertEqual(run.returncode, 0, run.stderr)
            rows = {(r["table"], r["row"], r["quantity"]) for r in json.loads(run.stdout)["results"]}
            self.assertIn(("profile.buckets", "linear algebra", "s"), rows)
            self.assertIn(("memory", "", "peak_mb"), rows)
            self.assertEqual(deft("compare", *paths, "--fail-if", "memory.peak_mb<-5%").returncode, 1)

    def test_mistakes(self):
        for arguments, word in ((["--task", "tarin"], "did you mean 'train'?"), (["--sort", "flops"], "'gflops'"),
                                (["--steps", "0"], "--steps"), (["-m", "gpt2", "-d", "glyphs"], "learns text")):
            run = deft("profile", *arguments)
            self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
            self.assertIn(word, run.stderr)


class Explain(unittest.TestCase):
    def test_the_list(self):
        rows = json.loads(deft("explain", "-o", "json").stdout)["results"]
        self.assertGreaterEqual(len(rows), 20)
        self.assertEqual([r["id"] for r in rows], [f"D{i:03}" for i in range(1, len(rows) + 1)])
        for row in rows:
            self.assertEqual(list(row), ["id", "name", "severity", "title", "story", "fix", "example"])
            self.assertTrue(all(row.values()), row)
        text = deft("explain").stdout
        for row in rows:
            self.assertIn(f"| {row['id']} |", text)

    def test_one_rule_by_id_or_name(self):
        row = json.loads(deft("explain", "D003", "-o", "json").stdout)["results"][0]
        for word in ("D003", "d003", row["name"]):
            run = deft("explain", word)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue(run.stdout.startswith(f"D003 {row['name']}"))
            self.assertEqual("".join(run.stdout.split()).count("".join(row["story"].split())), 1)
            self.assertIn(row["example"].strip(), run.stdout)

    def test_an_unknown_rule(self):
        run = deft("explain", "D0003")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("did you mean 'D003'?", run.stderr)


if __name__ == "__main__":
    unittest.main()
