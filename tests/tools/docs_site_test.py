"""tools/docs_site: every public header and known names are there, private ones are not, broken links are errors, and the Markdown
converter does what our pages use."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from docs_site_parts import code, cpp, markdown, ops, preprocess  # noqa: E402

INCLUDE = re.compile(r'^#include "([^"]+\.h)"', re.M)


def run(*args):
    return subprocess.run([sys.executable, "-B", ROOT / "tools/docs_site", *args], capture_output=True, text=True)


def public_headers():
    """What deft.h reaches, found without the tool's own reader."""
    todo, found = INCLUDE.findall((ROOT / "include/deft/deft.h").read_text()), set()
    while todo:
        header = todo.pop()
        if header not in found and (ROOT / "src" / header).exists():
            found.add(header)
            todo += INCLUDE.findall((ROOT / "src" / header).read_text())
    return found


class WholeSite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        cls.result = run("--out", cls.out)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def page(self, path):
        return (self.out / path).read_text(encoding="utf-8")

    def test_links_hold(self):
        self.assertEqual(self.result.returncode, 0, self.result.stdout + self.result.stderr)

    def test_every_public_header_has_a_page(self):
        headers = public_headers()
        self.assertGreater(len(headers), 100)
        for header in headers:
            self.assertTrue((self.out / "cpp" / header.replace(".h", ".html")).exists(), header)

    def test_every_guide_has_a_page(self):
        for guide in (ROOT / "docs").rglob("*.md"):
            self.assertTrue((self.out / guide.relative_to(ROOT).with_suffix(".html")).exists(), guide)

    def test_known_names(self):
        index = self.page("names.js")
        for name, page in {"matmul": "ops/matmul", "Tensor::sum": "core/tensor", "Tensor::exp_": "core/tensor",
                           "nn::Linear": "nn/linear", "nn::Conv2d": "nn/conv", "nn::Sigmoid": "nn/activation",
                           "optim::AdamW": "optim/adam", "data::DataLoader": "data/loader", "compile": "graph/compile",
                           "io::load_safetensors": "io/safetensors", "exp": "ops/unary", "operator+": "core/tensor",
                           "nn::Module::forward": "nn/module", "no_grad": "core/grad_mode"}.items():
            with self.subTest(name):
                self.assertTrue(f'["{name}", "cpp/{page}.html#' in index)
        for name, page in {"deft.Tensor.matmul": "deft", "deft.nn.modules.layers.Linear": "deft.nn.modules.layers"}.items():
            self.assertTrue(f'["{name}", "python/{page}.html#' in index, name)

    def test_nothing_private(self):
        for page in (self.out / "cpp").rglob("*.html"):
            text = page.read_text(encoding="utf-8")
            self.assertIsNone(re.search(r'\bimpl_\b|id="(\w+::)*detail::|\bDEFT_(DECLARE|UNARY|BINARY|OP)\b', text), page)
        self.assertFalse("Tensor::held" in self.page("names.js"))

    def test_ops(self):
        table = self.page("cpp/op_table.html")
        rows = {row[0]: re.sub(r"<[^>]+>", "|", row[1]) for row in re.findall(r'<tr id="op-(\w+)">(.*?)</tr>', table)}
        listed = re.findall(r"^DEFT_OP\((\w+)\)", (ROOT / "src/ops/all_ops.def").read_text(), re.M)
        for name in ("unary", "activation", "binary", "ternary"):
            listed += re.findall(r"^DEFT_\w+\((\w+), \w+\)", (ROOT / f"src/ops/{name}.def").read_text(), re.M)
        self.assertGreater(len(listed), 200)
        self.assertEqual([op for op in listed if op not in rows], [])
        self.assertRegex(rows["Exp"], r"exp.*\|1\|.*\|all\|.*\|yes\|.*\|Exp \(13\)\|.*\|yes\|.*\|yes\|")
        self.assertRegex(rows["ArgMax"], r"none: an index is not a smooth function of the values.*ArgMax \(13\)")
        self.assertIn("|a list|", rows["Cat"])
        self.assertIn("|LayerNormalization (17)|", rows["LayerNorm"])
        self.assertFalse("struct Exp" in re.sub(r"<[^>]+>", "", self.page("cpp/ops/unary.html")))


