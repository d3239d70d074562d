"""`deft compare`, sweeps and `--baseline` as a user runs them. The program is named by DEFT_CLI."""
import csv
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
MACHINE = {"cpu": "Neoverse-V1", "arch": "aarch64", "threads": 2, "gpu": None}
SWEEP = ["bench", "modes", "-m", "mlp", "-r", "1"]


def deft(*arguments):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300)


def models_row(case="cnn", batch=8, type="f32", **quantities):
    row = {"case": case, "batch": batch, "pass": "infer", "type": type, "p50_ms": 10.0, "p99_ms": 20.0,
           "total_ms": 99.0, "samples_per_second": 800.0, "peak_mb": 50.0, "samples": 7, "peer_ms": None}
    return {**row, **quantities}


def bench_report(*rows, **machine):
    return {"schema": 1, "machine": {**MACHINE, **machine}, "results": list(rows)}


class InFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def compare(self, before, after, *flags):
        return deft("compare", self.file("a.json", before), self.file("b.json", after), *flags)

    def json_of(self, before, after, *flags):
        run = self.compare(before, after, "-o", "json", *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)


class Rows(InFolder):
    def test_rows_are_matched_by_what_they_are_about(self):
        before = bench_report(models_row("cnn", 8), models_row("cnn", 16, p99_ms=40.0), models_row("mlp", 8))
        after = bench_report(models_row("cnn", 16, p99_ms=30.0, samples=9), models_row("cnn", 8), models_row("cnn", 8, "bf16"))
        result = self.json_of(before, after)
        p99 = {r["row"]: r for r in result["results"] if r["quantity"] == "p99_ms"}
        self.assertEqual(set(p99), {"cnn, batch 8, infer, f32", "cnn, batch 16, infer, f32"})
        changed = p99["cnn, batch 16, infer, f32"]
        self.assertEqual((changed["before"], changed["after"], changed["ratio"]), (40, 30, 0.75))
        self.assertEqual(result["only_before"], ["results: mlp, batch 8, infer, f32"])
        self.assertEqual(result["only_after"], ["results: cnn, batch 8, infer, bf16"])
        # Sizes of the measurement and what was not measured are no quantities.
        self.assertEqual({r["quantity"] for r in result["results"]}, {"p50_ms", "p99_ms", "samples_per_second", "peak_mb"})

    def test_the_direction_is_known(self):
        after = models_row(p50_ms=12.0, p99_ms=10.0, samples_per_second=400.0, peak_mb=50.1)
        result = self.json_of(bench_report(models_row(speedup=2.0)), bench_report({**after, "speedup": 3.0}))
        verdicts = {r["quantity"]: r["verdict"] for r in result["results"]}
        self.assertEqual(verdicts, {"p50_ms": "worse", "p99_ms": "better", "samples_per_second": "worse",
                                    "peak_mb": "same", "speedup": "better"})
        self.assertEqual({q["quantity"]: q["better"] for q in result["quantities"]},
                         {"p50_ms": "down", "p99_ms": "down", "samples_per_second": "up", "peak_mb": "down", "speedup": "up"})

    def test_noise_is_not_worse(self):
        def verdicts(**changes):
            before = models_row(speedup=2.0, gflops=100.0, accuracy_percent=90.0)
            after = {k: v * (1 + changes.get("all", 0)) if isinstance(v, float) else v for k, v in before.items()}
            result = self.json_of(bench_report(before), bench_report(after))
            return {r["quantity"]: r["verdict"] for r in result["results"]}
        for change in (0.012, -0.012, 0.03, -0.03):
            found = verdicts(all=change)
            for key in ("p50_ms", "p99_ms", "samples_per_second", "speedup", "gflops"):
                self.assertEqual(found[key], "same", (key, change))
            # What is counted is the same every time.
            self.assertEqual(found["peak_mb"], "worse" if change > 0 else "better")
        found = verdicts(all=0.07)
        self.assertEqual((found["p50_ms"], found["p99_ms"], found["samples_per_second"]), ("worse", "same", "better"))
        self.assertEqual(verdicts(all=0.12)["p99_ms"], "worse")

    def test_means_are_geometric_and_the_worst_row_is_named(self):
        before = bench_report(models_row("a"), models_row("b"))
        after = bench_report(models_row("a", p50_ms=20.0), models_row("b", p50_ms=5.0))
        p50 = next(q for q in self.json_of(before, after)["quantities"] if q["quantity"] == "p50_ms")
        self.assertEqual((p50["rows"], p50["mean_ratio"], p50["worst_ratio"]), (2, 1, 2))
        self.assertEqual(p50["worst_row"], "a, batch 8, infer, f32")

    def test_reports_of_the_doctor_are_read_whole(self):
        def report(p99, parameters, findings):
            return {"schema": 1, "kind": "deft doctor", "machine": {"cpu": "Neoverse-V1", "threads": 2, "gpu": None},
                    "profile": {"wall_s": 2.0, "zones": 5, "buckets": [{"name": "data wait", "s": 0.2, "percent": 10}],
                                "roofline": {"gflops": {"f32": 166.0}},
                                "ops": [{"name": "conv2d", "site": f"cnn.cpp:{findings}", "pass": "forward", "ms": 8.0}]},
                    "memory": {"peak_mb": 1.0, "peak_by_category_mb": {"parameters": parameters},
                               "timeline": [{"ms": 0, "parameters": 1}], "device": None},
                    "latency": {"columns": [{"name": "warm", "samples": 5, "p99_ms": p99}], "histogram": [{"from_ms": 1}]},
                    "findings": [{"id": f"D00{i}", "line": i, "count": 3} for i in range(findings)]}
        result = self.json_of(report(1.0, 4.0, 2), report(2.0, 4.0, 1))
        values = {(r["table"], r["row"], r["quantity"]): r["ratio"] for r in result["results"]}
        self.assertEqual(values, {
            ("profile", "", "wall_s"): 1, ("profile", "", "roofline.gflops.f32"): 1,
            ("profile.buckets", "data wait", "s"): 1, ("profile.buckets", "data wait", "percent"): 1,
            ("profile.ops", "conv2d, cnn.cpp, forward", "ms"): 1,  # though its line moved
            ("memory", "", "peak_mb"): 1, ("memory", "", "peak_by_category_mb.parameters"): 1,
            ("latency.columns", "warm", "p99_ms"): 2, ("findings", "D000", "count"): 1, ("findings", "all", "findings"): 0.5})

    def test_rows_that_nothing_tells_apart_keep_their_order(self):
        before = bench_report(models_row(p50_ms=1.0), models_row(p50_ms=2.0))
        result = self.json_of(before, bench_report(models_row(p50_ms=3.0), models_row(p50_ms=2.0)))
        self.assertEqual([r["ratio"] for r in result["results"] if r["quantity"] == "p50_ms"], [3, 1])

    def test_tables_and_csv(self):
        before, after = bench_report(models_row()), bench_report(models_row(p99_ms=30.0))
        text = self.compare(before, after).stdout
        self.assertRegex(text, r"p99_ms +\| +20\.00 \| +30\.00 \| +1\.500 \| worse")
        self.assertIn("3 of 4 values are the same: within", text)
        self.assertNotIn("values are the same", self.compare(before, after, "--all").stdout)
        rows = list(csv.DictReader(io.StringIO(self.compare(before, after, "-o", "csv").stdout)))
        self.assertEqual([r["ratio"] for r in rows if r["quantity"] == "p99_ms"], ["1.5"])

    def test_other_machines_and_lost_rows_are_warned_of(self):
        run = self.compare(bench_report(models_row(), models_row("mlp")), bench_report(models_row(), cpu="Zen 4"))
        self.assertEqual(run.returncode, 0)
        self.assertIn("different machines (cpu: Neoverse-V1 before, Zen 4 now)", run.stderr)
        self.assertIn("1 row is only in the first report: results: mlp, batch 8, infer, f32", run.stderr)
        self.assertEqual(self.compare(bench_report(models_row()), bench_report(models_row())).stderr, "")


