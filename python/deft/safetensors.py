"""safetensors files."""

import os

from . import _C


def save_file(tensors, filename, metadata=None):
    """Writes tensors by name. The file is whole or not there."""
    _C._save_safetensors(dict(tensors), os.fspath(filename), metadata or {})


def load_file(filename, device="cpu"):
    """The tensors of a file by name."""
    tensors = _C._load_safetensors(os.fspath(filename))
    return tensors if device == "cpu" else {name: t.to(device) for name, t in tensors.items()}


def load_metadata(filename):
    """The text that is kept beside the tensors."""
    return _C._safetensors_metadata(os.fspath(filename))
