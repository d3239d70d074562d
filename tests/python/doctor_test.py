"""deft doctor SCRIPT.py: seeded mistakes are found at their lines, clean scripts have none, and nothing a script does changes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

os.environ["OMP_NUM_THREADS"] = "1"

from torch_python import need_torch

need_torch()

import torch
import torch._dynamo  # optimizers load it

from doctor_process import FOLDER, SCRIPTS, run

assert torch.__version__


def expected(script):
    """The lines that end with `# finds D003`."""
    found = set()
    for number, line in enumerate(script.read_text().splitlines(), 1):
        for rule in re.findall(r"# finds ((?:D\d+ ?)+)", line):
            found.update((name, number) for name in rule.split())
    return found


class SeededMistakes(unittest.TestCase):
    """A test for each script, made below."""


class CleanScripts(unittest.TestCase):
    pass


def _seeded(script):
    def test(self):
        wanted = expected(script)
        self.assertTrue(wanted, script)
        outcome = run(script)
        self.assertEqual(outcome.findings(), wanted, outcome.err + str(outcome.state))
        self.assertEqual(outcome.state["faults"], [])

    return test


def _clean(script):
    def test(self):
        plain, watched = run(script, doctor=False), run(script)
        self.assertEqual((watched.code, watched.out), (plain.code, plain.out), watched.err)
        self.assertEqual((watched.findings(), watched.state["faults"]), (set(), []))

    return test


class Times(unittest.TestCase):
    def test_known_shares(self):
        outcome = run(SCRIPTS / "timed" / "shares.py")
        said = json.loads(outcome.out)
        loop = next(loop for loop in outcome.state["loops"] if loop["profile"])
        profile, buckets = loop["profile"], {b["name"]: b["s"] for b in loop["profile"]["buckets"]}
        self.assertAlmostEqual(profile["sum_s"] / profile["wall_s"], 1, delta=0.001)
        last = 10 + loop["timed_steps"]  # eight are looked at, two are left out
        self.assertEqual(loop["timed_steps"], 20)
        wall = said["begins"][last] - said["begins"][10]
        self.assertAlmostEqual(profile["wall_s"] / wall, 1, delta=0.1)
        for name, times in said["spent"].items():
            self.assertAlmostEqual(buckets[name] / profile["wall_s"], sum(times[10:last]) / wall, delta=0.05, msg="%s of %s" % (name, buckets))
        by_line = {line["line"]: line["s"] for line in profile["lines"]}
        source = (SCRIPTS / "timed" / "shares.py").read_text().splitlines()
        for text, name in (("pipe.write", "logging and I/O"), ("time.sleep(REST)", "data wait")):
            line = next(n for n, l in enumerate(source, 1) if l.strip().startswith(text))
            self.assertAlmostEqual(by_line.get(line, 0) / profile["wall_s"], sum(said["spent"][name][10:last]) / wall, delta=0.08, msg=text)
        ops = {(op["name"], op["bucket"]) for op in profile["ops"]}
        self.assertIn(("aten::mm", "linear algebra"), ops)


class Command(unittest.TestCase):
    """The command as its users start it, on scripts that need no torch: importing that takes seconds."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def script(self, text, name="script.py"):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text)
        return str(path)

    def doctor(self, *arguments, **more):
        return subprocess.run([sys.executable, str(FOLDER), *arguments], cwd=self.folder.name, capture_output=True, text=True, timeout=60, **more)

    def says(self, sentence, code, *arguments, **more):
        done = self.doctor(*arguments, **more)
        self.assertIn(sentence, " ".join(done.stderr.split()))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("Traceback", done.stderr.replace("Traceback (most recent call last):\n  File \"%s" % self.folder.name, ""))
        return done

    def test_no_script(self):
        self.says("expected the path of a Python script", 2)
        self.says("there is no file nothing.py", 2, "nothing.py")
        self.says("is a folder", 2, ".")

    def test_no_python(self):
        self.says("is no Python that Python 3", 2, self.script("def f(:\n"))

    def test_report_that_cannot_be_written(self):
        script = self.script("print(1)")
        self.says("expected a name that ends with .json, .sarif or .html", 2, "--report", "a.txt", script)
        done = self.says("there is no folder", 2, "--report", "none/a.json", script)
        self.assertEqual(done.stdout, "")

    def test_no_torch(self):
        done = self.says("never imported torch", 0, self.script("print('a' * 3)"))
        self.assertEqual(done.stdout, "aaa\n")

    def test_is_run_as_python_runs_it(self):
        self.script("VALUE = 5", "beside.py")
        script = self.script("import beside, sys, os\nprint(__name__, __file__, sys.argv, sys.path[0], beside.VALUE, __spec__, input())\n"
                             "print(sorted(k for k in os.environ if 'DEFT' in k or 'KINETO' in k), __package__, __cached__)\nsys.exit(7)")
        plain = subprocess.run([sys.executable, script, "a", "--b=1"], input="in\n", cwd=self.folder.name, capture_output=True, text=True)
        watched = self.doctor(script, "--", "a", "--b=1", input="in\n")
        self.assertEqual((watched.stdout, watched.returncode), (plain.stdout, 7), watched.stderr)
        self.assertIn("reads from the terminal or stdin", " ".join(watched.stderr.split()))

    def test_error_of_the_script(self):
        script = self.script("def f():\n    raise KeyError('x')\nf()")
        plain = subprocess.run([sys.executable, script], capture_output=True, text=True)
        done = self.says("failed with KeyError at script.py:2", 1, script)
        self.assertTrue(done.stderr.startswith(plain.stderr), done.stderr)

    def test_missing_package_and_arguments(self):
        self.says("needs a package that this Python lacks", 1, self.script("import no_such_package"))
        self.says("scripts do that miss arguments", 2, self.script(
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()"))

    def test_process_that_ends_hard(self):
        self.says("ended its own process (os._exit or exec) with exit code 3", 3, self.script("import os\nos._exit(3)"))
        self.says("ended by signal 9", 137, self.script("import os\nos.kill(os.getpid(), 9)"))

    def test_options_before_and_behind_the_script(self):
        script = self.script("import sys\nprint(sys.argv[1:])")
        for words, seen in ((["-q", script, "--steps", "3"], "['--steps', '3']"), (["-q", script, "--", "--steps", "3"], "['--steps', '3']"),
                            ([script, "-q", "--report", "b.json", "--", "-e", "1"], "['-e', '1']")):
            done = self.doctor(*words)
            self.assertEqual((done.stdout.strip(), done.stderr, done.returncode), (seen, "", 0), words)
        self.assertTrue(pathlib.Path(self.folder.name, "b.json").exists())

    def test_json_and_sarif(self):
        done = self.doctor("--report", "a.json", "--report", "a.sarif", "--report", "a.html", "-q", self.script("print(1)"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads(pathlib.Path(self.folder.name, "a.json").read_text())
        self.assertEqual((report["kind"], report["findings"]), ("script", []))
        log = json.loads(pathlib.Path(self.folder.name, "a.sarif").read_text())
        self.assertGreaterEqual(len(log["runs"][0]["tool"]["driver"]["rules"]), 26)

    def interrupted(self, setup):
        """The report after Ctrl-C, the seconds it took, and the process group's members that are left."""
        script = self.script("import os, signal, time\n" + setup + "\nprint(os.getpid(), flush=True)\ntime.sleep(60)")
        process = subprocess.Popen([sys.executable, str(FOLDER), script], cwd=self.folder.name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        first = process.stdout.readline()
        number = int(first)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
        took = time.monotonic() - began
        with self.assertRaises(ProcessLookupError):
            os.kill(number, 0)
        return " ".join(err.split()), took, process.returncode

    def test_ctrl_c(self):
        err, took, code = self.interrupted("")
        self.assertIn("stopped by Ctrl-C; this is what was known", err)
        self.assertEqual(code, 130)
        self.assertLess(took, 10)

    def test_ctrl_c_that_the_script_ignores(self):
        err, took, code = self.interrupted("signal.signal(signal.SIGINT, signal.SIG_IGN)")
        self.assertIn("stopped by Ctrl-C, and ended since it did not end by itself", err)
        self.assertNotEqual(code, 0)


for script in sorted(SCRIPTS.glob("*.py")):
    setattr(SeededMistakes, "test_" + script.stem, _seeded(script))
for script in sorted((SCRIPTS / "clean").glob("*.py")):
    setattr(CleanScripts, "test_" + script.stem, _clean(script))

if __name__ == "__main__":
    unittest.main()