class Conditions(InFolder):
    BEFORE = bench_report(models_row("a"), models_row("b"))
    AFTER = bench_report(models_row("a", p99_ms=20.8, samples_per_second=700.0), models_row("b", p99_ms=22.0, peak_mb=40.0))

    def fails(self, *conditions):
        """Which of them hold, by the exit code of each run."""
        codes = [self.compare(self.BEFORE, self.AFTER, "--fail-if", c).returncode for c in conditions]
        self.assertLessEqual(set(codes), {0, 1}, conditions)
        return [code == 1 for code in codes]

    def test_changes_ratios_values_and_differences(self):
        self.assertEqual(self.fails("p99>+5%", "p99>+15%", "p99_ms > +9.9%", "p99>+10%", "p99>=+10%"),
                         [True, False, True, False, True])
        self.assertEqual(self.fails("samples_per_second<-5%", "samples_per_second<-15%", "peak<-20%", "peak<=-20%"),
                         [True, False, False, True])
        self.assertEqual(self.fails("p99>1.05x", "p99>1.2x", "p99_ms>21.5", "p99_ms>22", "p99>+1.5", "p99>+2.5"),
                         [True, False, True, False, True, False])

    def test_combinations(self):
        self.assertEqual(self.fails("p99>+5% and peak_mb<-10%", "p99>+5% and samples_per_second<-5%"), [True, False])
        self.assertEqual(self.fails("p99>+50%, samples_per_second<-5%", "p99>+50% or peak>+50%"), [True, False])
        run = self.compare(self.BEFORE, self.AFTER, "--fail-if", "p99>+50%", "--fail-if", "p99>+5%")
        self.assertEqual(run.returncode, 1)
        self.assertIn("regression: p99>+5%: p99_ms of b, batch 8, infer, f32 was 20 and is 22, +10.0 %", run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1)

    def test_failures_are_in_the_json(self):
        run = self.compare(self.BEFORE, self.AFTER, "--fail-if", "p99>+1%", "-o", "json")
        failures = json.loads(run.stdout)["failures"]
        self.assertEqual([(f["condition"], f["row"][0], f["after"]) for f in failures],
                         [("p99>+1%", "a", 20.8), ("p99>+1%", "b", 22.0)])

    def test_names_are_taken_loosely_but_the_exact_one_wins(self):
        rows = [bench_report({"case": "x", "ms": a, "peer_ms": b, "latency_ms_p99": c}) for a, b, c in
                ((1.0, 1.0, 1.0), (1.0, 2.0, 3.0))]
        self.assertEqual(self.compare(*rows, "--fail-if", "ms>+5%").returncode, 0)
        self.assertEqual(self.compare(*rows, "--fail-if", "p99>+5%").returncode, 1)
        self.assertEqual(self.compare(*rows, "--fail-if", "results.peer_ms>+5%").returncode, 1)

    def test_what_was_nothing_and_is_something_has_grown(self):
        rows = [bench_report(models_row(saved_mb=mb)) for mb in (0, 1)]
        self.assertEqual(self.compare(*rows, "--fail-if", "saved>+5%").returncode, 1)
        self.assertEqual(self.compare(rows[0], rows[0], "--fail-if", "saved>+5%").returncode, 0)

    def test_mistakes(self):
        for condition, word in (("p98>+5%", "p98: no row"), ("p99>5%", "a sign before a percentage: p99>+5%"),
                                ("p99=5", "found 'p99=5'"), ("p99>+2x", "without a sign"), ("p99>+5% and", "found")):
            run = self.compare(self.BEFORE, self.AFTER, "--fail-if", condition)
            self.assertEqual(run.returncode, 2, condition)
            self.assertIn(word, run.stderr)
        run = self.compare(self.BEFORE, {"schema": 1, "results": [{"case": "z", "ms": 1}]})
        self.assertEqual(run.returncode, 2)
        self.assertIn("no row in common", run.stderr)

    def test_unreadable_files(self):
        for content in ("", "{", "[1]", "{}", '{"schema": 9}', '{"schema": 1, "results": [' + "["):
            run = self.compare(self.BEFORE, content)
            self.assertEqual((run.returncode, run.stdout), (3, ""), content)
        run = deft("compare", self.file("a.json", self.BEFORE), str(self.folder / "none"))
        self.assertEqual(run.returncode, 3)
        self.assertIn("none", run.stderr)
        self.assertEqual(deft("compare", self.file("a.json", self.BEFORE)).returncode, 2)


