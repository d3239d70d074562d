"""The command line: runs the script in a process of its own, and reports what that process saw."""

import argparse
import os
import sys

from . import report_files, report_text
from .process import ScriptRun
from .remarks import remarks_of
from .report import report_of
from .script import BadScript, checked
from .treatment import Treatment

USAGE = 2
OPTIONS_WITH_VALUES = ("--steps", "--after", "--report", "--budget", "--fix")


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
    treatment = None
    if (options.budget or options.fix or options.apply) and not run.interrupted and not blocked(report):
        treatment = Treatment(report, script, rest, options.budget or 60, options.quiet)
        try:
            treatment.run()
        except KeyboardInterrupt:
            report["remarks"].append("the trials were stopped by Ctrl-C; those that had ended are below")
    if treatment is not None and treatment.kept:
        report["patch"] = treatment.patch
    if not options.quiet:
        sys.stderr.write(report_text.text_of(report, sys.stderr))
        sys.stderr.flush()
    for path in options.report:
        report_files.write(path, report)
    if treatment is not None:
        _hand_over(treatment, options)
    return run.exit_code


def blocked(report):
    """Whether the script cannot be run again."""
    return report["workload"]["exit_code"] != 0 or not report["loops"]


def _hand_over(treatment, options):
    if options.apply and treatment.kept:
        treatment.apply()
        sys.stderr.write("deft doctor: changed {}\n".format(", ".join(os.path.relpath(source.path) for source in treatment.texts)))
    if options.fix:
        with open(options.fix, "w", encoding="utf-8") as file:
            file.write(treatment.patch)


def _usage(sentence):
    sys.stderr.write("deft doctor: {}\n".format(sentence))
    return USAGE


def _parser():
    parser = argparse.ArgumentParser(
        prog="deft doctor", usage="deft doctor [options] SCRIPT.py [[options] --] [the script's arguments]",
        description="Runs a PyTorch script as it is and says why it lags: where its time goes, and which lines make mistakes. What the script prints stays "
                    "as it is; the report goes to stderr. The exit code is the script's.")
    parser.add_argument("--steps", type=_count, default=20, metavar="N", help="steps of each loop to time; default 20")
    parser.add_argument("--after", type=_count, default=2, metavar="N", help="steps to leave out before those; default 2")
    parser.add_argument("--report", action="append", default=[], metavar="FILE", help="write the report, as .json, .sarif or .html; may be repeated")
    parser.add_argument("--budget", type=_seconds, default=0, metavar="TIME", help="try the cures for so long, 90s or 2m: the script is run again, changed and as "
                        "it is, with no input and its output thrown away; default: no trials, or 60s with --fix or --apply")
    parser.add_argument("--fix", metavar="FILE", help="write the cures that were proved as a unified diff")
    parser.add_argument("--apply", action="store_true", help="make those changes in the script")
    parser.add_argument("-q", "--quiet", action="store_true", help="no report on stderr")
    return parser


def _count(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("found {}, expected 0 or more".format(value))
    return value


def _seconds(text):
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("s", "m") else (text, "s")
    try:
        seconds = float(number) * (60 if unit == "m" else 1)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("found '{}', expected 1s to 3600s, or 1m to 60m".format(text))
    return seconds


def _parsed(arguments):
    """(options, script, the script's arguments). The first word that is no option is the script. What follows it is its own, or, where
    there is a --, what follows that."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        at += 2 if arguments[at] in OPTIONS_WITH_VALUES else 1
    if at < len(arguments) and arguments[at] == "--":
        del arguments[at]
    elif "--" in arguments[at + 1:]:
        end = arguments.index("--", at + 1)
        options = arguments[:at] + arguments[at + 1:end]
        return _parser().parse_args(options), arguments[at], arguments[end + 1:]
    parser = _parser()
    options = parser.parse_args(arguments[:at])
    if at >= len(arguments):
        raise BadScript("expected the path of a Python script: deft doctor train.py")
    rest = arguments[at + 1:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    return options, arguments[at], rest
