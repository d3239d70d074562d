"""Pages of the C++ reference: one per public header, a table of ops, an index of names."""
import html
import re

from . import code, cpp, ops, preprocess
from .site import quoted, relative

GROUPS = {"core": "Tensor and autograd", "ops": "Ops", "nn": "Modules: nn", "optim": "Optimizers: optim", "data": "Data: data",
          "io": "Files: io", "graph": "Compile: graph", "amp": "Mixed precision: amp", "profile": "Profile: profile",
          "doctor": "Doctor: doctor", "models": "Models: models", "runtime": "Runtime", "base": "Base"}
PART = "C++"
LEGEND = """<p>Element types are those of the first input: floats are f32, f64, bf16 and f16; integers i8, u8, i32 and i64; numbers both; all
also bool. A view has no kernel and what is composed of other ops has none of its own: both run on any device. Behind an ONNX name
stands the first opset that has it.</p>"""
SITE_NOTE = """<p>Most functions end with a parameter <code>Site site = Site::current()</code>, the line of the caller that errors and
profiles name. Nobody passes it, and it is not shown.</p>"""


def path_of(header):
    return "cpp/" + header.removesuffix(".h") + ".html"


def comment_html(text):
    """Paragraphs; lines that are indented are code."""
    out = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        for lines in re.findall(r"(?:^ {2,}.*(?:\n|$))+|(?:^(?! {2,}).+(?:\n|$))+", block, re.M):
            if lines.startswith("  "):
                out.append(f'<pre><code>{code.highlight(lines.rstrip(), "cpp")}</code></pre>')
            else:
                escaped = html.escape(lines.strip(), quote=False)
                out.append("<p>" + re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped) + "</p>")
    return "\n".join(out)


def op_row(op, names, path):
    to = names.get((op.name, path_of(op.header))) or names.get(op.name)
    shown = f"<code>{html.escape(op.name)}</code>"
    name = f'<a href="{html.escape(relative(to, path))}">{shown}</a>' if to else shown
    about = f'<br><span class="soft">{html.escape(" ".join(op.comment.split()), quote=False)}</span>' if op.comment else ""
    cells = [op.inputs, op.outputs, op.dtypes, op.gradient, op.onnx, op.cpu, op.cuda]
    return f'<tr id="op-{op.type}"><td>{name}{about}</td>' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def op_table(table, names, path):
    head = "".join(f"<th>{title}</th>" for title in ("Op", "Inputs", "Results", "Types", "Gradient", "ONNX", "CPU", "CUDA"))
    rows = "\n".join(op_row(op, names, path) for op in table)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


class HeaderPage:
    """The body of a header's page, made from its declarations."""

    def __init__(self, site, header):
        self.site, self.path = site, path_of(header)
        self.anchors, self.out, self.block = {}, [], []

    def anchor(self, name):
        name = re.sub(r"\s+", "", name)
        self.anchors[name] = count = self.anchors.get(name, 0) + 1
        anchor = name if count == 1 else f"{name}-{count}"
        if count == 1:
            self.site.name(name, self.path, anchor)
        return html.escape(anchor)

    def items(self, items, scope, level):
        for item in shown_of(items):
            if not item.joined or item.kind in ("class", "section", "text", "namespace"):
                self.end_block()
            getattr(self, item.kind, self.declaration)(item, scope, level)
        self.end_block()

    def end_block(self):
        if self.block:
            self.out.append('<div class="decls">' + "\n".join(self.block) + "</div>")
            self.block = []

    def namespace(self, item, scope, level):
        inner = re.sub(r"^deft(?:::)?", "", item.name) if not scope else f"{scope}::{item.name}"
        before = len(self.out)
        self.items(item.members, inner, level)
        if inner and inner != scope and len(self.out) > before:
            self.out.insert(before, f'<p class="soft">In namespace <code>deft::{html.escape(inner)}</code>:</p>')

    def section(self, item, scope, level):
        self.out.append(f"<h{level + 1}>{html.escape(item.text)}</h{level + 1}>{comment_html(item.comment)}")

    def text(self, item, scope, level):
        self.out.append(f'<div class="said">{comment_html(item.text)}</div>')

    def class_(self, item, scope, level):
        name = f"{scope}::{item.name}" if scope else item.name
        anchor = self.anchor(name)
        shown = html.escape(name)
        self.out.append(f'<h{level} id="{anchor}">{shown}<a class="here" href="#{html.escape(quoted(html.unescape(anchor)))}">#</a></h{level}>')
        if item.comment:
            self.out.append(f'<div class="said">{comment_html(item.comment)}</div>')
        self.out.append(f'<div class="decls"><span class="decl">{code.highlight(item.text, "cpp")}{note(item)}</span></div>')
        if item.members:
            self.out.append('<div class="members">')
            self.items(item.members, name, min(level + 1, 5))
            self.out.append("</div>")

    def declaration(self, item, scope, level):
        if item.comment:
            self.end_block()
            self.out.append(f'<div class="said">{comment_html(item.comment)}</div>')
        anchor = f' id="{self.anchor(f"{scope}::{item.name}" if scope else item.name)}"' if item.name else ""
        lines = " lines" if "\n" in item.text else ""
        self.block.append(f'<span class="decl{lines}"{anchor}>{code.highlight(item.text, "cpp")}{note(item)}</span>')


