"""The Python blocks of docs/guide/python.md, each with what it prints; and the stubs are those of the package."""

import contextlib
import importlib.util
import io
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


class Page(unittest.TestCase):
    def test_blocks_print_what_the_page_says(self):
        fences = FENCE.findall((ROOT / "docs/guide/python.md").read_text())
        for (kind, code), (next_kind, expected) in zip(fences, fences[1:] + [("", "")]):
            if kind != "python":
                continue
            with self.subTest(code.splitlines()[0:4]):
                if "import torch" in code and not importlib.util.find_spec("torch"):
                    self.skipTest("this block needs PyTorch, which is not installed")
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(code, {"__name__": "page"})
                if next_kind == "text":
                    self.assertEqual(out.getvalue(), expected)

    def test_stubs_are_up_to_date(self):
        run = subprocess.run([sys.executable, ROOT / "tools/python_stubs", "--check"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
