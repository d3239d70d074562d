"""`python -m deft.doctor SCRIPT.py [arguments]`; any Python also takes this folder itself, where Deft has no extension for it."""

import importlib.util
import os
import sys

NAME = "_deft_doctor"  # of the package, where it is loaded without the rest of Deft


def load(folder):
    spec = importlib.util.spec_from_file_location(NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == here:
        del sys.path[0]
    load(here)
    sys.exit(importlib.import_module(NAME + ".command").main(sys.argv[1:]))
