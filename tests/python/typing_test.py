"""The stubs are sound, and a type checker sees through them what is right and what is wrong in tests/python/typing_sample.py."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests/python/typing_sample.py"


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed; ./dev setup installs it")
class Types(unittest.TestCase):
    def check(self, *files):
        """What mypy says, as (file, line, kind, text)."""
        cache = os.path.join(os.environ.get("DEFT_CACHE_DIR", tempfile.gettempdir()), "mypy")
        run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", cache, *map(str, files)],
                             capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(ROOT / "python")}, cwd=ROOT / "python")
        self.assertIn(run.returncode, (0, 1), run.stdout + run.stderr)
        return re.findall(r"^(.+?):(\d+): (error|note): (.*)$", run.stdout, re.M)

    def test_a_program(self):
        lines = SAMPLE.read_text().splitlines()
        found = self.check(SAMPLE)
        wrong = {int(line) for file, line, kind, _ in found if kind == "error"}
        self.assertEqual(wrong, {i for i, line in enumerate(lines, 1) if line.endswith("# error")}, found)
        types = {int(line): re.sub(r"(\w+\.)+", "", text.split('"')[1]) for _, line, kind, text in found if "Revealed type" in text}
        expected = {i: line.split("# ")[1] for i, line in enumerate(lines, 1) if "reveal_type" in line}
        self.assertEqual(types, expected)

    def test_the_stubs(self):
        found = self.check(*sorted((ROOT / "python/deft").rglob("*.pyi")))
        self.assertEqual([row for row in found if row[2] == "error"], [])


if __name__ == "__main__":
    unittest.main()