setattr(HeaderPage, "class", HeaderPage.class_)


def note(item):
    return f'  <span class="c">// {html.escape(item.note, quote=False)}</span>' if item.note else ""


def shown_of(items):
    """Without ops, which the table shows, and sections of nothing else."""
    items = [item for item in items if not ops.is_op(item)]
    after = items[1:] + [cpp.Item("section", "", "")]
    return [item for item, next_one in zip(items, after) if item.kind != "section" or next_one.kind != "section"]


def walk(items):
    for item in items:
        yield item
        if item.kind == "namespace":
            yield from walk(item.members)


def ops_of(items, infos):
    """(header, op) of every op type, in the order of the headers."""
    for header, own in items.items():
        for item in walk(own):
            if ops.is_op(item):
                yield ops.op_of(item, header, infos)


def listed(reader):
    """Types of ops in the order of all_ops.def."""
    reader.macros["DEFT_OP"] = preprocess.Macro(["Type"], "Type")
    return reader.list("ops/all_ops.def", "").split() if (reader.folder / "ops/all_ops.def").exists() else []


def add_pages(site, root):
    reader = preprocess.Preprocessor(root / "src")
    reader.header("deft.h", root / "include/deft/deft.h")
    items = {header: cpp.read(text) for header, text in reader.texts.items()}
    infos = ops.Infos()
    for own in items.values():
        for item in walk(own):
            infos.learn(item)
    types = listed(reader)
    table = sorted(ops_of(items, infos), key=lambda op: types.index(op.type) if op.type in types else len(types))
    order = [""] + list(GROUPS)
    folders = sorted(items, key=lambda header: (order.index(header.rpartition("/")[0]) if header.rpartition("/")[0] in order else 99, header))
    about = {header: cpp.file_comment(text) for header, text in reader.texts.items()}
    site.add("cpp/index.html", "Overview", overview(folders, about), PART)
    bodies = {header: header_body(site, header, items[header], about[header], reader.includes[header]) for header in folders}
    names = dict(reversed(site.names))  # of several pages the first one, unless the page is given too
    names |= {(name, to.partition("#")[0]): to for name, to in site.names}
    site.add("cpp/op_table.html", "Table of ops", f"<h1>Ops</h1>{LEGEND}{op_table(table, names, 'cpp/op_table.html')}", PART)
    for header in folders:
        own = [op for op in table if op.header == header]
        body = bodies[header] + (f'<h2 id="ops">Ops</h2>{LEGEND}{op_table(own, names, path_of(header))}' if own else "")
        site.add(path_of(header), header.rpartition("/")[2], body, PART, group_of(header))
    site.add("cpp/names.html", "Index of names", name_index(site.names), PART)
    return list(reader.texts)


def group_of(header):
    folder = header.rpartition("/")[0]
    return GROUPS.get(folder, folder)


def header_body(site, header, items, about, includes):
    page = HeaderPage(site, header)
    first = items[0].text if items and items[0].kind == "text" else None
    page.items(items[1:] if first == about and about else items, "", 2)
    use = f"<deft/{header}>"
    whole = "" if header == "deft.h" else ", part of <code>&lt;deft/deft.h&gt;</code>"
    out = [f"<h1>{html.escape(header)}</h1>", f'<p class="soft"><code>#include {html.escape(use)}</code>{whole}</p>', comment_html(about)]
    if header == "deft.h":
        out += ["<ul>"] + [f'<li><a href="{relative(path_of(each), path_of(header))}">{html.escape(each)}</a></li>' for each in includes] + ["</ul>"]
    return "\n".join(out + page.out)


def overview(headers, about):
    out = [f"<h1>C++ reference</h1><p>One header has everything: <code>#include &lt;deft/deft.h&gt;</code>. By header, below; "
           f'by <a href="names.html">name</a>; or the <a href="op_table.html">table of ops</a>.</p>{SITE_NOTE}']
    for group in dict.fromkeys(group_of(header) for header in headers):
        out.append(f"<h2>{html.escape(group or 'All of it')}</h2><ul>")
        for header in headers:
            if group_of(header) == group:
                first = re.split(r"(?<=[.:])\s", about[header].replace("\n", " "), maxsplit=1)[0]
                out.append(f'<li><a href="{relative(path_of(header), "cpp/index.html")}">{html.escape(header)}</a> '
                           f'<span class="soft">{html.escape(first)}</span></li>')
        out.append("</ul>")
    return "\n".join(out)


def name_index(names):
    by_letter = {}
    for name, to in sorted(dict.fromkeys(names), key=lambda each: (last_part(each[0]).lower(), each)):
        letter = last_part(name)[:1].upper()
        by_letter.setdefault(letter if letter.isalpha() else "Other", []).append((name, to))
    jumps = " ".join(f'<a href="#at-{letter}">{letter}</a>' for letter in sorted(by_letter))
    out = [f"<h1>Index of names</h1><p>{jumps}</p>"]
    for letter, own in sorted(by_letter.items()):
        out.append(f'<h2 id="at-{letter}">{letter}</h2><ul class="names">')
        out += [f'<li><a href="{html.escape(relative(to, "cpp/names.html"))}">{html.escape(name)}</a></li>' for name, to in own]
        out.append("</ul>")
    return "\n".join(out)


def last_part(name):
    return re.sub(r"^~", "", name.split("::")[-1])
