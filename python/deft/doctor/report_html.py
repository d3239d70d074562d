"""The report as one page that needs nothing else, in the style of the C++ doctor's: the script's source stands beside what was found in it,
with the time of each line in its margin."""

import html
import linecache

from .rule_texts import style

COLORS = {"data wait": 0, "copies": 1, "linear algebra": 2, "other kernels": 3, "autograd": 4, "backward": 5, "optimizer": 6, "sync": 7,
          "allocation": 8}  # as in the page of the C++ doctor
MOST_LINES, AROUND, MOST_ROWS = 400, 3, 30

OWN_STYLE = """
.source { border-collapse: collapse; }
.source td { padding: 0 0.5rem; border: 0; white-space: pre-wrap; vertical-align: top; max-width: none; }
.source .heat { width: 7rem; color: var(--soft); text-align: right; }
.source .number { color: var(--soft); text-align: right; }
.source .found td { white-space: normal; padding: 0.25rem 0.5rem 0.5rem; }
.source .gap td { color: var(--soft); }
.patch { overflow-x: auto; }
"""


def page_of(report):
    name = html.escape(report["workload"]["name"])
    machine = report["machine"]
    meta = " · ".join("{} {}".format(word, machine[key]) for word, key in (("torch", "torch"), ("Python", "python"), ("threads", "threads")) if machine[key])
    parts = [_verdict(report), _facts(report), "<main>", *(_times(loop) for loop in report["loops"] if loop["profile"]), _findings(report), _sources(report),
             _trials(report), _patch(report), _modules(report), _ops(report), "</main>"]
    return ("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
            "<title>deft doctor: {0}</title><style>{1}{2}</style></head>\n<body><header><p class=\"brand\">deft doctor</p><h1>{0}</h1>"
            "<p class=\"meta\">{3}</p></header>\n{4}</body></html>\n").format(name, style(), OWN_STYLE, html.escape(meta), "\n".join(parts))


def _section(name, title, body):
    return "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}</h2>\n{2}</section>".format(name, html.escape(title), body) if body else ""


def _verdict(report):
    sentence = report["bottleneck"]["sentence"] or "What limits this script was not measured."
    remarks = "".join("<p class=\"note\">{}.</p>".format(html.escape(r)) for r in report["remarks"])
    return "<p class=\"verdict\">{}</p>{}".format(html.escape(sentence), remarks)


def _fact(name, value, note):
    return "<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>".format(name, html.escape(str(value)), html.escape(note))


def _facts(report):
    facts = [_fact("Findings", len(report["findings"]), "of the lint rules"), _fact("Loops", len(report["loops"]), "that train or evaluate")]
    for loop in report["loops"]:
        if loop["profile"]:
            facts.append(_fact("A step", "{:.3g} ms".format(loop["profile"]["step_ms_median"]), "{}:{}".format(loop["file"], loop["line"])))
    kept = [t for t in report["trials"] if t["kept"] and t["speedup"]]
    if kept:
        best = max(kept, key=lambda t: t["speedup"])
        facts.insert(0, _fact("Measured gain", "{:.2f}x".format(best["speedup"]), best["technique"]))
    return "<dl class=\"facts\">{}</dl>".format("".join(facts))


def _times(loop):
    profile = loop["profile"]
    most = max(b["percent"] for b in profile["buckets"]) or 1
    rows = "".join(
        "<li><span>{}</span> <span class=\"bar\"><i style=\"margin-left:0;width:{:.2f}%;background:var(--k{})\"></i></span> <span class=\"n\">{:.1f} ms</span> "
        "<span class=\"n\">{:.1f} %</span></li>\n".format(b["name"][0].upper() + b["name"][1:], 100 * b["percent"] / most, COLORS.get(b["name"], 9),
                                                         1e3 * b["s"], b["percent"]) for b in profile["buckets"] if b["percent"] >= 0.05)
    note = "<p class=\"note\">Exclusive times of {} of {} {}; looking took {:.1f} % itself.</p>".format(
        loop["timed_steps"], loop["steps"], loop["kind"], profile["overhead_percent"])
    return _section("time-{}".format(loop["line"]), "Where the time goes: {}:{}".format(loop["file"], loop["line"]),
                    "<ul class=\"bars\" aria-label=\"Time by bucket\">\n{}</ul>\n{}".format(rows, note))


def _article(f):
    predicted = ""
    if f["predicted"]:
        p = f["predicted"]
        predicted = "<p><b>Predicted</b> {:.2f}x to {:.2f}x for {} ({} confidence)</p>".format(p["speedup_low"], p["speedup_high"], p["of"], p["confidence"])
    if f["measured"] and f["measured"]["speedup"]:
        predicted += "<p><b>Measured</b> {:.2f}x: {}</p>".format(f["measured"]["speedup"], html.escape(f["measured"]["reason"]))
    place = "<p class=\"place\"><code>{}:{}</code></p>".format(html.escape(f["file"]), f["line"]) if f["file"] else ""
    return ("<article class=\"finding {}\"><h3><span class=\"badge\">{}</span> {} <span class=\"name\">{}</span></h3>\n{}<p>{}</p><p class=\"fix\"><b>Fix</b> {}</p>"
            "{}</article>\n").format(f["severity"], f["severity"], f["id"], f["name"], place, html.escape(f["message"]), html.escape(f["fix"]), predicted)


