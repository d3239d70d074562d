"""Runs the built `deft` as a user would. The program is named by DEFT_CLI."""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

DEFT = os.environ["DEFT_CLI"]
MODES = {"grad", "no_grad", "inference"}
MACHINE_KEYS = ["cpu", "arch", "features", "logical_cpus", "physical_cores", "threads", "cgroup_quota_cpus", "governor",
                "gpu", "compiler", "flags", "build_type", "version", "commit"]
OVERHEAD_KEYS = ["case", "mode", "instructions_per_op", "ns_per_op", "heap_allocs_per_op", "peer", "peer_ns_per_op",
                 "peer_ratio"]
OVERHEAD_CASES = ["empty", "view", "add", "add_", "mul+sum+backward", "linear 1x64x64", "softmax 4x64"]
MODES_KEYS = ["case", "mode", "pass", "batch", "p50_ms", "p99_ms", "peak_mb", "saved_for_backward_mb",
              "ratio_to_grad_forward", "samples", "cv", "note"]


def deft(*arguments, **environment):
    return subprocess.run([DEFT, *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})


def result_of(*arguments, **environment):
    run = deft(*arguments, **environment)
    assert run.returncode == 0, f"deft {' '.join(arguments)}: exit {run.returncode}\n{run.stderr}"
    assert run.stderr == "", f"progress without a terminal: {run.stderr!r}"
    return run.stdout


class Reports:
    """Each benchmark runs once for all tests."""
    cache = {}

    @classmethod
    def get(cls, *arguments):
        if arguments not in cls.cache:
            cls.cache[arguments] = json.loads(result_of(*arguments, "-o", "json"))
        return cls.cache[arguments]

    @classmethod
    def overhead(cls):
        return cls.get("bench", "overhead", "-r", "2", "--no-peer")

    @classmethod
    def modes(cls):
        return cls.get("bench", "modes", "-r", "2", "-b", "2", "-t", "1")


class Usage(unittest.TestCase):
    def test_no_argument_prints_ten_lines_with_three_commands(self):
        text = result_of()
        self.assertLessEqual(len(text.splitlines()), 10)
        commands = [line.split("  ")[1].strip() for line in text.splitlines() if line.startswith("  deft ")]
        self.assertEqual(len(commands), 3)
        for command in commands:  # each is a known verb with known flags
            self.assertEqual(deft(*command.split()[1:], "--help").returncode, 0, command)

    def test_help_and_version(self):
        self.assertEqual(result_of("--help"), result_of())
        self.assertRegex(result_of("--version"), r"^deft \d+\.\d+\.\d+\n$")
        self.assertIn("--batch", result_of("bench", "modes", "--help"))
        self.assertIn("overhead", result_of("bench", "--help"))

    def assert_usage_error(self, arguments, *words):
        run = deft(*arguments)
        self.assertEqual(run.returncode, 2, arguments)
        self.assertEqual(run.stdout, "", arguments)
        for word in words:
            self.assertIn(word, run.stderr)

    def test_unknown_words_exit_2_and_name_the_nearest(self):
        self.assert_usage_error(["inof"], "unknown verb 'inof'", "did you mean 'info'?")
        self.assert_usage_error(["bench", "ovrehead"], "did you mean 'overhead'?")
        self.assert_usage_error(["bench", "modes", "--bacth", "3"], "unknown flag '--bacth'", "did you mean '--batch'?")
        self.assert_usage_error(["bench", "modes", "--bacth=3"], "did you mean '--batch'?")
        self.assert_usage_error(["info", "-o", "jsn"], "unknown output format 'jsn'", "did you mean 'json'?")
        self.assert_usage_error(["bench", "modes", "-m", "mlp,cn"], "did you mean 'cnn'?")
        self.assert_usage_error(["xyzzy"], "unknown verb 'xyzzy'", "info", "bench")
        self.assert_usage_error(["info", "extra"], "unexpected argument 'extra'")

    def test_bad_numbers_exit_2(self):
        self.assert_usage_error(["bench", "modes", "-b", "0"], "--batch")
        self.assert_usage_error(["bench", "modes", "-b", "many"], "--batch")
        self.assert_usage_error(["bench", "modes", "-t", "0"], "--threads")
        self.assert_usage_error(["bench", "overhead", "-t", "2"], "--threads")
        self.assert_usage_error(["bench", "modes", "-r"], "--repeats")

    def test_no_control_characters_without_a_terminal(self):
        self.assertNotIn("\033", result_of("info"))


