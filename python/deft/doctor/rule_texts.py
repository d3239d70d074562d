"""Ids, titles and cures of the rules: the table of src/doctor/rules.cpp, as `tools/doctor_rules` writes it at build time. In the source
tree, where nothing was built, that tool is asked."""

import json
import os
import runpy

_HERE = os.path.dirname(os.path.abspath(__file__))
_table = None


def table():
    global _table
    if _table is None:
        _table = {rule["id"]: rule for rule in _read()}
    return _table


def _read():
    built = os.path.join(os.path.dirname(_HERE), "_doctor_rules.json")
    if os.path.exists(built):
        with open(built, encoding="utf-8") as file:
            return json.load(file)
    root = os.path.abspath(os.path.join(os.path.realpath(_HERE), "..", "..", ".."))
    tool, source = os.path.join(root, "tools", "doctor_rules"), os.path.join(root, "src", "doctor", "rules.cpp")
    if os.path.exists(tool) and os.path.exists(source):
        return runpy.run_path(tool)["rules_of"](source)
    raise RuntimeError("the package lacks the table of rules, {}; install deft again".format(built))


def of(rule):
    return table()[rule]
