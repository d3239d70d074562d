"""Ids, titles and cures of the rules, and the style of the page: those of src/doctor, as `tools/doctor_rules` writes them at build time. In
the source tree, where nothing was built, that tool is asked."""

import functools
import json
import os
import runpy

_HERE = os.path.dirname(os.path.abspath(__file__))


@functools.lru_cache(maxsize=None)
def table():
    return {rule["id"]: rule for rule in _texts()["rules"]}


def style():
    return _texts()["style"]


@functools.lru_cache(maxsize=None)
def _texts():
    built = os.path.join(os.path.dirname(_HERE), "_doctor_rules.json")
    if os.path.exists(built):
        with open(built, encoding="utf-8") as file:
            return json.load(file)
    root = os.path.abspath(os.path.join(os.path.realpath(_HERE), "..", "..", ".."))
    tool, sources = os.path.join(root, "tools", "doctor_rules"), os.path.join(root, "src", "doctor")
    if os.path.exists(tool) and os.path.exists(sources):
        return runpy.run_path(tool)["texts_of"](sources)
    raise RuntimeError("the package lacks the table of rules, {}; install deft again".format(built))


def of(rule):
    return table()[rule]
