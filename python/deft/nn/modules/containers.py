"""Modules that hold others."""

import operator
from collections import OrderedDict
from itertools import chain, islice

from ..._C import Tensor
from ..parameter import Parameter
from .module import Module, _add_indent


def _at(index, size):
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range")
    return index % size


def _described(value):
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    size, kind = "x".join(map(str, value.shape)), value.dtype
    place = "" if not value.is_cuda else f" ({value.device})"
    return f"{'Parameter' if isinstance(value, Parameter) else 'Tensor'} containing: [{kind} of size {size}{place}]"


class Sequential(Module):
    """Each module is called with the result of the one before."""

    def __init__(self, *args):
        super().__init__()
        items = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else ((str(i), m) for i, m in enumerate(args))
        for name, module in items:
            self.add_module(name, module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def _renumber(self, modules):
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}
        return self

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return next(islice(self._modules.values(), _at(index, len(self)), None))

    def __setitem__(self, index, module):
        setattr(self, list(self._modules)[_at(index, len(self))], module)

    def __delitem__(self, index):
        names = list(self._modules)
        for name in names[index] if isinstance(index, slice) else [names[_at(index, len(self))]]:
            del self._modules[name]
        self._renumber(list(self))

    def append(self, module):
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Adds modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """Adds a module at a place."""
        modules = list(self)
        modules.insert(index, module)
        return self._renumber(modules)

    def pop(self, index):
        """Takes a module out."""
        module = self[index]
        del self[index]
        return module


def _repeated(items):
    """Rows of a list with how many alike come one after the other."""
    groups = []
    for i, text in enumerate(items):
        if groups and groups[-1][2] == text:
            groups[-1][1] = i
        else:
            groups.append([i, i, text])
    return groups


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules=None):
        super().__init__()
        self.extend(modules or ())

    _renumber = Sequential._renumber
    __len__, __iter__ = Sequential.__len__, Sequential.__iter__
    __setitem__, __delitem__ = Sequential.__setitem__, Sequential.__delitem__
    append, extend, insert, pop = Sequential.append, Sequential.extend, Sequential.insert, Sequential.pop

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[str(_at(index, len(self)))]

    def __iadd__(self, modules):
        return self.extend(modules)

    def __repr__(self):
        if not len(self):
            return f"{type(self).__name__}()"
        lines = []
        for first, last, text in _repeated([repr(m) for m in self]):
            label = f"({first}): " if first == last else f"({first}-{last}): {last - first + 1} x "
            lines.append(_add_indent(label + text, 2))
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"

    def __add__(self, other):
        return type(self)(chain(self, other))


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def keys(self):
        """The names."""
        return self._modules.keys()

    def values(self):
        """The modules."""
        return self._modules.values()

    def items(self):
        """Names and modules."""
        return self._modules.items()

    def clear(self):
        """Takes all modules out."""
        self._modules.clear()

    def pop(self, key):
        """Takes a module out."""
        return self._modules.pop(key)

    def update(self, modules):
        """Adds the modules of a dict, a ModuleDict or pairs."""
        for key, module in modules.items() if hasattr(modules, "items") else modules:
            self[key] = module


class ParameterList(Module):
    """A list of parameters; other tensors become parameters."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def append(self, value):
        """Adds a parameter at the end."""
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(self._size), value)
        self._size += 1
        return self

    def extend(self, values):
        """Adds parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __len__(self):
        return self._size

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, str(_at(index, self._size)))

    def __setitem__(self, index, value):
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(_at(index, self._size)), value)

    def __iter__(self):
        return (self[i] for i in range(self._size))

    def __iadd__(self, values):
        return self.extend(values)

    def extra_repr(self):
        return "\n".join(f"  ({i}): {_described(v)}" for i, v in enumerate(self))


class ParameterDict(Module):
    """Parameters by name."""

    def __init__(self, parameters=None):
        super().__init__()
        self._names = {}
        self.update(parameters or {})

    def extra_repr(self):
        return "\n".join(f"  ({k}): {_described(v)}" for k, v in self.items())

    def __setitem__(self, key, value):
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        self._names[key] = None
        setattr(self, key, value)

    def __getitem__(self, key):
        return getattr(self, key)

    def __delitem__(self, key):
        del self._names[key]
        delattr(self, key)

    def __len__(self):
        return len(self._names)

    def __iter__(self):
        return iter(self._names)

    def __contains__(self, key):
        return key in self._names

    def keys(self):
        """The names."""
        return self._names.keys()

    def values(self):
        """The parameters."""
        return (self[k] for k in self._names)

    def items(self):
        """Names and parameters."""
        return ((k, self[k]) for k in self._names)

    def update(self, parameters):
        """Adds the parameters of a dict or pairs."""
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value
