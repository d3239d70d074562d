"""Calls a function once `import torch` is complete. Importing it before the script does would change what the script's environment
variables and warning filters do."""

import sys


class _Finder:
    """Asks the finders after it, and lets the loader they chose tell when it is done."""

    def __init__(self, done):
        self._done = done

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is None:
                continue
            if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                self._tell(spec.loader)
            return spec
        return None

    def _tell(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            execute(module)
            self._done(module)

        loader.exec_module = exec_module


def when_imported(done):
    if "torch" in sys.modules:
        done(sys.modules["torch"])
        return
    sys.meta_path.insert(0, _Finder(done))
