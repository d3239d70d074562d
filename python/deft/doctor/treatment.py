"""From findings to a proven patch: each cure is tried against the script as it is, those that help are tried together, and what held makes
the patch."""

import os
import sys
import time

from .cures import Sources, cures_of
from .edits import applied, diff
from .tries import tries_of
from .trials import Trials

SHARE = 1.6  # of its part of the time that is left, for one trial at most
LEAST_FOR_TRIES = 25  # seconds: with less, only cures of findings are tried


class Treatment:
    def __init__(self, report, script, arguments, seconds, quiet):
        self.report, self.script, self.arguments = report, script, arguments
        self._quiet = quiet or not sys.stderr.isatty()
        self.sources = Sources()
        self.trials = Trials(script, arguments, seconds, self._progress)
        self.kept = []
        self.patch = ""

    def _progress(self, text):
        if not self._quiet:
            sys.stderr.write("deft doctor: trying {} ({:.0f} s left)\n".format(text, max(0, self.trials.left())))

    def run(self):
        began = time.monotonic()
        cures = cures_of(self.report, self.sources)
        cures.sort(key=lambda cure: -(cure.finding["predicted"] or {"speedup_high": 1})["speedup_high"])
        if self.trials.left() > LEAST_FOR_TRIES:
            cures += tries_of(self.report, self.sources)
        self.report["trials_expected"] = len(cures)
        rows = self.report["trials"]
        for number, cure in enumerate(cures):
            if cure.loop is None:
                continue
            if self.trials.left() < 5:
                self.report["remarks"].append("the budget was used up before {} of {} cures were tried".format(len(cures) - number, len(cures)))
                break
            seconds = self.trials.left() * min(1, SHARE / (len(cures) - number + 1))  # one more, for all of them together
            row = self.trials.row(cure.technique, [cure], cure.loop, cure.bound, seconds)
            rows.append(row)
            if cure.finding is not None:
                cure.finding["measured"] = {"speedup": row["speedup"], "speedup_low": row["speedup_low"], "speedup_high": row["speedup_high"],
                                            "same_results": row["same_results"], "reason": row["reason"]}
            if row["kept"] or (cure.keeps_memory and row["same_results"] and row.get("verdict") != "hurts"):
                row["kept"] = True
                self.kept.append(cure)
        self._together(rows)
        self.report["trials_seconds"] = time.monotonic() - began

    def _together(self, rows):
        """A patch of several cures is proved as a whole."""
        while self.kept:
            by_source = {}
            for cure in self.kept:
                by_source.setdefault(cure.source, []).extend(cure.edits)
            try:
                texts = {source: applied(source, edits) for source, edits in by_source.items()}
            except ValueError:
                self.kept.pop()
                continue
            if len(self.kept) > 1 and self.trials.left() > 5:
                loop = max((cure.loop for cure in self.kept), key=lambda loop: loop["steps"])
                row = self.trials.row("all of them together", self.kept, loop, max(cure.bound for cure in self.kept), self.trials.left())
                rows.append(row)
                if row["same_results"] is False or row.get("verdict") == "hurts":
                    self.kept.pop()
                    continue
            self.texts = texts
            self.patch = "".join(diff(source, text, os.path.relpath(source.path)) for source, text in texts.items())
            return
        self.texts = {}

    def apply(self):
        for source, text in self.texts.items():
            with open(source.path, "w", encoding=source.encoding, newline="") as file:
                file.write(text)
