"""deft doctor SCRIPT.py: seeded mistakes are found at their lines, clean scripts have none, and nothing a script does changes."""

import os
import re
import sys
import unittest

os.environ["OMP_NUM_THREADS"] = "1"

from torch_python import torch_python

python = torch_python()
if python is None:
    print("skipped: no PyTorch; ./dev torch installs it, or DEFT_TORCH_PYTHON names a Python of this version that has it")
    sys.exit(77)
if python != sys.executable:
    os.execv(python, [python, *sys.argv])

import torch
import torch._dynamo  # optimizers load it

from doctor_process import SCRIPTS, run

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

    return test


def _clean(script):
    def test(self):
        plain, watched = run(script, doctor=False), run(script)
        self.assertEqual((watched.code, watched.out), (plain.code, plain.out), watched.err)
        self.assertEqual(watched.findings(), set())

    return test


for script in sorted(SCRIPTS.glob("*.py")):
    setattr(SeededMistakes, "test_" + script.stem, _seeded(script))
for script in sorted((SCRIPTS / "clean").glob("*.py")):
    setattr(CleanScripts, "test_" + script.stem, _clean(script))

if __name__ == "__main__":
    unittest.main()
