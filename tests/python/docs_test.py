"""The Python blocks of the guides, each with what it prints; and the stubs are those of the package."""

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import unittest

from torch_python import torch_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


PAGES = ("python.md", "coming_from_pytorch.md")


class Page(unittest.TestCase):
    def test_blocks_print_what_the_pages_say(self):
        for page in PAGES:
            fences = FENCE.findall((ROOT / "docs/guide" / page).read_text())
            self.assertIn("python", [kind for kind, _ in fences])
            for (kind, code), (next_kind, expected) in zip(fences, fences[1:] + [("", "")]):
                if kind == "python":
                    with self.subTest(page, code=code.splitlines()[:4]):
                        printed = self.run_with_torch(code) if re.search(r"^import .*torch", code, re.M) else self.run_here(code)
                        if next_kind == "text":
                            self.assertEqual(printed, expected)

    def run_here(self, code):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {"__name__": "page"})
        return out.getvalue()

    def run_with_torch(self, code):
        python = torch_python()
        if python is None:
            self.skipTest("this block needs PyTorch; ./dev torch installs it")
        run = subprocess.run([python, "-W", "ignore", "-c", code], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_stubs_are_up_to_date(self):
        run = subprocess.run([sys.executable, ROOT / "tools/python_stubs", "--check"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    unittest.main()
