"""The pages of the site, what is around each of them, and the check of their links."""
import dataclasses
import html
import json
import pathlib
import posixpath
import re
import urllib.parse

TAG = re.compile(r"<[a-z][^<>]*>")  # what is text has its < escaped
ATTRIBUTE = re.compile(r'\b(href|src|id)="([^"]*)"')
HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Page:
    path: str
    title: str
    part: str   # a heading of the sidebar; "" for pages that are not in it
    group: str  # what folds in the sidebar; "" for pages directly under the heading
    body: str


class Site:
    def __init__(self):
        self.pages, self.names, self.raw = [], [], {}

    def add(self, path, title, body, part="", group=""):
        self.pages.append(Page(path, title, part, group, body))

    def name(self, name, path, anchor):
        """A name for the index and the search box."""
        self.names.append((name, f"{path}#{quoted(anchor)}"))

    def write(self, out):
        for page in self.pages:
            target = out / page.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.whole(page), encoding="utf-8")
        for path, data in self.raw.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(data)
        for file in ("style.css", "search.js"):
            (out / file).write_bytes((HERE / file).read_bytes())
        (out / "names.js").write_text(f"const deft_names = {json.dumps(sorted(set(self.names)))};\n", encoding="utf-8")

    def whole(self, page):
        root = "../" * page.path.count("/")
        title = page.title if page.title == "Deft" else f"{page.title} - Deft"
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<link rel="stylesheet" href="{root}style.css">
</head>
<body>
<div class="page">
<nav>
<a class="home" href="{root}index.html">Deft</a>
<input id="search" type="search" placeholder="Search names" aria-label="Search names" data-root="{root}" hidden>
<ul id="found"></ul>
{self.sidebar(page, root)}
</nav>
<main>
{page.body}
</main>
</div>
<script src="{root}names.js"></script>
<script src="{root}search.js"></script>
</body>
</html>
"""

    def sidebar(self, here, root):
        out = []
        for part in dict.fromkeys(page.part for page in self.pages if page.part):
            pages = [page for page in self.pages if page.part == part]
            out.append(f"<h2>{html.escape(part)}</h2>")
            out.append(links_to([page for page in pages if not page.group], here, root))
            for group in dict.fromkeys(page.group for page in pages if page.group):
                own = [page for page in pages if page.group == group]
                is_open = " open" if here in own else ""
                out.append(f"<details{is_open}><summary>{html.escape(group)}</summary>{links_to(own, here, root)}</details>")
        return "\n".join(out)


def links_to(pages, here, root):
    items = []
    for page in pages:
        mark = ' class="now" aria-current="page"' if page is here else ""
        items.append(f'<li><a{mark} href="{root}{page.path}">{html.escape(page.title)}</a></li>')
    return "<ul>" + "\n".join(items) + "</ul>" if items else ""


def relative(to, page):
    """The address of a path of the site, from a page."""
    path, mark, anchor = to.partition("#")
    folder = posixpath.dirname(page)
    return (posixpath.relpath(path, folder or ".") if path != page else "" if mark else posixpath.basename(page)) + mark + anchor


def quoted(anchor):
    return urllib.parse.quote(anchor, safe=":~")


class Links:
    """The links and the anchors of one page."""

    def __init__(self, text):
        found = [(key, html.unescape(value)) for tag in TAG.findall(text) for key, value in ATTRIBUTE.findall(tag)]
        self.links = list(dict.fromkeys(value for key, value in found if key != "id"))
        ids = [value for key, value in found if key == "id"]
        self.anchors = set(ids)
        self.twice = sorted({each for each in ids if ids.count(each) > 1}) if len(self.anchors) < len(ids) else []


def broken_links(out):
    """A message for each link or anchor of the HTML pages under a folder that leads nowhere."""
    pages = {path.relative_to(out).as_posix(): Links(path.read_text(encoding="utf-8")) for path in sorted(out.rglob("*.html"))}
    messages = []
    for path, page in pages.items():
        messages += [f"{path}: the anchor '{anchor}' is there twice" for anchor in page.twice]
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), urllib.parse.unquote(parts.path))) if parts.path else path
            if target not in pages and not (out / target).is_file():
                messages.append(f"{path}: '{link}' leads to no page")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                messages.append(f"{path}: '{link}' leads to no anchor of {target}")
    return messages