def _findings(report):
    return _section("findings", "Findings", "".join(_article(f) for f in report["findings"]) or "<p class=\"note\">None.</p>")


def _sources(report):
    """Lines that take time or have findings, and those around them."""
    seconds, found, walls = {}, {}, 0.0
    for loop in report["loops"]:
        if loop["profile"]:
            walls += loop["profile"]["wall_s"]
            for line in loop["profile"]["lines"]:
                key = line["file"], line["line"]
                seconds[key] = seconds.get(key, 0) + line["s"]
    for f in report["findings"]:
        if f["file"]:
            found.setdefault((f["file"], f["line"]), []).append(f)
    tables = [_source_table(file, {n: s for (f, n), s in seconds.items() if f == file}, {n: fs for (f, n), fs in found.items() if f == file}, walls or 1)
              for file in sorted({file for file, _ in [*seconds, *found]})]
    return _section("source", "Source", "".join(tables))


def _source_table(file, seconds, found, wall):
    shown = sorted({n for line in [*seconds, *found] for n in range(max(1, line - AROUND), line + AROUND + 1)})
    count = len(linecache.getlines(file))
    rows, last = [], 0
    for n in [n for n in shown if n <= count][:MOST_LINES]:
        if n != last + 1:
            rows.append("<tr class=\"gap\"><td></td><td></td><td>…</td></tr>")
        last = n
        share = seconds.get(n, 0) / wall
        heat = "background:color-mix(in srgb, var(--k5) {:.0f}%, transparent)".format(min(80, 100 * share)) if share >= 0.005 else ""
        rows.append("<tr><td class=\"heat\" style=\"{}\">{}</td><td class=\"number\">{}</td><td><code>{}</code></td></tr>".format(
            heat, "{:.1f} %".format(100 * share) if share >= 0.005 else "", n, html.escape(linecache.getline(file, n).rstrip("\n"))))
        for f in found.get(n, ()):
            rows.append("<tr class=\"found\"><td></td><td></td><td><b>{}</b> {}</td></tr>".format(f["id"], html.escape(f["message"])))
    return "<h3><code>{}</code></h3><div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Source\"><table class=\"source\">{}</table></div>".format(
        html.escape(file), "\n".join(rows))


def _table(caption, heads, rows):
    if not rows:
        return ""
    head = "".join("<th scope=\"col\"{}>{}</th>".format("" if i == 0 else " class=\"n\"", h) for i, h in enumerate(heads))
    body = "".join("<tr>" + "".join("<{0}{1}>{2}</{0}>".format("th" if i == 0 else "td", " scope=\"row\"" if i == 0 else " class=\"n\"", html.escape(str(c)))
                                    for i, c in enumerate(row)) + "</tr>\n" for row in rows[:MOST_ROWS])
    return "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table aria-label=\"{0}\"><thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>".format(
        caption, head, body)


def _main_profile(report):
    return report["profile"] or {"modules": [], "ops": []}


def _modules(report):
    rows = [(m["name"], m["type"], m["calls"], "{:.2f}".format(1e3 * m["s"]), "{:.2f}".format(1e3 * m["backward_s"]), "{:.1f}".format(m["percent"]))
            for m in _main_profile(report)["modules"]]
    return _section("modules", "Modules", _table("Modules", ("module", "type", "calls", "forward ms", "backward ms", "%"), rows))


def _ops(report):
    rows = [(o["name"], o["bucket"], o["pass"], o["calls"], "{:.2f}".format(1e3 * o["s"]), "{:.1f}".format(o["percent"]))
            for o in _main_profile(report)["ops"] if o["percent"] >= 0.1]
    return _section("ops", "Ops", _table("Ops", ("op", "bucket", "pass", "calls", "ms", "%"), rows))


def _trials(report):
    def interval(t):
        return "{:.2f} to {:.2f}".format(t["speedup_low"], t["speedup_high"]) if t["speedup_low"] and t["speedup_high"] else "–"

    rows = [(t["technique"], "kept" if t["kept"] else "not kept", "{:.2f}x".format(t["speedup"]) if t["speedup"] else "–", interval(t), t["pairs"], t["reason"])
            for t in report["trials"]]
    return _section("trials", "Trials", _table("Trials", ("technique", "verdict", "speed-up", "interval", "pairs", "why"), rows))


def _patch(report):
    patch = report.get("patch")
    return _section("patch", "Patch", "<div class=\"plan patch\"><pre><code>{}</code></pre></div>".format(html.escape(patch))) if patch else ""
