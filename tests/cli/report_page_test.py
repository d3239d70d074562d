"""The page of `deft doctor` in a real browser: no errors, no network, readable at any width, in the dark, on paper."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import chromium
from report_sample import sample

WRITER = os.environ.get("DEFT_REPORT_PAGE")  # tests/doctor/write_report_page.cpp
BROWSER = chromium.find()

# Text whose colour differs too little from what is behind it, as [ratio, text].
CONTRAST = """(() => {
  const parse = (c) => { const p = c.match(/[\\d.]+/g).map(Number); return p.length === 3 ? [...p, 1] : p; };
  const light = (c) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] === 1) return c;
    }
    return [255, 255, 255, 1];
  };
  const poor = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    const skipped = ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(e.tagName);
    if (!walker.currentNode.data.trim() || skipped || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), b = light(behind(e));
    const a = light(parse(e.tagName === 'text' ? style.fill : style.color));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    ++seen;
    if (ratio < 4.5) poor.push([ratio, walker.currentNode.data.slice(0, 40)]);
  }
  return {seen, poor};
})()"""

# What sticks out of the window, besides what a table's own scroll bar reaches.
OUTSIDE = """[...document.querySelectorAll('body *')].filter((e) => {
  const box = e.getBoundingClientRect();
  const inside = e.closest('.scroll') && !e.matches('.scroll');
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !inside;
}).map((e) => e.tagName + '.' + e.getAttribute('class'))"""

SHIFTS = """new Promise((done) => {
  let sum = 0;
  const watch = new PerformanceObserver((list) => { for (const e of list.getEntries()) sum += e.value; });
  watch.observe({type: 'layout-shift', buffered: true});
  setTimeout(() => done(sum), 200);
})"""


def hostile():
    bad = "<script>alert(1)</script>\"'&\u2028\U0001F600<b>" + "x" * 300
    report = sample()

    def spoil(value):
        if isinstance(value, dict):
            return {key: spoil(child) for key, child in value.items()}
        if isinstance(value, list):
            return [spoil(child) for child in value]
        return bad if isinstance(value, str) else value
    report = spoil(report)
    report["profile"]["roofline"]["gflops"][bad] = 12.0
    report["memory"]["timeline"][3][bad] = 7.0
    return report


def many_ops():
    report = sample()
    ops = report["profile"]["ops"]
    report["profile"]["ops"] = [dict(ops[i % len(ops)], name=f"op_{i}", ms=1000.0 / (i + 1)) for i in range(500)]
    return report


def extreme():
    report = sample()
    for i, value in enumerate((1e300, -5.0, 1e-300, 0, 2 ** 63)):
        report["profile"]["ops"][i].update(gflops=value, flops_per_byte=value, ms=value, percent=value)
        report["memory"]["timeline"][i].update(other=value)
        report["latency"]["histogram"][i].update(count=value, to_ms=value)
        report["waterfall"][i].update(samples_per_s=value, speedup=value)
        report["trials"][i].update(speedup=value, speedup_low=value, speedup_high=value)
    return report


def png_colors(path):
    """Width, height and the number of different bytes in a PNG's rows."""
    data, at, packed = path.read_bytes(), 8, b""
    width, height = struct.unpack(">II", data[16:24])
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        packed += data[at + 8:at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return width, height, len(set(zlib.decompress(packed)))


def setUpModule():
    reason = None if BROWSER else "there is no Chromium; install the package chromium"
    reason = reason if WRITER else "DEFT_REPORT_PAGE does not name the program that writes pages"
    if reason:
        print(f"report_page_test is skipped: {reason}", file=sys.stderr)
        raise unittest.SkipTest(reason)


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.shots = pathlib.Path(os.environ.get("DEFT_SCREENSHOTS", cls.folder))
        cls.browser = chromium.Chromium(BROWSER)
        cls.pages = {}
        reports = {"sample": sample(), "hostile": hostile(), "many": many_ops(), "extreme": extreme(), "empty": {}}
        for name, report in reports.items():
            text = json.dumps(report).encode()
            run = subprocess.run([WRITER], input=text, capture_output=True, timeout=60, check=True)
            cls.pages[name] = cls.folder / f"{name}.html"
            cls.pages[name].write_bytes(run.stdout)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def setUp(self):
        self.browser.problems.clear()

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])

    def value(self, expression):
        return self.browser.evaluate(expression)

    def texts(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def test_every_page_at_every_width(self):
        for name, page in self.pages.items():
            for width in (360, 1600):
                with self.subTest(page=name, width=width):
                    self.browser.show(page, width)
                    self.assertLessEqual(self.value("document.documentElement.scrollWidth"), width)
                    self.assertEqual(self.value(OUTSIDE), [])
                    self.assertEqual(self.value(SHIFTS), 0)
                    self.assertNotIn("NaN", self.value("document.body.innerHTML.replace(/<script[^]*/, '')"))
                    self.assertEqual(self.value("document.querySelectorAll('script, b > b, svg b').length"), 2)
                    self.assertEqual(self.browser.problems, [])

    def test_text_stands_out_in_light_and_dark(self):
        for dark in (False, True):
            with self.subTest(dark=dark):
                self.browser.show(self.pages["sample"], dark=dark)
                result = self.value(CONTRAST)
                self.assertGreater(result["seen"], 200)
                self.assertEqual(result["poor"], [])

    def test_screenshots(self):
        backgrounds = set()
        for name, width, dark in (("light", 1600, False), ("dark", 1600, True), ("phone", 360, False)):
            self.browser.show(self.pages["sample"], width, dark=dark)
            path = self.shots / f"report_{name}.png"
            self.browser.screenshot(path)
            shown_width, height, colors = png_colors(path)
            self.assertEqual(shown_width, width)
            self.assertGreater(height, 1500)
            self.assertGreater(colors, 100)
            backgrounds.add(self.value("getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(backgrounds), 2)

    def test_charts_show_what_was_measured(self):
        self.browser.show(self.pages["sample"])
        dots = sum(1 for op in sample()["profile"]["ops"] if op["gflops"])
        self.assertEqual(self.value("document.querySelectorAll('.roofline circle.dot').length"), dots)
        labels = self.texts(".roofline text")
        for label in ("f32 166", "bf16 660", "45.0 GB/s", "conv2d", "linear", "log_softmax"):
            self.assertIn(label, labels)
        self.assertEqual(self.value("document.querySelectorAll('.memory path[fill]').length"), 7)
        self.assertIn("peak 117 MB", self.texts(".memory text"))
        for label in ("p50 1.05", "p90 1.16", "p99 1.40", "p99.9 2.00"):
            self.assertIn(label, self.texts(".latency text"))
        bins = len(sample()["latency"]["histogram"])
        self.assertEqual(self.value("document.querySelectorAll('.latency rect').length"), bins)
        # An op's dot stands where its figures say: below its roof, the more of them the nearer.
        heights = self.value("[...document.querySelectorAll('.roofline circle.dot')].map((c) => +c.getAttribute('cy'))")
        by_time = sorted((op for op in sample()["profile"]["ops"] if op["gflops"]), key=lambda op: -op["ms"])
        order = sorted(range(dots), key=lambda i: by_time[i]["gflops"])
        self.assertEqual(sorted(range(dots), key=lambda i: -heights[i]), order)

    def test_a_dot_tells_about_itself(self):
        self.browser.show(self.pages["sample"])
        self.value("document.querySelector('.roofline').scrollIntoView()")
        self.browser.frames()  # scrolling hides what stood there
        box = self.value("(({x, y, width, height}) => [x + width / 2, y + height / 2])"
                         "(document.querySelector('.roofline circle.dot').getBoundingClientRect())")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        tip = self.value("document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent")
        for part in ("conv2d", "cnn.cpp:31", "812 ms", "61.0 GFLOP/s", "compute-bound"):
            self.assertIn(part, tip)

    def column(self, index):
        return self.value("[...document.querySelector('#ops table').tBodies[0].rows]"
                          f".map((r) => r.cells[{index}].dataset.v)")

    def test_tables_sort_by_mouse_and_keyboard(self):
        self.browser.show(self.pages["sample"])
        heads = [text for text in self.texts("#ops thead th")]
        rate = heads.index("GFLOP/s")
        self.value(f"document.querySelectorAll('#ops thead [role=button]')[{rate}].click()")
        values = self.column(rate)
        self.assertEqual(values[-1], "")  # what is missing stays last
        self.assertEqual([float(v) for v in values[:-1]], sorted((float(v) for v in values[:-1]), reverse=True))
        self.value(f"document.querySelectorAll('#ops thead [role=button]')[{rate}].focus()")
        self.browser.press("Enter", "\r")
        values = self.column(rate)
        self.assertEqual(values[-1], "")
        self.assertEqual([float(v) for v in values[:-1]], sorted(float(v) for v in values[:-1]))
        direction = self.value(f"document.querySelectorAll('#ops thead th')[{rate}].getAttribute('aria-sort')")
        self.assertEqual(direction, "ascending")
        self.value("document.querySelectorAll('#ops thead [role=button]')[0].focus()")
        self.browser.press(" ", " ")
        self.assertEqual(self.column(0), sorted(self.column(0)))

    def test_long_tables_fold_and_open(self):
        self.browser.show(self.pages["many"])
        visible = "[...document.querySelector('#ops table').tBodies[0].rows].filter((r) => !r.hidden).length"
        self.assertEqual(self.value(visible), 25)
        self.value("document.querySelector('#ops .more').click()")
        self.assertEqual(self.value(visible), 500)

    def test_the_plan_can_be_copied(self):
        self.browser.show(self.pages["sample"])
        self.assertEqual(json.loads(self.value("document.getElementById('plan-text').textContent")), sample()["plan"])
        label = self.value("(async () => { const b = document.querySelector('.plan .button'); b.click(); "
                           "await new Promise((r) => setTimeout(r, 100)); return b.textContent; })()")
        self.assertIn(label, ("Copied", "Press Ctrl+C"))

    def test_headings_and_labels(self):
        self.browser.show(self.pages["sample"])
        levels = self.value("[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
        self.assertEqual(levels.count(1), 1)
        self.assertTrue(all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels)
        self.assertEqual(self.value("[...document.querySelectorAll('[data-chart], .scroll, table:not(#memory table)')]"
                                    ".filter((e) => !e.getAttribute('aria-label')).length"), 0)
        self.assertEqual(self.value("document.documentElement.lang"), "en")

    def test_readable_without_javascript(self):
        self.browser.show(self.pages["sample"], scripts=False)
        page = self.pages["sample"].read_text(encoding="utf-8").split("<script")[0]
        for part in (sample()["bottleneck"]["sentence"], "doctor_workload.cpp:88", "helps beyond noise", "log_softmax",
                     "resnet50"):
            self.assertIn(part, page)
        path = self.shots / "report_no_script.png"
        self.browser.screenshot(path)
        self.assertGreater(png_colors(path)[1], 1500)

    def test_on_paper(self):
        self.browser.show(self.pages["many"], dark=True)
        path = self.shots / "report.pdf"
        self.browser.pdf(path, dark=True)
        self.assertTrue(path.read_bytes().startswith(b"%PDF"))
        self.assertGreater(len(re.findall(rb"/Type\s*/Page\b", path.read_bytes())), 2)
        # As wide as the paper between its margins: nothing hides behind a scroll bar, colours are the light ones.
        for name in ("sample", "many"):
            self.browser.show(self.pages[name], 703)
            self.browser.media("print", dark=True)
            clipped = self.value("[...document.querySelectorAll('.scroll')]"
                                 ".filter((e) => e.scrollWidth > e.clientWidth + 1).length")
            self.assertEqual(clipped, 0)
            self.assertEqual(self.value("getComputedStyle(document.body).color"), "rgb(26, 30, 35)")
            self.assertEqual(self.value("getComputedStyle(document.querySelector('.scroll')).overflowX"), "visible")
            self.assertEqual(self.value("getComputedStyle(document.querySelector('.bar i')).printColorAdjust"), "exact")


if __name__ == "__main__":
    unittest.main()
