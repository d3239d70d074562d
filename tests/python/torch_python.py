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
