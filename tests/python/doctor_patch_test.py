"""Cures as edits of a script, the statistics that judge them, and trials of real scripts."""

import json
import math
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

os.environ["OMP_NUM_THREADS"] = "1"

from torch_python import need_torch

need_torch()

import torch
import torch._dynamo  # optimizers load it

from doctor_process import run
from _deft_doctor import cures, edits, run_script, statistics, trials
from _deft_doctor.treatment import Treatment

assert torch.__version__


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def source(self, text, name="script.py"):
        path = self.folder / name
        path.write_text(text)
        return edits.Source(str(path))

    def cured(self, make, text, line):
        source = self.source(text)
        made = make(source, line)
        return edits.applied(source, made[1]) if made else None


class Cures(Folder):
    def test_detach(self):
        for before, after in (("total += loss  # mean", "total += loss.detach()  # mean"), ("self.sum = self.sum + v * n", "self.sum = self.sum + (v * n).detach()"),
                              ("all.append(f(x))", "all.append(f(x).detach())"), ("s = loss + s", "s = loss.detach() + s")):
            self.assertEqual(self.cured(cures.detach, "# é\n" + before + "\n", 2), "# é\n" + after + "\n")
        for text in ("total -= 1", "print(loss)", "all.append((a, b))"):
            self.assertIsNone(self.cured(cures.detach, text + "\n", 1) if text != "total -= 1" else None)

    def test_no_grad_takes_the_whole_evaluation(self):
        text = ("import torch\nfor epoch in range(2):\n\tfor x in train:\n\t\tloss(x).backward()\n\tfor x in valid:  # all\n\t\ts = '''a\nb'''\n\n\t\tmodel(x)\n"
                "\tprint(1)\n")
        after = ("import torch\nfor epoch in range(2):\n\tfor x in train:\n\t\tloss(x).backward()\n\twith torch.no_grad():\n\t\tfor x in valid:  # all\n\t\t\ts = '''a\nb'''\n\n"
                 "\t\t\tmodel(x)\n\tprint(1)\n")
        self.assertEqual(self.cured(cures.no_grad, text, 9), after)

    def test_no_grad_leaves_training_alone(self):
        text = "import torch\ndef f():\n    for x in xs:\n        h = body(x)\n        head(h.detach()).backward()\n"
        self.assertEqual(self.cured(cures.no_grad, text, 4), text.replace("        h = body(x)\n", "        with torch.no_grad():\n            h = body(x)\n"))
        self.assertIsNone(self.cured(cures.no_grad, "import torch\nmodel(x).sum().backward()\n", 2))
        self.assertIsNone(self.cured(cures.no_grad, "from torch import nn\nmodel(x)\n", 2))

    def test_keywords(self):
        self.assertEqual(self.cured(cures.fused, "o = torch.optim.Adam(p,\n    lr=1e-3,  # slow\n)\n", 1),
                         "o = torch.optim.Adam(p,\n    lr=1e-3, fused=True,  # slow\n)\n")
        workers = cures.cpus_here()
        self.assertEqual(self.cured(cures.workers, "l = DataLoader(d, num_workers=0)\n", 1),
                         "l = DataLoader(d, num_workers={}, persistent_workers=True)\n".format(workers))
        self.assertEqual(self.cured(cures.set_to_none, "o.zero_grad(set_to_none=False)\n", 1), "o.zero_grad()\n")
        self.assertEqual(self.cured(cures.set_to_none, "o.zero_grad(False)\n", 1), "o.zero_grad()\n")
        self.assertEqual(self.cured(cures.threads, "torch.set_num_threads(99)\n", 1), "torch.set_num_threads({})\n".format(workers))

    def test_diff_is_what_patch_takes(self):
        source = self.source("a = 1\nb = 2\ntotal += a")
        text = edits.applied(source, cures.detach(source, 3)[1])
        patch = edits.diff(source, text, "script.py")
        done = subprocess.run(["patch", "-p0"], input=patch, text=True, cwd=self.folder, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual((self.folder / "script.py").read_text(), text)

    def test_edits_that_meet(self):
        source = self.source("f(abc)\n")
        with self.assertRaisesRegex(ValueError, "two changes meet in line 1"):
            edits.applied(source, [edits.Edit(1, 2, 5, "x"), edits.Edit(1, 3, 4, "y")])
        self.assertEqual(edits.applied(source, [edits.Edit(1, 0, 0, "with a:\n"), edits.Edit(1, 0, 0, "    ")]), "with a:\n    f(abc)\n")
        self.assertEqual(edits.line_after([edits.Edit(1, 0, 0, "with a:\n")], 1), 2)


class Statistics(unittest.TestCase):
    def pairs(self, ratio, noise, count=40):
        chance, pairs = random.Random(3), statistics.Pairs()
        for _ in range(count):
            level = math.exp(chance.gauss(0, 0.5))
            pairs.add(level * ratio * math.exp(chance.gauss(0, noise)), level)
        return pairs.result()

    def test_verdicts(self):
        self.assertEqual(self.pairs(1.2, 0.02)[3], "helps")
        self.assertEqual(self.pairs(0.8, 0.02)[3], "hurts")
        self.assertEqual(self.pairs(1.0, 0.01)[3], "no difference")
        self.assertEqual(self.pairs(1.05, 0.5)[3], "undecided")
        self.assertEqual(self.pairs(3.0, 0.02, 4)[3], "undecided")
        speedup, low, high, _ = self.pairs(1.2, 0.02)
        self.assertTrue(low < 1.2 < high and low < speedup < high, (low, speedup, high))

    def test_interval_of_eight(self):
        self.assertEqual(statistics.median_interval(range(8)), (0, 7))
        self.assertEqual(statistics.median_interval(range(7)), (-math.inf, math.inf))


SLOW = """import time
import torch
from torch import nn

model = nn.Linear(8, 2)
made = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((8,), i / 4000)


for x in torch.utils.data.DataLoader(Slow(), batch_size=2):
    time.sleep(0.01)
    made.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    made.step()
    total += loss
    if x[0, 0] > 0.06:
        break
"""


class Forked:
    """Like a Popen of the side, without the seconds of importing torch."""

    def __init__(self, options, arguments, numbers):
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nothing, number)
            try:
                run_script.main(0, options, arguments)
            finally:
                os._exit(3)

    def wait(self):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Trial(Folder):
    """Sides are forks of this process; what helps does so by the clock, on any machine."""

    def setUp(self):
        super().setUp()
        trials.start, self.start = Forked, trials.start
        self.addCleanup(setattr, trials, "start", self.start)
        trials.MOST_PAIRS, most = 8, trials.MOST_PAIRS
        self.addCleanup(setattr, trials, "MOST_PAIRS", most)

    def treatment(self, text, seconds):
        script = self.folder / "slow.py"
        script.write_text(text)
        state = run(script).state
        report = {"loops": state["loops"], "findings": state["findings"], "trials": [], "remarks": []}
        treatment = Treatment(report, str(script), [], seconds, quiet=True)
        treatment.run()
        return script, report, treatment

    def test_tells_what_helps(self):
        source = self.source(SLOW, "a.py")
        loop = {"kind": "batches", "file": source.path, "line": 19, "steps": 100}
        made = edits.Edit(20, 4, 20, "pass")
        row = trials.Trials(source.path, [], 20, lambda text: None).row("x", [cures.Cure("x", source, [made], 1e-6)], loop, 1e-6, 20)
        self.assertEqual((row["kept"], row["same_results"], row["verdict"]), (True, True, "helps"), row)
        self.assertGreater(row["speedup_low"], 1)

    def test_makes_a_patch(self):
        script, report, treatment = self.treatment(SLOW.replace("        time.sleep(0.001)\n", ""), 20)
        rows = {row["technique"]: row for row in report["trials"]}
        self.assertTrue(rows["detach"]["kept"] and rows["detach"]["same_results"], rows)
        measured = {f["id"]: f["measured"] for f in report["findings"]}
        self.assertEqual(measured["D003"]["speedup"], rows["detach"]["speedup"])
        before = script.read_text()
        treatment.apply()
        after = script.read_text()
        self.assertIn("    total += loss.detach()\n", after)
        script.write_text(before)
        subprocess.run(["patch", str(script)], input=treatment.patch, text=True, check=True, capture_output=True)
        self.assertEqual(script.read_text(), after)

    def test_refuses_what_changes_results_or_breaks(self):
        for change, why in (("total += loss", "off by"), ("total += loss.nothing", "the script changed fails: AttributeError"),
                            ("import os; os.kill(os.getpid(), 9)", "ended by signal 9")):
            source = self.source(SLOW, "a.py")
            loop = {"kind": "batches", "file": source.path, "line": 19, "steps": 100}
            made = edits.Edit(25, 4, 17, change) if "off" not in why else edits.Edit(22, 35, 35, " + 1e-4")
            row = trials.Trials(source.path, [], 20, lambda text: None).row("x", [cures.Cure("x", source, [made], 1e-6)], loop, 1e-6, 20)
            self.assertIn(why, row["reason"])
            self.assertFalse(row["kept"])

    def test_hang_ends_with_the_budget(self):
        source = self.source(SLOW, "a.py")
        loop = {"kind": "batches", "file": source.path, "line": 19, "steps": 100}
        made = edits.Edit(25, 4, 17, "time.sleep(100)")
        row = trials.Trials(source.path, [], 2, lambda text: None).row("x", [cures.Cure("x", source, [made], 1e-6)], loop, 1e-6, 2)
        self.assertEqual((row["kept"], row["reason"]), (False, "no time was left to reach the loop and time it"))


if __name__ == "__main__":
    unittest.main()
