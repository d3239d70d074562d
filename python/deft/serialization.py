"""save() and load(): PyTorch's zip files both ways. Files from others are never executed."""

import collections
import io
import os
import pickle
import tempfile
import zipfile

from . import _C
from ._C import Tensor

_STORAGES = {_C.float32: "FloatStorage", _C.float64: "DoubleStorage", _C.float16: "HalfStorage", _C.bfloat16: "BFloat16Storage",
             _C.int8: "CharStorage", _C.uint8: "ByteStorage", _C.int32: "IntStorage", _C.int64: "LongStorage", _C.bool: "BoolStorage"}


class _Name:
    """A name of torch's: the file holds only the name, and nothing here imports torch."""

    def __init__(self, module, name):
        self.text = f"{module}\n{name}\n".encode()


_TENSOR, _PARAMETER = _Name("torch._utils", "_rebuild_tensor_v2"), _Name("torch._utils", "_rebuild_parameter")
_SIZE = _Name("torch", "Size")


class _Storage:
    """The dense bytes of one tensor, in a file of its own in the archive."""

    def __init__(self, key, tensor):
        self.key, self.tensor = key, tensor


class _Writer(pickle._Pickler):
    """Python's own pickler, with tensors as torch writes them. A tensor that is saved twice is kept once."""

    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages, self.numbers, self.kept = [], {}, []

    def persistent_id(self, value):
        if not isinstance(value, _Storage):
            return None
        return ("storage", _Name("torch", _STORAGES[value.tensor.dtype]), str(value.key), "cpu", value.tensor.numel())

    def save(self, value, save_persistent_id=True):
        if isinstance(value, _Name):
            self.write(pickle.GLOBAL + value.text)
        elif isinstance(value, Tensor):
            self._save_tensor(value)
        elif isinstance(value, _C.dtype):
            self.write(pickle.GLOBAL + f"torch\n{_plain(value)}\n".encode())
        elif isinstance(value, _C.Size):
            self._save_call(value, _SIZE, (tuple(value),))
        else:
            super().save(value, save_persistent_id)

    def _save_call(self, value, name, arguments):
        if id(value) in self.memo:
            return self.write(self.get(self.memo[id(value)][0]))
        self.save(name)
        self.save(arguments)
        self.write(pickle.REDUCE)
        self.memoize(value)

    def _save_tensor(self, tensor):
        from .nn.parameter import Parameter

        if isinstance(tensor, Parameter):
            plain = tensor.detach()
            self.kept.append(plain)  # the memo goes by address: it must not be used again
            return self._save_call(tensor, _PARAMETER, (plain, tensor.requires_grad, collections.OrderedDict()))
        dense = tensor.detach().cpu()
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if place not in self.numbers or tensor.numel() == 0:
            self.numbers[place] = len(self.storages)
            self.storages.append(dense)
        key = self.numbers[place]
        strides = _dense_strides(tensor.shape)
        self._save_call(tensor, _TENSOR, (_Storage(key, dense), 0, tuple(tensor.shape), strides, tensor.requires_grad,
                                          collections.OrderedDict()))


def _plain(dtype):
    return repr(dtype).split(".")[1]


def _dense_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _write_archive(value, file):
    data = io.BytesIO()
    writer = _Writer(data)
    writer.dump(value)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        def add(name, content):
            info = zipfile.ZipInfo("archive/" + name)
            # Bytes begin at multiples of 64, so that readers can map them.
            header = archive.fp.tell() + 30 + len(info.filename)
            gap = -(header + 4) % 64
            info.extra = b"FB" + gap.to_bytes(2, "little") + b"Z" * gap
            archive.writestr(info, content)

        add("data.pkl", data.getvalue())
        add("byteorder", b"little")
        for key, tensor in enumerate(writer.storages):
            add(f"data/{key}", _C._tensor_bytes(tensor))
        add("version", b"3\n")


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True):
    """Writes an object in PyTorch's format; torch.load() reads it. A file is written beside and renamed."""
    if hasattr(f, "write"):
        return _write_archive(obj, f)
    path = os.fspath(f)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    handle, beside = tempfile.mkstemp(dir=folder, prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            _write_archive(obj, file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(beside, 0o666 & ~umask)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _move(value, place):
    if isinstance(value, Tensor):
        return value.to(place)
    if isinstance(value, dict):
        return type(value)((k, _move(v, place)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_move(v, place) for v in value)
    return value


class _Place:
    """What a function given as map_location gets for a storage: it says where that goes."""

    def __init__(self, name):
        self.name = name

    def cpu(self):
        return _Place("cpu")

    def cuda(self, device=None):
        return _Place("cuda" if device is None else f"cuda:{device}")


def load(f, map_location=None, pickle_module=None, *, weights_only=True, mmap=None, **unused):
    """Reads a file of save(), of torch.save(), or safetensors. Only values are read; code in a file is an error."""
    if weights_only is False:
        raise NotImplementedError("load: weights_only=False would run code from the file, which Deft never does; "
                                  "save a state_dict() and load it into a module")
    if isinstance(map_location, dict):
        map_location = map_location.get("cpu")
    elif callable(map_location):
        place = map_location(_Place("cpu"), "cpu")
        map_location = None if place is None else place.name
    if hasattr(f, "read"):
        value = _C._parse_pt(f.read(), str(getattr(f, "name", "a file object")))
    else:
        path = os.fspath(f)
        if not os.path.exists(path):
            raise FileNotFoundError(f"[Errno 2] No such file or directory: '{path}'")
        with open(path, "rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
        value = _C._load_pt(path, bool(mmap)) if is_zip and not path.endswith(".npz") else _C._load_tensors(path)
    return value if map_location is None else _move(value, map_location)
