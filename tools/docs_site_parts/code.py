"""Tokens of C++ and Python, good enough for colours and for finding declarations."""
import html
import re

TOKEN = re.compile(r"""
  (?P<comment>//[^\n]*|/\*.*?\*/)
 |(?P<string>R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
 |(?P<space>\s+)
 |(?P<word>\boperator\s*(?:\(\s*\)|\[\s*\]|[-+*/%^&|~!=<>,]+)|[A-Za-z_]\w*|\.?\d(?:[\w.']|(?<=[eEpP])[-+])*)
 |(?P<mark>::|->|\.\.\.|.)
""", re.X | re.S)
PYTHON_TOKEN = re.compile(r"(?P<comment>\#[^\n]*)|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|(?P<word>[A-Za-z_]\w*)|(?P<mark>.)",
                          re.S)
SHELL_TOKEN = re.compile(r"(?P<comment>(?<!\S)\#[^\n]*)|(?P<mark>.)", re.S)
TOKENS = {"cpp": TOKEN, "c++": TOKEN, "python": PYTHON_TOKEN, "sh": SHELL_TOKEN, "cmake": SHELL_TOKEN}
KEYWORDS = set("""auto bool break case class concept const constexpr continue def default delete double else enum explicit
  false final float for friend from if import in inline int namespace noexcept nullptr operator override private protected
  public requires return size_t static struct switch template this true typename union using virtual void while with
  as True False None lambda int64_t uint64_t int32_t uint32_t uint8_t int8_t uint16_t""".split())


def tokens(text):
    """(kind, text) of each token of C++; together they are the text."""
    return [(m.lastgroup, m[0]) for m in TOKEN.finditer(text)]


def highlight(text, language):
    """HTML of code with comments, strings and keywords marked; plain where the language is not known."""
    pattern = TOKENS.get(language)
    if not pattern:
        return html.escape(text, quote=False)
    out = []
    for m in pattern.finditer(text):
        kind, token = m.lastgroup, html.escape(m[0], quote=False)
        kind = "keyword" if kind == "word" and m[0] in KEYWORDS else kind
        out.append(f'<span class="{kind[0]}">{token}</span>' if kind in ("comment", "string", "keyword") else token)
    return "".join(out)
