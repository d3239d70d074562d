"""Pages of the Python package: one per public module, from its text alone; nothing is imported."""
import ast
import html
import re

from . import code
from .site import relative

PART = "Python"


def module_name(file, package):
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_public(name):
    return not any(part.startswith("_") for part in name.split("."))


def path_of(module):
    return f"python/{module}.html"


def docstring_html(text):
    """Paragraphs; what is indented is code."""
    out = []
    for block in re.split(r"\n\s*\n", text or ""):
        if re.match(r" {2,}", block):
            out.append(f'<pre><code>{code.highlight(block, "python")}</code></pre>')
        elif block.strip():
            out.append("<p>" + re.sub(r"`+([^`\n]+)`+", r"<code>\1</code>", html.escape(block.strip(), quote=False)) + "</p>")
    return "\n".join(out)


def signature(node, name, bound):
    """As it is called: without self, and without `...` for the body."""
    args = ast.parse(ast.unparse(node)).body[0].args
    if bound and (args.posonlyargs or args.args):
        (args.posonlyargs or args.args).pop(0)
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({ast.unparse(args)}){result}".replace(": Any=...", "=...").replace("=...", " = ...")


def decorators(node):
    return {ast.unparse(each).split("(")[0] for each in node.decorator_list}


class ModulePage:
    def __init__(self, site, module, docs):
        self.site, self.module, self.path, self.docs = site, module, path_of(module), docs
        self.seen, self.out, self.block = {}, [], []

    def anchor(self, name):
        self.seen[name] = count = self.seen.get(name, 0) + 1
        if count == 1:
            self.site.name(f"{self.module}.{name}", self.path, name)
        return name if count == 1 else f"{name}-{count}"

    def end_block(self):
        if self.block:
            self.out.append('<div class="decls">' + "\n".join(self.block) + "</div>")
            self.block = []

    def line(self, name, text, about):
        """A line of code; lines that nothing is said of stand together."""
        if about:
            self.end_block()
        self.block.append(f'<span class="decl" id="{self.anchor(name)}">{code.highlight(text, "python")}</span>')
        if about:
            self.end_block()
            self.out.append(docstring_html(about))

    def body(self, nodes, owner=""):
        for node in nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                self.class_(node, owner)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.function(node, owner)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
                self.line(owner + node.target.id, f"{node.target.id}: {ast.unparse(node.annotation)}", "")
        self.end_block()

    def function(self, node, owner):
        operator = owner == "Tensor." and node.name.startswith("__") and node.name != "__init__"
        if node.name.startswith("_") and not operator:
            return
        about = ast.get_docstring(node) or self.docs.get(owner + node.name, "")
        if "property" in decorators(node):
            self.line(owner + node.name, node.name, about)
        elif not decorators(node) & {"overload"} and not any(each.endswith(".setter") for each in decorators(node)):
            self.line(owner + node.name, signature(node, node.name, owner and "staticmethod" not in decorators(node)), about)

    def class_(self, node, owner):
        self.end_block()
        name = owner + node.name
        init = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        anchor = self.anchor(name)
        self.out.append(f'<h3 id="{anchor}">{name}<a class="here" href="#{anchor}">#</a></h3>')
        text = "class " + (signature(init, node.name, True).removesuffix(" -> None") if init else node.name)
        under = f'  <span class="c"># of {html.escape(bases)}</span>' if bases else ""
        self.out.append(f'<div class="decls"><span class="decl">{code.highlight(text, "python")}{under}</span></div>')
        self.out.append(docstring_html(ast.get_docstring(node) or self.docs.get(name, "")))
        before = len(self.out)
        self.body(node.body, name + ".")
        if len(self.out) > before:
            self.out.insert(before, '<div class="members">')
            self.out.append("</div>")


def docstrings_of(files):
    """Docstrings of functions and methods by name: the stubs have none."""
    docs = {}
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
                docs.setdefault(node.name, ast.get_docstring(node))
    return docs


def from_here(tree, module, is_package, public, path):
    """What a package offers that other modules define: `from .dataset import Dataset`."""
    rows = []
    base = module.split(".") if is_package else module.split(".")[:-1]
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        source = ".".join(base[:len(base) - node.level + 1] + ([node.module] if node.module else []))
        for each in node.names:
            name, whole = each.asname or each.name, f"{source}.{each.name}"
            to = path_of(whole) if whole in public else path_of(source) if source in public and source != module else None
            if to and not name.startswith("_"):
                rows.append(f'<li><a href="{relative(to, path)}"><code>{name}</code></a></li>')
    return f'<p>From here:</p><ul class="names">{"".join(dict.fromkeys(rows))}</ul>' if rows else ""


def add_pages(site, root):
    package = root / "python/deft"
    files = {module_name(file, package): file for file in sorted(package.rglob("*.py"))}
    public = [module for module in files if is_public(module)]
    private = [file for module, file in files.items() if module.count(".") == 1 and not is_public(module)]
    for module in public:
        file, stub = files[module], files[module].with_suffix(".pyi")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        page = ModulePage(site, module, docstrings_of(private + [files[each] for each in public if each == "deft.serialization"])
                          if stub.exists() else {})
        page.body((ast.parse(stub.read_text(encoding="utf-8")) if stub.exists() else tree).body)
        offered = from_here(tree, module, file.stem == "__init__", public, page.path)
        about = docstring_html(ast.get_docstring(tree))
        site.add(page.path, module, "\n".join([f"<h1>{module}</h1>", about, offered] + page.out), PART)
