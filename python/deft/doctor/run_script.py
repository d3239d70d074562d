"""Runs a script as Python would: as __main__, with its arguments, folder, exit code and traceback, and nothing else printed."""

import builtins
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import types

from .record import Record
from .session import Session
from .trial_run import TrialSession


def main(record, options, arguments):
    script = arguments[0]
    session = TrialSession(script, options) if "orders" in options else Session(script, options, Record(record))
    sys.argv = list(arguments)
    # Python follows links here.
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    session.start()
    changed = _changed_sources(options)
    if changed:
        sys.meta_path.insert(0, _Changed(changed))
    error = _execute(script, session, changed)
    session.finish(error)
    _end_as_python_does(error)


def _main_module(path):
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __builtins__=builtins, __file__=path, __cached__=None, __package__=None, __spec__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    sys.modules["__main__"] = module
    return module


def _changed_sources(options):
    """{path: text}"""
    if "sources" not in options:
        return {}
    with os.fdopen(options["sources"], "rb") as file:
        file.seek(0)
        return json.loads(file.read())


class _Changed(importlib.abc.MetaPathFinder):
    """Modules of the script whose source is another one in this run."""

    def __init__(self, sources):
        self._sources = sources

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or os.path.abspath(spec.origin) not in self._sources:
            return None
        text = self._sources[os.path.abspath(spec.origin)]
        spec.loader.get_code = lambda _: compile(text, spec.origin, "exec", dont_inherit=True)
        return spec


def _execute(script, session, changed):
    """What the script raised, or None."""
    path = os.path.abspath(script)
    module = _main_module(path)
    try:
        code = compile(changed[path] if path in changed else _read(path), path, "exec", dont_inherit=True)
        session.script_begins()
        exec(code, module.__dict__)
    except BaseException as error:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        return error.with_traceback(traceback)
    return None


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _end_as_python_does(error):
    if error is None:
        return
    if isinstance(error, SystemExit):
        sys.exit(error.code)
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(1)