class BrokenLinks(unittest.TestCase):
    def check(self, readme):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "include/deft").mkdir(parents=True)
            (root / "include/deft/deft.h").write_text("// All.\n#pragma once\n")
            (root / "docs").mkdir()
            (root / "docs/other.md").write_text("# Other page\n")
            (root / "README.md").write_text(readme)
            return run("--root", root)

    def test_good(self):
        result = self.check("# A\n[b](docs/other.md#other-page) [c](https://example.org/x) [a](#a) [file](docs)\n")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_missing_page(self):
        result = self.check("# A\n[b](docs/none.md)\n")
        self.assertEqual((result.returncode, result.stdout), (1, "index.html: 'docs/none.md' leads to no page\n"))

    def test_missing_anchor(self):
        result = self.check("# A\n[b](docs/other.md#nowhere)\n")
        self.assertEqual((result.returncode, result.stdout),
                         (1, "index.html: 'docs/other.html#nowhere' leads to no anchor of docs/other.html\n"))

    def test_folder_of_something_else(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "thesis.txt"
            kept.write_text("x")
            self.assertNotEqual(run("--out", folder).returncode, 0)
            self.assertTrue(kept.exists())


class Markdown(unittest.TestCase):
    def check(self, text, wanted):
        found = re.sub(r"\s*\n\s*", "\n", markdown.Converter(link=lambda to: to.replace(".md", ".html")).page(text))
        self.assertEqual(found, wanted)

    def test_headings(self):
        self.check("## The `x` & y: what", '<h2 id="the-x--y-what">The <code>x</code> &amp; y: what'
                                           '<a class="here" href="#the-x--y-what">#</a></h2>')
        self.assertEqual(re.findall(r'id="([^"]+)"', markdown.Converter().page("# A\n# A\n# A\n")), ["a", "a-1", "a-2"])

    def test_paragraphs(self):
        self.check("one\ntwo\n\nthree <b>", "<p>one\ntwo</p>\n<p>three &lt;b&gt;</p>")

    def test_emphasis(self):
        self.check("**bold** *it* _it_ 2 * 3 * 4 a_b_c", "<p><strong>bold</strong> <em>it</em> <em>it</em> 2 * 3 * 4 a_b_c</p>")
        self.check(r"\*no\* 1 < 2 & 3", "<p>*no* 1 &lt; 2 &amp; 3</p>")

    def test_code(self):
        self.check("`a **b** <c> [d](e)`", "<p><code>a **b** &lt;c&gt; [d](e)</code></p>")
        self.check("```text\n<x> # *no*\n\ny\n```\n", "<pre><code>&lt;x&gt; # *no*\ny</code></pre>")
        self.check('```cpp\nint x = "a<b";  // c&d\n```', '<pre><code><span class="k">int</span> x = <span class="s">&quot;a&lt;b&quot;'
                   '</span>;  <span class="c">// c&amp;d</span></code></pre>'.replace("&quot;", '"'))

    def test_links(self):
        self.check('[a `b`](c.md#d) [e](f?"g)', '<p><a href="c.html#d">a <code>b</code></a> <a href="f?&quot;g">e</a></p>')

    def test_lists(self):
        self.check("- a\n  b\n- c\n  - d\n\nend", "<ul>\n<li>a\nb</li>\n<li>c\n<ul>\n<li>d</li>\n</ul></li>\n</ul>\n<p>end</p>")
        self.check("1. a\n   ```text\n   x\n   ```\n2. b", "<ol>\n<li>a\n<pre><code>x</code></pre></li>\n<li>b</li>\n</ol>")

    def test_tables(self):
        self.check("| a | b |\n|---|---:|\n| `x|y` | 1 |\n", '<div class="wide"><table>\n<thead><tr><th>a</th><th class="right">b</th></tr>'
                   '</thead>\n<tbody>\n<tr><td><code>x|y</code></td><td class="right">1</td></tr>\n</tbody></table></div>')

    def test_comments(self):
        self.check("a\n<!-- no\nno -->\nb\n\n```text\n<!-- kept -->\n```",
                   "<p>a</p>\n<p>b</p>\n<pre><code>&lt;!-- kept --&gt;</code></pre>")


class Cpp(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.h").write_text(text)
            reader = preprocess.Preprocessor(pathlib.Path(folder))
            reader.header("a.h")
        return cpp.read(reader.texts["a.h"])

    def test_class(self):
        [item] = self.read("// What it is.\nclass A : public B {\n  int hidden;\n\n public:\n  // Makes one.\n  A(int x) : x_(x), y_{1} { f(); }\n"
                           "  int size() const { return x_; }  // of it\n private:\n  int x_;\n  void f();\n};\n")
        self.assertEqual((item.name, item.text, item.comment), ("A", "class A : public B", "What it is."))
        self.assertEqual([(m.name, m.text, m.comment, m.note) for m in item.members],
                         [("A", "A(int x)", "Makes one.", ""), ("size", "int size() const", "", "of it")])

    def test_functions(self):
        items = self.read("template <class T, class U = std::vector<T>>\nrequires std::integral<T> auto f(std::function<void(T)> g = {}) {\n"
                          "  return g(1);\n}\nbool operator<(A a, A b);\ninline A& operator+=(A& a, int b) { return a; }\nvoid A::g() {}\n"
                          "struct Later;\nnamespace detail { void no(); }\nnamespace { int no2; }\n")
        self.assertEqual([item.name for item in items], ["f", "operator<", "operator+="])
        self.assertTrue(items[0].text.endswith("auto f(std::function<void(T)> g = {})"))

    def test_macros(self):
        items = self.read("#define LIST(X) X(one) X(two)\n#define MAKE(name) \\\n  int name##_value(); \\\n  constexpr int name = 1;\n"
                          "LIST(MAKE)\n#ifdef NOT_THERE\nint no();\n#else\nint yes();\n#endif\n")
        self.assertEqual([item.name for item in items], ["one_value", "one", "two_value", "two", "yes"])

    def test_info(self):
        infos = ops.Infos()
        items = self.read("constexpr OpInfo two(const char* name, std::array<int, 2> uses, Onnx onnx = {}) {\n"
                          "  return {.name = name, .inputs = 2, .uses = uses, .onnx = onnx};\n}\n"
                          'struct A {\n  static constexpr OpInfo info = two("a", {1, 2}, {"A", 7});\n'
                          '  static constexpr const char* not_differentiable = "it is "\n      "a step";\n  static void cpu(KernelCall& c);\n};\n')
        infos.learn(items[0])
        op = ops.op_of(items[1], "a.h", infos)
        self.assertEqual((op.name, op.inputs, op.onnx, op.gradient, op.cpu, op.cuda), ("a", "2", "A (7)", "none: it is a step", "yes", "no"))

    def test_tokens_are_the_text(self):
        text = (ROOT / "src/core/tensor.h").read_text(encoding="utf-8")
        self.assertEqual("".join(token for _, token in code.tokens(text)), text)


if __name__ == "__main__":
    unittest.main()
