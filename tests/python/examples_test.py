"""Every program in examples/python runs, each in a process of its own, and so it does with PyTorch where that is installed."""

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
import unittest

from torch_python import torch_python

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/python"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def run(python, *arguments):
    return subprocess.run([python, "-W", "ignore", *arguments], capture_output=True, text=True, timeout=240)


class Notebooks(unittest.TestCase):
    """Their code cells, run in order without Jupyter, print what the notebook shows."""

    def test_cells(self):
        notebooks = sorted(FOLDER.glob("*.ipynb"))
        self.assertTrue(notebooks)
        for path in notebooks:
            names, ran = {"__name__": "notebook"}, 0
            for cell in json.loads(path.read_text())["cells"]:
                if cell["cell_type"] != "code":
                    continue
                out = io.StringIO()
                with self.subTest(f"{path.name}: {cell['source'][0]}"), contextlib.redirect_stdout(out):
                    exec("".join(cell["source"]), names)
                ran += 1
                self.assertEqual(out.getvalue(), "".join("".join(output["text"]) for output in cell["outputs"]))
                self.assertEqual(cell["execution_count"], ran)
            self.assertGreater(ran, 5)


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
