"""Markdown to HTML, as far as our pages use it: headings, paragraphs, lists, tables, fenced code, links, emphasis."""
import html
import re

from . import code

FENCE = re.compile(r"(?P<indent> *)```(?P<info>[^`]*)$")
HEADING = re.compile(r"(?P<marks>#{1,6}) +(?P<text>.+?)(?: +#+)?$")
MARKER = re.compile(r"(?P<indent> *)(?P<mark>[-*+]|\d+\.) +")
TABLE_RULE = re.compile(r"\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$")
COMMENT = re.compile(r"<!--.*?-->", re.S)
INLINE_CODE = re.compile(r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)", re.S)
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<to>[^()\s]+)\)")


def anchor_of(heading):
    """The anchor that GitHub gives a heading, so that links work there and here."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def without_comments(text):
    """HTML comments are dropped, but not inside fenced code."""
    parts = re.split(r"(^ *```.*?^ *```)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else COMMENT.sub("", part) for i, part in enumerate(parts))


class Converter:
    def __init__(self, link=lambda to: to, code_link=lambda text: None):
        self.link = link            # where a link of the page leads on the site
        self.code_link = code_link  # the address of what inline code names, or None
        self.headings = []          # (level, text, anchor)

    def page(self, text):
        return self.blocks(without_comments(text).expandtabs(4).split("\n"))

    # ---- Inline

    def inline(self, text):
        kept = []

        def keep(markup):
            kept.append(markup)
            return f"\0{len(kept) - 1}\0"

        text = INLINE_CODE.sub(lambda m: keep(self.inline_code(m["code"])), text)
        text = re.sub(r"\\([!-/:-@\[-`{-~])", lambda m: keep(html.escape(m[1])), text)
        text = LINK.sub(lambda m: keep(f'<a href="{html.escape(self.link(m["to"]))}">') + m["text"] + keep("</a>"), text)
        text = html.escape(text, quote=False)
        text = re.sub(r"\*\*(?=\S)(.+?)(?<=\S)\*\*", r"<strong>\1</strong>", text, flags=re.S)
        text = re.sub(r"(?<![\w*])\*(?=[^\s*])([^*]+?)(?<=\S)\*(?![\w*])", r"<em>\1</em>", text)
        text = re.sub(r"(?<!\w)_(?=\S)([^_]+?)(?<=\S)_(?!\w)", r"<em>\1</em>", text)
        while "\0" in text:
            text = re.sub(r"\0(\d+)\0", lambda m: kept[int(m[1])], text)
        return text

    def inline_code(self, text):
        text = text[1:-1] if text[0] == text[-1] == " " and text.strip() else text
        markup = f"<code>{html.escape(text, quote=False)}</code>"
        to = self.code_link(text)
        return f'<a href="{html.escape(to)}">{markup}</a>' if to else markup

    # ---- Blocks: each reads lines from i and gives its HTML and the line after it

    def blocks(self, lines):
        out, i = [], 0
        while i < len(lines):
            if not lines[i].strip():
                i += 1
                continue
            markup, i = self.block(lines, i)
            out.append(markup)
        return "\n".join(out)

    def block(self, lines, i):
        if FENCE.match(lines[i]):
            return self.fence(lines, i)
        if HEADING.match(lines[i]):
            return self.heading(HEADING.match(lines[i])), i + 1
        if MARKER.match(lines[i]):
            return self.list(lines, i)
        if "|" in lines[i] and i + 1 < len(lines) and TABLE_RULE.match(lines[i + 1].strip()):
            return self.table(lines, i)
        return self.paragraph(lines, i)

    def starts_block(self, line):
        return FENCE.match(line) or HEADING.match(line) or MARKER.match(line)

    def heading(self, found):
        level, text = len(found["marks"]), found["text"]
        anchor = anchor_of(text)
        used = [a for _, _, a in self.headings]
        count = sum(a == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", a) is not None for a in used)
        anchor = f"{anchor}-{count}" if count else anchor
        self.headings.append((level, text, anchor))
        return f'<h{level} id="{anchor}">{self.inline(text)}<a class="here" href="#{anchor}">#</a></h{level}>'

    def fence(self, lines, i):
        found, body = FENCE.match(lines[i]), []
        i += 1
        while i < len(lines) and lines[i].strip() != "```":
            body.append(lines[i].removeprefix(found["indent"]))
            i += 1
        language = (found["info"].split() or [""])[0]
        return f"<pre><code>{code.highlight(chr(10).join(body), language)}</code></pre>", i + 1

    def paragraph(self, lines, i):
        start = i
        i += 1
        while i < len(lines) and lines[i].strip() and not self.starts_block(lines[i]):
            i += 1
        return f"<p>{self.inline(chr(10).join(line.strip() for line in lines[start:i]))}</p>", i

    def list(self, lines, i):
        """Items at the indent of the first one; what is indented deeper belongs to an item."""
        first = MARKER.match(lines[i])
        ordered, indent, items = first["mark"][0].isdigit(), len(first["indent"]), []
        while i < len(lines):
            found = MARKER.match(lines[i])
            if not found or len(found["indent"]) != indent or found["mark"][0].isdigit() != ordered:
                break
            body, i = self.item(lines, i, found)
            items.append(f"<li>{self.tight(body)}</li>")
            after = self.skip_blank(lines, i)
            if after < len(lines) and MARKER.match(lines[after]):
                i = after
        tag = "ol" if ordered else "ul"
        return f"<{tag}>\n" + "\n".join(items) + f"\n</{tag}>", i

    def item(self, lines, i, found):
        width, body = found.end(), [lines[i][found.end():]]
        i += 1
        while i < len(lines):
            line = lines[i]
            if line.startswith(" " * width):
                body.append(line[width:])
            elif not line.strip() and self.goes_on(lines, i, width):
                body.append("")
            elif line.strip() and not self.starts_block(line) and body[-1].strip():
                body.append(line.strip())  # a line of the item's paragraph that is not indented
            else:
                break
            i += 1
        return body, i

    def goes_on(self, lines, i, width):
        after = self.skip_blank(lines, i)
        return after < len(lines) and lines[after].startswith(" " * width)

    def skip_blank(self, lines, i):
        while i < len(lines) and not lines[i].strip():
            i += 1
        return i

    def tight(self, body):
        """An item without blank lines needs no paragraphs."""
        markup = self.blocks(body)
        return markup if "" in body else re.sub(r"^<p>(.*?)</p>", r"\1", markup, flags=re.S)

    def table(self, lines, i):
        head, rule, rows = cells_of(lines[i]), cells_of(lines[i + 1]), []
        i += 2
        while i < len(lines) and "|" in lines[i] and lines[i].strip():
            rows.append(cells_of(lines[i]))
            i += 1
        right = [cell.endswith(":") and not cell.startswith(":") for cell in rule]
        body = "\n".join(self.row(row, "td", right) for row in rows)
        return f'<div class="wide"><table>\n<thead>{self.row(head, "th", right)}</thead>\n<tbody>\n{body}\n</tbody></table></div>', i

    def row(self, cells, tag, right):
        marks = [' class="right"' if i < len(right) and right[i] else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{mark}>{self.inline(cell)}</{tag}>" for cell, mark in zip(cells, marks)) + "</tr>"


def cells_of(line):
    """The cells of a table row. A bar within inline code, or after a backslash, is none."""
    line = re.sub(r"^\||(?<!\\)\|$", "", line.strip())
    guarded = INLINE_CODE.sub(lambda m: m[0].replace("|", "\1"), line).replace("\\|", "\1")
    return [cell.strip().replace("\1", "|") for cell in guarded.split("|")]
