"""AttributeError that names the nearest thing."""

from . import _C


def module_getattr(module_name, names, lazy=()):
    """A module's __getattr__: loads submodules in `lazy`, and says what is near to a name that is missing."""
    import importlib

    def getattr_(name):
        if name in lazy:
            return importlib.import_module(f"{module_name}.{name}")
        if not name.startswith("__"):
            near = _C._nearest_name(name, [n for n in names() if not n.startswith("_")])
            if near:
                raise AttributeError(f"module '{module_name}' has no attribute '{name}'; the nearest is '{near}'")
        raise AttributeError(f"module '{module_name}' has no attribute '{name}'")

    return getattr_
