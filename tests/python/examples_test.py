"""Every file in examples/python runs, each in a process of its own, and so it does with PyTorch where that is installed."""

import pathlib
import re
import subprocess
import sys
import unittest

from torch_python import torch_python

EXAMPLES = sorted((pathlib.Path(__file__).resolve().parents[2] / "examples/python").glob("*.py"))


def run(python, *arguments):
    return subprocess.run([python, "-W", "ignore", *arguments], capture_output=True, text=True, timeout=240)


class Examples(unittest.TestCase):
    def test_run(self):
        self.assertGreaterEqual(len(EXAMPLES), 8)
        for path in EXAMPLES:
            with self.subTest(path.name):
                self.assertLessEqual(len(path.read_text().splitlines()), 80)
                done = run(sys.executable, str(path))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotEqual(done.stdout, "")

    def test_the_same_with_one_import_changed(self):
        python = torch_python()
        if python is None:
            self.skipTest("PyTorch is not installed; ./dev torch installs it")
        for path in EXAMPLES:
            with self.subTest(path.name):
                code = path.read_text().replace("import deft as torch", "import torch")
                code = re.sub(r"^(import|from) deft", r"\1 torch", code, flags=re.M)
                self.assertNotIn("deft", re.sub('""".*?"""', "", code, flags=re.S))
                theirs, ours = run(python, "-c", code), run(sys.executable, str(path))
                self.assertEqual(theirs.returncode, 0, theirs.stderr)
                if path.name != "profile_a_step.py":  # times
                    self.assertEqual(theirs.stdout.replace("torch.", "deft."), ours.stdout)


if __name__ == "__main__":
    unittest.main()
