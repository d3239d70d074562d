"""The report on a terminal."""

import os
import shutil
import textwrap

MOST_FINDINGS, MOST_LINES, MOST_LOOPS = 20, 6, 4
BAR = 30
CODES = {"error": "1;31", "warning": "1;33", "note": "1;36", "bold": "1", "bar": "36"}


class _Writer:
    def __init__(self, stream):
        self.color = stream.isatty() and not os.environ.get("NO_COLOR")
        self.width = min(120, shutil.get_terminal_size((100, 24)).columns) if stream.isatty() else 100
        self.parts = []

    def styled(self, name, text):
        return "\033[{}m{}\033[0m".format(CODES[name], text) if self.color else text

    def line(self, text=""):
        self.parts.append(text + "\n")

    def wrapped(self, text, indent):
        self.parts.append(textwrap.fill(text, self.width, initial_indent=" " * indent, subsequent_indent=" " * indent, break_long_words=False,
                                        break_on_hyphens=False) + "\n")


def sentence(text):
    """With a capital, unless it begins with a name."""
    first = text.split(" ", 1)[0]
    return text if any(c in first for c in "._()") else text[0].upper() + text[1:]


def text_of(report, stream):
    w = _Writer(stream)
    w.line()
    w.line(w.styled("bold", "deft doctor: " + " ".join([report["workload"]["script"], *report["workload"]["arguments"]])))
    machine = report["machine"]
    if machine["torch"]:
        w.line("torch {} · Python {} · {} threads · {:.1f} s".format(machine["torch"], machine["python"], machine["threads"], report["workload"]["seconds"] or 0))
    for remark in report["remarks"]:
        w.wrapped(sentence(remark) + ".", 0)
    if report["bottleneck"]["sentence"]:
        w.line()
        w.wrapped(w.styled("bold", report["bottleneck"]["sentence"]), 0)
    for loop in sorted((loop for loop in report["loops"] if loop["profile"]), key=lambda loop: -loop["profile"]["step_ms_median"] * loop["steps"])[:MOST_LOOPS]:
        _write_loop(w, loop)
    _write_findings(w, report)
    _write_trials(w, report)
    return "".join(w.parts)


def _write_loop(w, loop):
    profile = loop["profile"]
    w.line()
    w.line(w.styled("bold", "Where the time goes: {}:{}".format(loop["file"], loop["line"])) + "  {} of {} {}, {:.2f} ms each".format(
        loop["timed_steps"], loop["steps"], loop["kind"], profile["step_ms_median"]))
    most = max(b["s"] for b in profile["buckets"]) or 1
    for bucket in profile["buckets"]:
        if bucket["percent"] >= 0.05:
            w.line("  {:<16}{:>9}{:>8.1f} %  {}".format(bucket["name"], _seconds(bucket["s"]), bucket["percent"],
                                                        w.styled("bar", "█" * max(1, round(BAR * bucket["s"] / most)))))
    lines = [line for line in profile["lines"] if line["percent"] >= 2][:MOST_LINES]
    if lines:
        w.line("  by line:")
    for line in lines:
        place = "{}:{}".format(line["file"], line["line"])
        w.line("  {:>7.1f} %  {}".format(line["percent"], place) + _source(line, w.width - 14 - len(place)))


def _source(line, room):
    import linecache

    text = linecache.getline(line["file"], line["line"]).strip()
    return "  " + text[:room] if room > 20 else ""


def _seconds(s):
    return "{:.2f} s".format(s) if s >= 1 else "{:.1f} ms".format(1e3 * s)


def _write_findings(w, report):
    findings = report["findings"]
    w.line()
    w.line(w.styled("bold", "Findings: {}".format(len(findings) or "none")))
    for f in findings[:MOST_FINDINGS]:
        place = "{}:{}".format(f["file"], f["line"]) if f["file"] else ""
        often = "  {} times".format(f["count"]) if f["count"] > 1 else ""
        w.line("  {}  {}{}".format(w.styled(f["severity"], "{} {}".format(f["severity"], f["id"])), place, often))
        if f["expression"]:
            w.line("    | " + f["expression"][:w.width - 6])
        w.wrapped(sentence(f["message"]), 4)
        w.wrapped("fix: " + f["fix"], 4)
        if f["predicted"]:
            p = f["predicted"]
            w.line("    predicted: {:.2f}x to {:.2f}x for {} ({} confidence)".format(p["speedup_low"], p["speedup_high"], p["of"], p["confidence"]))
    if len(findings) > MOST_FINDINGS:
        w.line("  and {} more".format(len(findings) - MOST_FINDINGS))


def _write_trials(w, report):
    if not report["trials"]:
        return
    w.line()
    w.line(w.styled("bold", "Trials") + "  each against the script as it is, interleaved; speed-up with its interval")
    for t in report["trials"]:
        speed = "{:.2f}x".format(t["speedup"]) if t["speedup"] else "–"
        if t["speedup_low"] and t["speedup_high"]:
            speed += " ({:.2f} to {:.2f})".format(t["speedup_low"], t["speedup_high"])
        w.line("  {:<28} {:<9} {:<24} {}".format(t["technique"][:28], "kept" if t["kept"] else "not kept", speed, t["reason"]))
