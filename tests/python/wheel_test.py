"""What a wheel installs, in an empty environment without NumPy: the package, the library, and the command, which shares it.

The files are those of the build tree, installed by the rules that a wheel uses; with DEFT_WHEEL=FILE a real wheel is installed
(./dev wheel)."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 30_000_000
LOOP = """
import os, tempfile
import deft
from deft import nn, optim

deft.manual_seed(0)
x = deft.randn(128, 2)
t = (x[:, 0] * x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = optim.AdamW(model.parameters(), lr=0.02)
for _ in range(200):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), t).backward()
    optimizer.step()
path = os.path.join(tempfile.mkdtemp(), "model.pt")
deft.save(model.state_dict(), path)
again = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
again.load_state_dict(deft.load(path))
assert again(x).tolist() == model(x).tolist()
print(deft.__file__)
print("learned" if (again(x).argmax(1) == t).float().mean() > 0.9 else "did not learn")
"""


def install_build(environment, packages):
    """What the wheel's build backend does, without building anything."""
    build = os.environ["DEFT_BUILD"]
    subprocess.run(["cmake", "--install", build, "--component", "python", "--prefix", packages, "--strip"], check=True, capture_output=True)
    for library in (packages / "deft").glob("*.so.*.*.*"):
        library.rename(library.with_name(library.name.rsplit(".", 1)[0]))  # wheels hold no links
    shutil.copytree(ROOT / "python/deft", packages / "deft", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    script = packages / "bin/deft"
    started_by = script.read_text().replace("#!python", f"#!{environment / 'bin/python'}", 1)
    (environment / "bin/deft").write_text(started_by)
    (environment / "bin/deft").chmod(0o755)
    shutil.rmtree(packages / "bin")


def install_wheel(environment, packages, wheel):
    subprocess.run([sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "--no-deps", "--no-index", wheel],
                   check=True, capture_output=True)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.environment = pathlib.Path(folder.name, "environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", cls.environment], check=True)
        cls.packages = pathlib.Path(sysconfig.get_path("platlib", "venv", {"base": str(cls.environment), "platbase": str(cls.environment)}))
        wheel = os.environ.get("DEFT_WHEEL")
        install_wheel(cls.environment, cls.packages, wheel) if wheel else install_build(cls.environment, cls.packages)

    def run_there(self, *command):
        run = subprocess.run(command, capture_output=True, text=True, cwd=self.environment, timeout=120,
                             env={"PATH": f"{self.environment / 'bin'}:/usr/bin:/bin", "HOME": str(self.environment)})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_a_training_loop_without_numpy(self):
        path, learned = self.run_there("python", "-c", LOOP).splitlines()
        self.assertEqual(pathlib.Path(path), self.packages / "deft/__init__.py")
        self.assertEqual(learned, "learned")
        self.run_there("python", "-c", "import importlib.util as u; assert u.find_spec('numpy') is None and u.find_spec('torch') is None")

    def test_numpy_is_asked_for_where_it_is_needed(self):
        self.run_there("python", "-c", "import deft\ntry: deft.ones(2).numpy()\nexcept ModuleNotFoundError as e: assert 'pip install numpy' in str(e), e")

    def test_the_command(self):
        self.assertIn("deft 0.", self.run_there("deft", "info"))
        self.assertEqual(self.run_there("deft", "info", "-o", "json"), self.run_there("python", "-m", "deft", "info", "-o", "json"))

    def test_the_command_shares_the_library(self):
        needed = subprocess.run(["readelf", "-dW", self.packages / "deft/bin/deft"], check=True, capture_output=True, text=True).stdout
        self.assertIn("libdeft.so", needed)
        self.assertEqual(len(list(self.packages.rglob("libdeft.so*"))), 1)

    def test_it_is_small(self):
        files = [f for f in self.packages.rglob("*") if f.is_file() and not f.is_symlink() and f.suffix != ".pyc"
                 and f.name != "libdeft_cuda.so"]  # the bound is that of a wheel for CPUs
        self.assertLessEqual(sum(f.stat().st_size for f in files), MOST_BYTES)

    def test_types_and_stubs_are_there(self):
        for name in ("py.typed", "__init__.pyi"):
            self.assertTrue((self.packages / "deft" / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
