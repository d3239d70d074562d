"""Which Python has PyTorch: the one that runs, $DEFT_TORCH_PYTHON, or what `./dev torch` installed."""

import importlib.util
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def torch_python():
    """Its path, or None."""
    if importlib.util.find_spec("torch"):
        return sys.executable
    for python in (os.environ.get("DEFT_TORCH_PYTHON"), str(ROOT / ".cache/torch/bin/python")):
        if python and os.access(python, os.X_OK):
            has = "import sys, torch, numpy; sys.exit(sys.version_info[:2] != (%d, %d))" % sys.version_info[:2]
            if subprocess.run([python, "-c", has], capture_output=True).returncode == 0:
                return python
    return None


def need_torch():
    """Goes on in a Python that has PyTorch; ends as a skipped test where there is none."""
    python = torch_python()
    if python is None:
        print("skipped: no PyTorch; ./dev torch installs it, or DEFT_TORCH_PYTHON names a Python of this version that has it")
        sys.exit(77)
    if python != sys.executable:
        os.execv(python, [python, *sys.argv])