class Info(unittest.TestCase):
    def test_json_tells_the_machine(self):
        info = json.loads(result_of("info", "-o", "json"))
        self.assertEqual(list(info), ["schema", "version", "commit", "build", "cpu", "threads", "gpu", "memory"])
        self.assertTrue(info["cpu"]["model"] and info["cpu"]["arch"] and info["cpu"]["features"])
        self.assertLessEqual(info["cpu"]["physical_cores"], info["cpu"]["logical_cpus"])
        self.assertGreater(info["memory"]["physical_bytes"], 1 << 20)

    def test_threads_follow_the_environment_and_say_so(self):
        threads = json.loads(result_of("info", "-o", "json", DEFT_NUM_THREADS="3"))["threads"]
        self.assertEqual((threads["count"], threads["from_env"]), (3, 3))
        self.assertIn("DEFT_NUM_THREADS=3", threads["reason"])

    def test_the_instruction_set_follows_the_environment_and_says_so(self):
        isa = json.loads(result_of("info", "-o", "json", DEFT_CPU_ISA=""))["cpu"]["isa"]
        lowest = isa["levels"][0]
        self.assertEqual(isa["level"], isa["machine"])
        self.assertIn("DEFT_CPU_ISA not set", isa["reason"])
        isa = json.loads(result_of("info", "-o", "json", DEFT_CPU_ISA=lowest))["cpu"]["isa"]
        self.assertEqual(isa["level"], lowest)
        self.assertIn(f"DEFT_CPU_ISA={lowest}; the machine's level is {isa['machine']}", isa["reason"])
        self.assertRegex(result_of("info", DEFT_CPU_ISA=lowest), rf"\| kernels +\| {lowest}: DEFT_CPU_ISA={lowest};")

    def test_an_unknown_instruction_set_is_not_followed(self):
        result = deft("info", "-o", "json", DEFT_CPU_ISA="none")
        isa = json.loads(result.stdout)["cpu"]["isa"]
        self.assertEqual((result.returncode, isa["level"]), (0, isa["machine"]))
        self.assertIn("DEFT_CPU_ISA=none is not one of", isa["reason"])
        self.assertEqual(result.stderr.count("DEFT_CPU_ISA=none is not one of"), 1)

    def test_table(self):
        text = result_of("info", DEFT_NUM_THREADS="3")
        self.assertIn("| threads   | 3: DEFT_NUM_THREADS=3", text)
        self.assertRegex(text, r"\| GPU +\|")


class BenchOps(unittest.TestCase):
    KEYS = ["case", "family", "ms", "gb_per_s", "percent_of_copy", "tflops", "peer", "peer_ms", "peer_ratio"]

    def test_copies_on_the_cpu(self):
        report = json.loads(result_of("bench", "ops", "-f", "copy", "-r", "1", "-o", "json"))
        self.assertEqual(list(report["machine"]), MACHINE_KEYS)
        self.assertEqual([row["family"] for row in report["results"]], ["copy", "copy"])
        for row in report["results"]:
            self.assertEqual(list(row), self.KEYS)
            self.assertGreater(row["gb_per_s"], 0)

    def test_bad_devices_and_peers(self):
        for arguments, code, words in [(["--device", "gpu"], 2, "found 'gpu', expected cpu, cuda or cuda:N"),
                                       (["--device", "cuda:99"], 3, "there is no device cuda:99"),
                                       (["--peer", "/no/such/file"], 2, "/no/such/file"),
                                       (["--peer", "/etc/passwd"], 3, "the peer /etc/passwd does not answer")]:
            run = deft("bench", "ops", "-f", "copy", "-r", "1", *arguments)
            self.assertEqual((run.returncode, run.stdout), (code, ""), run.stderr)
            self.assertIn(words, run.stderr)