class Sweeps(InFolder):
    def rows(self, *flags):
        run = deft(*SWEEP, *flags, "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)["results"]

    def test_lists_and_ranges(self):
        for text, batches in (("1,8", [1, 8]), ("1-8*2", [1, 2, 4, 8]), ("1-5+2", [1, 3, 5]), ("2-4", [2, 3, 4]),
                              ("4,1-4*4", [4, 1]), ("3", [3])):
            found = [row["batch"] for row in self.rows("-b", text)]
            self.assertEqual(list(dict.fromkeys(found)), batches, text)
            self.assertEqual(len(found), 4 * len(batches))

    def test_all_combinations(self):
        rows = self.rows("-b", "1,2", "-t", "1,2")
        self.assertEqual(list(dict.fromkeys((r["threads"], r["batch"]) for r in rows)), [(1, 1), (1, 2), (2, 1), (2, 2)])
        self.assertNotIn("threads", self.rows("-t", "1")[0])
        run = deft("bench", "models", "-m", "mlp", "-r", "1", "--pass", "infer", "--type", "f32", "-b", "1,2", "-t", "1,2",
                   "-o", "json")
        self.assertEqual([(r["threads"], r["batch"]) for r in json.loads(run.stdout)["results"]],
                         [(1, 1), (1, 2), (2, 1), (2, 2)])

    def test_mistakes(self):
        for text in ("0", "1,,2", "8-1", "1-8*1", "1-8+0", "1-", "1-99999", "1.5", "1-8*2+1", "a", ""):
            run = deft(*SWEEP, "-b", text)
            self.assertEqual(run.returncode, 2, text)
            self.assertIn("--batch", run.stderr)


class Baseline(InFolder):
    def test_the_result_is_compared_at_the_end(self):
        run = deft(*SWEEP, "-b", "1", "-o", "json")
        report = json.loads(run.stdout)
        path = self.file("base.json", report)
        run = deft(*SWEEP, "-b", "1", "--baseline", path, "--fail-if", "peak_mb>+1%", "-o", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        self.assertEqual(list(result), ["schema", "machine", "results", "comparison"])
        self.assertEqual({r["ratio"] for r in result["comparison"]["results"] if r["quantity"] == "peak_mb"}, {1})
        for row in report["results"]:
            row["p50_ms"] /= 1e6
        run = deft(*SWEEP, "-b", "1", "--baseline", self.file("fast.json", report), "--fail-if", "p50>+5%")
        self.assertEqual(run.returncode, 1)
        self.assertIn("Compared with", run.stdout)
        self.assertIn("regression: p50>+5%", run.stderr)

    def test_mistakes_are_found_before_anything_is_measured(self):
        run = deft("bench", "models", "--baseline", str(self.folder / "none"))
        self.assertEqual((run.returncode, run.stdout), (3, ""))
        run = deft("bench", "models", "--baseline", self.file("a.json", bench_report()), "--fail-if", "p50")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertEqual(deft("bench", "models", "--fail-if", "p50>+5%").returncode, 2)

    def test_what_was_measured_is_shown_even_if_it_cannot_be_compared(self):
        run = deft(*SWEEP, "-b", "1", "--baseline", self.file("a.json", bench_report(models_row())))
        self.assertEqual(run.returncode, 2)
        self.assertIn("| mlp", run.stdout)
        self.assertIn("no row in common", run.stderr)


if __name__ == "__main__":
    unittest.main()
