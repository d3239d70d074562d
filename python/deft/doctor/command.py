"""The command line: runs the script in a process of its own, and reports what that process saw."""

import argparse
import os
import sys

from . import report_files, report_text
from .process import ScriptRun
from .remarks import remarks_of
from .report import report_of
from .script import BadScript, checked

USAGE = 2
OPTIONS_WITH_VALUES = ("--steps", "--after", "--report", "--budget")


def main(arguments):
    try:
        options, script, rest = _parsed(arguments)
        report_files.check(options.report)
        tree = checked(script)
    except BadScript as error:
        return _usage(str(error))
    run = ScriptRun(script, rest, {"steps": options.steps, "after": options.after})
    run.wait()
    report = report_of(run, script, rest)
    report["remarks"] = remarks_of(run, report, tree, script)
    if not options.quiet:
        sys.stderr.write(report_text.text_of(report, sys.stderr))
        sys.stderr.flush()
    for path in options.report:
        report_files.write(path, report)
    return run.exit_code


def _usage(sentence):
    sys.stderr.write("deft doctor: {}\n".format(sentence))
    return USAGE


def _parser():
    parser = argparse.ArgumentParser(
        prog="deft doctor", usage="deft doctor [options] SCRIPT.py [--] [the script's arguments]",
        description="Runs a PyTorch script as it is and says why it lags: where its time goes, and which lines make mistakes. What the script prints stays "
                    "as it is; the report goes to stderr. The exit code is the script's.")
    parser.add_argument("--steps", type=_count, default=20, metavar="N", help="steps of each loop to time; default 20")
    parser.add_argument("--after", type=_count, default=2, metavar="N", help="steps to leave out before those; default 2")
    parser.add_argument("--report", action="append", default=[], metavar="FILE", help="write the report, as .json, .sarif or .html; may be repeated")
    parser.add_argument("-q", "--quiet", action="store_true", help="no report on stderr")
    return parser


def _count(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("found {}, expected 0 or more".format(value))
    return value


def _parsed(arguments):
    """(options, script, the script's arguments). The first word that is no option is the script; what follows is its own."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        at += 2 if arguments[at] in OPTIONS_WITH_VALUES else 1
    if at < len(arguments) and arguments[at] == "--":
        del arguments[at]
    parser = _parser()
    options = parser.parse_args(arguments[:at])
    if at >= len(arguments):
        raise BadScript("expected the path of a Python script: deft doctor train.py")
    rest = arguments[at + 1:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    return options, arguments[at], rest
