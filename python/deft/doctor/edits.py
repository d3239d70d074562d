"""Small changes to a source text that leave everything else as it is."""

import ast
import difflib
import io
import tokenize


class Edit:
    """At a line and column (in characters), up to an end column of the same line, the text goes in."""

    def __init__(self, line, column, end, text):
        self.line, self.column, self.end, self.text = line, column, end, text

    def key(self):
        return self.line, self.column, self.end


class Source:
    def __init__(self, path):
        self.path = path
        with tokenize.open(path) as file:
            self.encoding = file.encoding
            self.text = file.read()
        self.lines = self.text.splitlines(keepends=True)
        self.tree = ast.parse(self.text)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self._in_strings = None

    def column(self, line, offset):
        """ast counts bytes."""
        return len(self.lines[line - 1].encode()[:offset].decode())

    def begin(self, node):
        return node.lineno, self.column(node.lineno, node.col_offset)

    def end(self, node):
        return node.end_lineno, self.column(node.end_lineno, node.end_col_offset)

    def statement_at(self, line):
        """The innermost one that covers the line."""
        found = None
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:
                if found is None or node.lineno >= found.lineno and node.end_lineno <= found.end_lineno:
                    found = node
        return found

    def calls_at(self, line):
        return [n for n in ast.walk(self.tree) if isinstance(n, ast.Call) and n.lineno <= line <= n.end_lineno]

    def indent_of(self, line):
        text = self.lines[line - 1]
        return text[:len(text) - len(text.lstrip())]

    def unit(self):
        """How this file indents."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and body[0].lineno > node.lineno:
                outer, inner = self.indent_of(node.lineno), self.indent_of(body[0].lineno)
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer):]
        return "    "

    def inside_strings(self):
        """Lines that begin inside a string."""
        if self._in_strings is None:
            self._in_strings = set()
            begins = {}
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                name = tokenize.tok_name[token.type]
                if name == "STRING" and token.end[0] > token.start[0]:
                    self._in_strings.update(range(token.start[0] + 1, token.end[0] + 1))
                elif name == "FSTRING_START":
                    begins[len(begins)] = token.start[0]
                elif name == "FSTRING_END" and begins:
                    self._in_strings.update(range(begins.popitem()[1] + 1, token.end[0] + 1))
        return self._in_strings

    def wrapped(self, first, last, header):
        """Edits that put statements in lines first to last into a block."""
        indent, unit = self.indent_of(first), self.unit()
        edits = [Edit(first, 0, 0, indent + header + "\n")]
        for line in range(first, last + 1):
            if self.lines[line - 1].strip() and line not in self.inside_strings():
                edits.append(Edit(line, 0, 0, unit))
        return edits


def same_edit(a, b):
    return a.key() == b.key() and a.text == b.text


def applied(source, edits):
    """The changed text. Raises ValueError where two edits change the same characters."""
    unique = []
    for edit in edits:
        if not any(same_edit(edit, other) for other in unique):
            unique.append(edit)
    lines = list(source.lines)
    order = sorted(enumerate(unique), key=lambda item: (item[1].key(), item[0]))
    for (_, a), (_, b) in zip(order, order[1:]):
        if a.line == b.line and a.end > b.column:
            raise ValueError("two changes meet in line {}".format(a.line))
    for _, edit in reversed(order):
        text = lines[edit.line - 1]
        lines[edit.line - 1] = text[:edit.column] + edit.text + text[edit.end:]
    return "".join(lines)


def line_after(edits, line):
    """Where a line of the old text is in the new one."""
    return line + sum(e.text.count("\n") for e in edits if e.line < line or e.line == line and e.column == 0)


def diff(source, text, name):
    """A unified diff, as `patch -p0` takes it."""
    return "".join(_ended(line) for line in difflib.unified_diff(source.lines, text.splitlines(keepends=True), name, name))


def _ended(line):
    return line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
