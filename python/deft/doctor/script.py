"""The script as a file: whether it can be run at all, and what it is."""

import ast
import os


class BadScript(Exception):
    """One sentence for the user."""


def checked(path):
    """Its syntax tree. Raises BadScript."""
    if not os.path.exists(path):
        raise BadScript("there is no file {}; give the path of a Python script".format(path))
    if os.path.isdir(path):
        raise BadScript("{} is a folder; give the path of the script in it".format(path))
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise BadScript("{} cannot be read ({}); check its permissions".format(path, error.strerror))
    try:
        return ast.parse(source, path)
    except SyntaxError as error:
        raise BadScript("{} is no Python that {} can run: {} in line {}".format(path, _version(), error.msg, error.lineno))
    except ValueError as error:
        raise BadScript("{} is no Python source: {}".format(path, error))


def _version():
    import platform

    return "Python " + platform.python_version()
