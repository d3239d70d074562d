"""The build backend of pyproject.toml: scikit-build-core, and then auditwheel. It brings in the libraries that a bare system has not
(fmt, Highway, libjpeg, libpng), under names of their own, and names the oldest systems that the wheel runs on."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import scikit_build_core.build as _skbuild
from scikit_build_core.build import *  # noqa: F403  all hooks but build_wheel

# What a machine with a GPU has: the driver and CUDA's libraries.
_NOT_INSIDE = ("libcuda.so*", "libcud*.so*", "libcublas*.so*", "libcufft*.so*", "libnv*.so*")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Makes a wheel; returns the name of its file."""
    with tempfile.TemporaryDirectory() as folder:
        name = _skbuild.build_wheel(folder, config_settings, metadata_directory)
        return _completed(pathlib.Path(folder, name), pathlib.Path(wheel_directory))


def _completed(wheel, target):
    """The name of the wheel in `target` that holds all it needs; where that cannot be made, of the wheel as it is."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "-w", folder, str(wheel)]
        run = subprocess.run(command + [f"--exclude={pattern}" for pattern in _NOT_INSIDE], capture_output=True, text=True)
        made = sorted(pathlib.Path(folder).glob("*.whl"))
        if run.returncode != 0 or len(made) != 1:
            print(f"{wheel.name} needs libraries of this machine, since auditwheel could not bring them in: {run.stderr}", file=sys.stderr)
            made = [wheel]
        shutil.move(made[0], target / made[0].name)
        return made[0].name
