"""Pages of the guides: README, CONTRIBUTING, CHANGELOG, docs/**/*.md, and the files that these link to."""
import html
import posixpath
import re
import urllib.parse

from . import code
from .markdown import Converter
from .site import relative

PART = "Guides"
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".sh": "sh", ".txt": "cmake"}


def path_of(source):
    return "index.html" if source == "README.md" else source.removesuffix(".md") + ".html"


def title_of(source, converter):
    if source == "README.md":
        return "Deft"
    return next((re.sub(r"[`*]", "", text) for level, text, _ in converter.headings if level == 1), source)


class Guides:
    def __init__(self, site, root):
        self.site, self.root, self.names, self.files = site, root, {}, []
        found = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((root / "docs").rglob("*.md"))
        self.sources = [file.relative_to(root).as_posix() for file in found if file.exists()]

    def link(self, source, to):
        """Where a link of a Markdown page leads: to its page, to a copy of the file, or out."""
        parts = urllib.parse.urlsplit(to)
        if parts.scheme or not parts.path:
            return to
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), parts.path))
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        if target in self.sources:
            return relative(path_of(target) + anchor, path_of(source))
        if not (self.root / target).exists():
            return to  # the check of links reports it
        if target not in self.files:
            self.files.append(target)
        return relative(file_path(target), path_of(source)) + anchor

    def code_link(self, source, text):
        """The C++ reference of what inline code names: `nn::Linear`, `Tensor::sum()`."""
        to = self.names.get(re.sub(r"\(\)$|^deft::", "", text)) if "::" in text else None
        return relative(to, path_of(source)) if to else None

    def pages(self):
        """To be called when the names of the reference are known."""
        self.names = {name: to for name, to in reversed(self.site.names) if to.startswith("cpp/")}
        made = []
        for source in self.sources:
            converter = Converter(lambda to: self.link(source, to), lambda text: self.code_link(source, text))
            body = converter.page((self.root / source).read_text(encoding="utf-8"))
            made.append((path_of(source), title_of(source, converter), body))
        for target in self.files:  # grows while folders are listed
            self.file(target)
        return made

    def file(self, target):
        place, path = self.root / target, file_path(target)
        title = f"<h1>{html.escape(target)}</h1>"
        if place.is_dir():
            inner = sorted(each.relative_to(self.root).as_posix() for each in place.iterdir() if each.is_file())
            self.files += [each for each in inner if each not in self.files]
            rows = [f'<li><a href="{relative(file_path(each), path)}">{html.escape(posixpath.basename(each))}</a></li>' for each in inner]
            self.site.add(path, target, title + "<ul>" + "\n".join(rows) + "</ul>")
        elif path.endswith(".html"):
            text = code.highlight(place.read_text(encoding="utf-8"), LANGUAGES.get(place.suffix, ""))
            self.site.add(path, target, f"{title}<pre><code>{text}</code></pre>")
        else:
            self.site.raw[path] = place.read_bytes()


def file_path(target):
    """Files are shown as pages; JSON, which browsers show well, is copied."""
    return f"files/{target}" if target.endswith(".json") else f"files/{target}.html"


def add_pages(site, root):
    guides = Guides(site, root)
    pages = site.pages
    site.pages = []
    for path, title, body in guides.pages():
        site.add(path, title, body, PART)
    guide_pages = [page for page in site.pages if page.part]
    site.pages = sorted(guide_pages, key=lambda page: page.path != "index.html") + pages + [p for p in site.pages if not p.part]
