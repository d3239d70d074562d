"""The part of a C++ preprocessor that our public headers need: macros, #ifdef, and .def lists. Comments stay."""
import re

from .code import TOKEN, tokens

DIRECTIVE = re.compile(r"^[ \t]*#(?P<text>(?:.*\\\n)*.*)$", re.M)
MACRO_COMMENT = re.compile(r"\n(?:[ \t]*//[^\n]*\n)+$")  # what is said of a macro; the macro itself is not shown
INCLUDE = re.compile(r'"(?P<path>[^"]+)"')


class Macro:
    def __init__(self, params, body):
        self.params, self.body = params, body


class Preprocessor:
    """Reads headers as a compiler does, each once and in order; `texts` holds each one's own text, expanded."""

    def __init__(self, folder):
        self.folder, self.macros, self.texts, self.includes = folder, {}, {}, {}

    def header(self, name, path=None):
        path = path or self.folder / name
        if name in self.texts or not path.exists():
            return
        self.texts[name], self.includes[name] = "", []
        self.texts[name] = self.process(path.read_text(encoding="utf-8"), name)

    def process(self, text, name):
        out, at, active = [], 0, []
        for found in DIRECTIVE.finditer(text):
            if all(active):
                out.append(self.expand(text[at:found.start()]))
            at = found.end()
            if out and re.match(r"\s*define", found["text"]):
                out[-1] = MACRO_COMMENT.sub("\n", out[-1])
            directive = re.sub(r"[ \t]*\\\n", "\n", found["text"]).strip()
            out.append(self.directive(directive, active, name))
        if all(active):
            out.append(self.expand(text[at:]))
        return "".join(out)

    def directive(self, text, active, name):
        """Does what a directive says; gives the text it stands for."""
        word, rest = (text.split(None, 1) + [""])[:2]
        if word in ("ifdef", "ifndef", "if"):
            active.append(self.condition(word, rest))
        elif word in ("else", "elif"):
            active[-1] = not active[-1] and (word == "else" or self.condition("if", rest))
        elif word == "endif":
            active.pop()
        elif all(active) and word == "define":
            self.define(rest)
        elif all(active) and word == "undef":
            self.macros.pop(rest.split()[0], None)
        elif all(active) and word == "include" and INCLUDE.match(rest):
            return self.include(INCLUDE.match(rest)["path"], name)
        return ""

    def condition(self, word, rest):
        names = re.findall(r"defined\s*\(?\s*(\w+)", rest) if word == "if" else [rest.split()[0]]
        return any(each in self.macros for each in names) != (word == "ifndef")

    def define(self, text):
        name, params, body = re.match(r"(\w+)(\([^)]*\))?(.*)", text, re.S).groups()
        body = re.sub(r"[ \t]*//[^\n]*", "", body).strip()
        params = None if params is None else [each.strip() for each in params[1:-1].split(",") if each.strip()]
        self.macros[name] = Macro(params, body)

    def include(self, path, name):
        if not path.endswith(".def"):
            self.includes[name].append(path)
            self.header(path)
            return ""
        return self.list(path, name)

    def list(self, path, name):
        """What a .def list stands for here, without what it says of itself."""
        text = (self.folder / path).read_text(encoding="utf-8")
        return self.process(re.sub(r"^//.*\n", "", text, flags=re.M), name)

    def macro(self, name):
        """A macro; of one that only stands for another, that one."""
        macro = self.macros.get(name)
        while macro and macro.params is None and macro.body in self.macros:
            macro = self.macros[macro.body]
        return macro

    def expand(self, text, hidden=frozenset()):
        if not any(name in text for name in self.macros):
            return text
        out, parts, i = [], tokens(text), 0
        while i < len(parts):
            kind, word = parts[i]
            macro = self.macro(word) if kind == "word" and word not in hidden else None
            args, after = (None, i + 1) if not macro or macro.params is None else arguments(parts, i + 1)
            if macro and (macro.params is None or args is not None):
                out.append(self.expand(substitute(macro, args or []), hidden | {word}))
            else:
                out.append(word)
                after = i + 1
            i = after
        return "".join(out)


def arguments(parts, i):
    """The arguments of a call whose parenthesis is the next token at or after i, and the place after it."""
    while i < len(parts) and parts[i][0] == "space":
        i += 1
    if i == len(parts) or parts[i][1] != "(":
        return None, i
    args, depth = [""], 0
    for at in range(i, len(parts)):
        word = parts[at][1]
        depth += (word in "([{") - (word in ")]}") if parts[at][0] == "mark" else 0
        if depth == 0:
            return [arg.strip() for arg in args], at + 1
        if word == "," and depth == 1:
            args.append("")
        elif at > i:
            args[-1] += word
    return None, i


def substitute(macro, args):
    values = dict(zip(macro.params or [], args))
    if macro.params and macro.params[-1] == "...":
        values["__VA_ARGS__"] = ", ".join(args[len(macro.params) - 1:])
    body = re.sub(r"(?<!#)#(\w+)", lambda m: f'"{values[m[1]]}"' if m[1] in values else m[0], macro.body)
    body = "".join(values.get(m[0], m[0]) if m.lastgroup == "word" else m[0] for m in TOKEN.finditer(body))
    return re.sub(r"\s*##\s*", "", body)