# Answers every case in so many microseconds. Started as `python3 FILE NAME MICROSECONDS`.
FAKE_PEER = """
import json, sys
for line in sys.stdin:
    case = line.strip().partition("\\t")[0]
    print(json.dumps({"case": case, "peer": sys.argv[1], "ns_per_op": int(sys.argv[2]) * 1000}), flush=True)
"""


class BenchEngine(unittest.TestCase):
    VERBS = {"gemm": ({"bert", "resnet50", "small", "gemv"}, {"f32", "bf16", "bf16bf16", "f16", "u8s8", "s8s8"}),
             "conv": ({"forward", "backward data", "backward weights", "total"}, {"f32", "bf16", "int8"}),
             "attention": ({"forward", "backward"}, {"f32", "bf16"}),
             "rows": ({"forward", "backward"}, {"f32", "bf16"})}
    KEYS = ["case", "family", "dtype", "variant", "threads", "count", "ms", "gflops", "gb_per_s", "peak",
            "percent_of_peak", "scaling", "peer", "peer_ms", "peer_ratio", "error", "error_bound"]
    BAR_KEYS = ["bar", "unit", "must", "aim", "value", "worst", "worst_case", "rows"]

    def report(self, verb, *arguments):
        return Reports.get("bench", verb, "--quick", *arguments)

    def rows(self, verb):
        return [row for row in self.report(verb)["results"] if row["family"] != "total"]

    def test_reports(self):
        for verb, (families, dtypes) in self.VERBS.items():
            with self.subTest(verb=verb):
                report = self.report(verb)
                self.assertEqual(list(report), ["schema", "machine", "results", "peaks", "bars"])
                self.assertEqual(list(report["machine"]), MACHINE_KEYS)
                self.assertEqual(report["machine"]["threads"], 1)
                for row in report["results"]:
                    self.assertEqual(list(row), self.KEYS)
                    self.assertGreater(row["ms"], 0)
                    self.assertGreater(row["percent_of_peak"], 0)
                self.assertEqual({row["family"] for row in report["results"]}, families)
                # Products of unsigned bytes are there where the machine has instructions for them.
                self.assertLessEqual(dtypes - {"u8s8"}, {row["dtype"] for row in report["results"]})
                names = {peak["peak"] for peak in report["peaks"]}
                self.assertLessEqual({row["peak"] for row in self.rows(verb)}, names)
                for peak in report["peaks"]:
                    self.assertEqual(list(peak), ["peak", "threads", "gflops", "gb_per_s"])
                    self.assertGreater(peak["gflops"] or peak["gb_per_s"], 0)

    def test_bars_are_made_of_rows(self):
        for verb in self.VERBS:
            bars = self.report(verb)["bars"]
            self.assertGreaterEqual(len(bars), 2)
            for bar in bars:
                with self.subTest(verb=verb, bar=bar["bar"]):
                    self.assertEqual(list(bar), self.BAR_KEYS)
                    self.assertLess(bar["must"], bar["aim"])
                    self.assertLessEqual(bar["worst"], bar["value"])
                    self.assertIn(bar["worst_case"], [row["case"] for row in self.report(verb)["results"]])

    def test_errors_stay_within_their_bounds(self):
        for verb in self.VERBS:
            for row in self.rows(verb):
                with self.subTest(case=row["case"], variant=row["variant"]):
                    self.assertLessEqual(row["error"], row["error_bound"])

    def test_bytes_and_copies_are_exact(self):
        exact = [row for verb in self.VERBS for row in self.rows(verb)
                 if row["dtype"] in ("int8", "s8s8", "u8s8") or row["case"].startswith(("copy", "transpose"))]
        self.assertGreater(len(exact), 5)
        for row in exact:
            self.assertEqual((row["error"], row["error_bound"]), (0, 0), row["case"])

    def test_totals_count_every_convolution(self):
        report = self.report("conv")
        parts = [row for row in self.rows("conv") if (row["dtype"], row["variant"]) == ("f32", "prepacked")]
        total = next(row for row in report["results"] if row["case"] == "forward, prepacked: all 4")
        self.assertEqual(sum(row["count"] for row in parts), 4)
        self.assertAlmostEqual(total["ms"], sum(row["count"] * row["ms"] for row in parts), delta=1e-5)

    def test_family_and_dtype_choose(self):
        report = self.report("gemm", "-f", "small", "--dtype", "bf16")
        self.assertEqual({(row["family"], row["dtype"]) for row in report["results"]}, {("small", "bf16")})

    def test_two_threads_are_compared_with_one(self):
        report = self.report("gemm", "-t", "2", "--dtype", "f32", "-f", "bert")
        self.assertEqual({row["threads"] for row in report["results"]}, {2})
        scaling = [row for row in report["results"] if row["family"] == "scaling"]
        self.assertEqual(len(scaling), 2)
        for row in scaling:
            self.assertTrue(row["case"].endswith("2 threads over 1"))
            self.assertGreater(row["scaling"], 0)
        self.assertIn("threads", [bar["bar"] for bar in report["bars"]])

    def test_the_fastest_peer_counts(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(FAKE_PEER)
            file.flush()
            peers = [f"{sys.executable} {file.name} slow 900000", f"python3 {file.name} fast 800000"]  # by PATH
            for count in (1, 2):
                flags = [word for peer in peers[:count] for word in ("--peer", peer)]
                report = json.loads(result_of("bench", "attention", "--quick", "-o", "json", *flags))
                for row in report["results"]:
                    self.assertEqual((row["peer"], row["peer_ms"]), (("slow", 900), ("fast", 800))[count - 1])
                    ratio = row["peer_ms"] / row["ms"]
                    self.assertAlmostEqual(row["peer_ratio"], ratio, delta=0.001 * ratio)

    def test_tables(self):
        text = result_of("bench", "rows", "--quick", "--dtype", "f32")
        headers = [line for line in text.splitlines() if line.startswith(("| case ", "| peak ", "| bar "))]
        self.assertEqual(len(headers), 3)
        rows = list(csv.DictReader(io.StringIO(result_of("bench", "rows", "--quick", "-o", "csv", "--dtype", "f32"))))
        self.assertEqual(list(rows[0]), self.KEYS)

    def test_bad_words(self):
        for arguments, code, words in [(["gemm", "-f", "bret"], 2, "did you mean 'bert'?"),
                                       (["conv", "--dtype", "f23"], 2, "did you mean 'f32'?"),
                                       (["rows", "--peer", "/no/such/file"], 2, "found '/no/such/file'"),
                                       (["rows", "--peer", "no-such-program 1"], 2, "found 'no-such-program 1'"),
                                       (["rows", "--peer", "/etc/passwd"], 3, "the peer /etc/passwd does not answer"),
                                       (["attention", "--no-library-peers"], 2, "unknown flag")]:
            run = deft("bench", *arguments)
            self.assertEqual((run.returncode, run.stdout), (code, ""), run.stderr)
            self.assertIn(words, run.stderr)


class Schema(unittest.TestCase):
    def check_report(self, report, keys, machine_keys):
        self.assertEqual(list(report), ["schema", "machine", "results"])
        self.assertEqual(report["schema"], 1)
        self.assertEqual(list(report["machine"]), machine_keys)
        self.assertGreater(len(report["results"]), 0)
        for row in report["results"]:
            self.assertEqual(list(row), keys)
            self.assertIn(row["mode"], MODES)
            for key, value in row.items():
                if key.endswith(("_ms", "_mb", "_op", "_ratio")) and value is not None:
                    self.assertIsInstance(value, (int, float), key)
                    self.assertGreaterEqual(value, 0, key)

    def test_overhead(self):
        report = Reports.overhead()
        self.check_report(report, OVERHEAD_KEYS, MACHINE_KEYS + ["instruction_counter"])
        self.assertEqual(report["machine"]["threads"], 1)
        self.assertIn(report["machine"]["instruction_counter"], {"perf", "ptrace", "unavailable"})
        measured = [(row["case"], row["mode"]) for row in report["results"]]
        expected = [(case, mode) for case in OVERHEAD_CASES for mode in ["grad", "no_grad", "inference"]
                    if mode == "grad" or "backward" not in case]
        self.assertEqual(measured, expected)
        for row in report["results"]:
            self.assertGreater(row["ns_per_op"], 0)
            self.assertIsNone(row["peer"])

    def test_modes(self):
        report = Reports.modes()
        self.check_report(report, MODES_KEYS, MACHINE_KEYS)
        rows = [(row["case"], row["mode"], row["pass"]) for row in report["results"]]
        passes = [("grad", "forward+backward"), ("grad", "forward"), ("no_grad", "forward"), ("inference", "forward")]
        self.assertEqual(rows, [(model, *row) for model in ("mlp", "cnn") for row in passes])
        for row in report["results"]:
            self.assertEqual((row["samples"], row["batch"]), (2, 2))
            self.assertLessEqual(row["p50_ms"], row["p99_ms"])
            self.assertGreater(row["peak_mb"], 0)

    def test_csv_has_the_same_keys(self):
        rows = list(csv.DictReader(io.StringIO(
            result_of("bench", "modes", "-m", "mlp", "-r", "1", "-b", "1", "-o", "csv"))))
        self.assertEqual(list(rows[0]), MODES_KEYS)
        self.assertEqual(len(rows), 4)
        self.assertGreater(float(rows[0]["p50_ms"]), 0)

    def test_markdown_is_a_table(self):
        lines = [line for line in result_of("bench", "modes", "-m", "mlp", "-r", "1").splitlines() if line[:1] == "|"]
        self.assertEqual(len(lines), 2 + 4)
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertEqual(len({len(line) for line in lines}), 1)


class Promises(unittest.TestCase):
    def test_nothing_is_saved_for_backward_without_grad(self):
        for row in Reports.modes()["results"]:
            with self.subTest(row=row):
                if row["mode"] == "grad":
                    self.assertGreater(row["saved_for_backward_mb"], 0)
                else:
                    self.assertEqual(row["saved_for_backward_mb"], 0)

    def test_peak_memory_falls_without_grad(self):
        for model in ("mlp", "cnn"):
            peak = {(row["mode"], row["pass"]): row["peak_mb"] for row in Reports.modes()["results"]
                    if row["case"] == model}
            self.assertLess(peak["no_grad", "forward"], peak["grad", "forward"])
            self.assertLess(peak["inference", "forward"], peak["grad", "forward"])
            self.assertLess(peak["grad", "forward"], peak["grad", "forward+backward"])

    def released_rows(self):
        report = Reports.overhead()
        if report["machine"]["build_type"] != "Release":
            self.skipTest("limits hold for Release builds only")
        return {(row["case"], row["mode"]): row for row in report["results"]}

    def test_instructions_of_an_op(self):
        rows = self.released_rows()
        if Reports.overhead()["machine"]["instruction_counter"] == "unavailable":
            self.skipTest("no way to count instructions on this machine")
        limits = {("add", "inference"): 1000, ("add", "grad"): 2200, ("mul+sum+backward", "grad"): 6500}  # stack guards: 7 %
        for case, limit in limits.items():
            with self.subTest(case=case):
                self.assertGreater(rows[case]["instructions_per_op"], 50)  # something was counted
                self.assertLessEqual(rows[case]["instructions_per_op"], limit)

    def test_small_ops_do_not_touch_the_heap(self):
        rows = self.released_rows()
        for case in OVERHEAD_CASES[:4]:
            for mode in MODES:
                with self.subTest(case=case, mode=mode):
                    self.assertEqual(rows[case, mode]["heap_allocs_per_op"], 0)


if __name__ == "__main__":
    unittest.main()
