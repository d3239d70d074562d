"""Declarations of a C++ header, after the preprocessor: namespaces, classes with their public members, functions, the rest."""
import dataclasses
import re

from .code import tokens

HIDDEN_NAMESPACES = {"detail", ""}
CLASS_KEYS = {"class", "struct", "union"}
NO_CALL = {"requires", "decltype", "alignas", "noexcept", "explicit", "sizeof", "__attribute__"}
OPEN, CLOSE = "([{", ")]}"
CLASS_NAME = re.compile(r"\b(?:class|struct|union)\s+(?:(?:\[\[[^\]]*\]\]|alignas\([^)]*\))\s*)*([\w:]+(?:<[^{:]*>)?)")
SITE = re.compile(r"(?:, )?(?:const )?Site&? \w+ = Site::current\(\)")
NO_DOC = re.compile(r"// (?:namespace\b|clang-format o)")
NOT_SHOWN = re.compile(r"\bElementwiseDef elementwise_|\bop_def<|^friend (?!.*\boperator)|^static_assert\b|^using namespace\b")


@dataclasses.dataclass
class Item:
    kind: str            # namespace, class, enum, function, variable, alias, section, text
    name: str
    text: str            # as shown
    comment: str = ""    # the lines before it
    note: str = ""       # what follows on its line
    joined: bool = False  # directly below the one before it, without a comment of its own
    body: str = ""
    members: list = dataclasses.field(default_factory=list)


def without_marks(comment):
    """The lines of a // comment without the slashes."""
    lines = [re.sub(r"^//+ ?", "", line.strip()) for line in comment.split("\n")]
    return "\n".join(lines).strip("\n")


def file_comment(text):
    found = re.match(r"\s*((?://[^\n]*\n)+)", text)
    return without_marks(found[1]) if found else ""


def tidy(text):
    """A declaration on one line, without what only the compiler reads."""
    text = re.sub(r"\[\[(?:gnu::\w+(?:, )?|noreturn(?:, )?|maybe_unused)+\]\]", "", text)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\b(?:inline|typename) (?=[\w:\[])", "", text) if not text.startswith("template") else text
    text = re.sub(r"\binline ", "", text)
    text = re.sub(r"\boperator (?=[^\w\s(])", "operator", text)
    return re.sub(r"\( ", "(", re.sub(r" ([,);])", r"\1", SITE.sub("", text))).strip()


def enum_text(head):
    """An enumeration on one line, or line by line where its values have comments."""
    text = "".join(head).strip()
    if "//" not in text:
        return tidy(text)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return "\n".join(line if i == 0 or line == "}" else "  " + line for i, line in enumerate(lines))


class Reader:
    def __init__(self, text):
        self.parts, self.i = tokens(text), 0

    def scope(self, public=True, owner=""):
        """Items up to the closing brace of this scope. `owner` is the class around it."""
        items, comment, joined, spaced = [], [], False, False
        while self.i < len(self.parts):
            kind, text = self.parts[self.i]
            if kind == "space":
                self.i += 1
                spaced = spaced or "\n" in text
                if text.count("\n") > 1:
                    self.flush(items, comment, public)
                    joined = False
            elif kind == "comment":
                self.i += 1
                if NO_DOC.match(text):
                    continue
                if items and not spaced and not comment:
                    items[-1].note = without_marks(text)
                else:
                    comment.append(text)
            elif text == "}":
                self.i += 1
                break
            elif kind == "word" and self.access(text):
                public = text == "public"
                comment.clear()
            elif text == ";":
                self.i += 1
            else:
                item = self.item(owner)
                if item and public:
                    self.take(items, item, comment, joined)
                joined, spaced, comment = bool(item), False, []
        return items

    def flush(self, items, comment, public):
        """A comment that stands alone."""
        if comment and public:
            items.append(comment_item(comment))
        comment.clear()

    def take(self, items, item, comment, joined):
        if comment and comment[0].startswith("// ---"):
            # The first line that ends a sentence ends what is said of the section.
            end = next((i for i, line in enumerate(comment) if line.rstrip().endswith(".")), len(comment) - 1)
            items.append(comment_item(comment[:end + 1]))
            comment = comment[end + 1:]
        item.comment = without_marks("\n".join(comment))
        item.joined = joined and not comment
        items.append(item)

    def access(self, word):
        """Steps over `public:` and its kin."""
        if word not in ("public", "private", "protected"):
            return False
        self.i += 1
        while self.parts[self.i][1] != ":":
            self.i += 1
        self.i += 1
        return True

    def item(self, owner):
        head, end = self.head()
        first, words = leading(head)
        if first == "namespace" or end == "{" and first == "extern":
            return self.namespace(words)
        if end == "{" and first in CLASS_KEYS:
            return self.class_item(head, first)
        text = enum_text(head) if first == "enum" else tidy("".join(head))
        if end == "body":
            start = self.i
            self.skip_braces()
            body = "".join(text for _, text in self.parts[start:self.i])
        else:
            body = ""
        return make_item(text, first, head, body, owner)

    def namespace(self, words):
        name = "".join(words[1:])
        if words[0] == "extern":
            return Item("namespace", "", "", members=self.scope())
        if self.parts[self.i - 1][1] == ";":  # an alias
            return None
        if any(part in HIDDEN_NAMESPACES for part in name.split("::")):
            self.i -= 1
            self.skip_braces()
            return None
        return Item("namespace", name, "", members=self.scope())

    def class_item(self, head, key):
        text = tidy("".join(head))
        found = CLASS_NAME.search(after_template(text))
        name = found[1] if found else ""
        members = self.scope(key != "class", name)
        while self.parts[self.i][1] != ";":  # variables declared with it are not shown
            self.i += 1
        self.i += 1
        return Item("class", name, text, members=members) if name else None

    def skip_braces(self):
        depth = 0
        while self.i < len(self.parts):
            kind, text = self.parts[self.i]
            self.i += 1
            depth += (text == "{") - (text == "}") if kind == "mark" else 0
            if depth == 0:
                return

    def balanced(self):
        start = self.i
        self.skip_braces()
        return [text for _, text in self.parts[start:self.i]]

    def head(self):
        """Tokens of a declaration and what ended it: ";", "{" (a class or a namespace, entered) or "body" (a function's, not
        entered)."""
        head, state = [], Head()
        while self.i < len(self.parts):
            kind, text = self.parts[self.i]
            if state.flat() and text == ";":
                self.i += 1
                return head, ";"
            if text == "{" and kind == "mark":
                end = state.at_brace(head)
                if end == "{":
                    self.i += 1
                if end:
                    return head, end
                braces = self.balanced()
                if not state.in_init:
                    head += braces if leading(head)[0] == "enum" else [text for text in braces if not text.startswith("//")]
                state.before = "}"
                continue
            state.see(kind, text)
            if kind != "comment" and not state.in_init:
                head.append(text)
            self.i += 1
        return head, ";"


class Head:
    """What was seen of a declaration so far."""

    def __init__(self):
        self.parens = self.angles = 0
        self.called = self.assigned = self.in_init = False
        self.before = ""        # the last token that is neither space nor comment
        self.owners = []        # the words before open parentheses
        self.closed = ""        # the word before the parenthesis that was closed last

    def flat(self):
        return self.parens == 0 and (self.angles == 0 or self.assigned)

    def see(self, kind, text):
        if kind in ("space", "comment"):
            return
        if kind == "mark":
            self.mark(text)
        self.before = text

    def mark(self, text):
        if text in "([":
            if text == "(" and self.flat() and not self.assigned and self.before not in NO_CALL and self.before:
                self.called = True
            self.parens += 1
            self.owners.append(self.before)
        elif text in ")]":
            self.parens -= 1
            self.closed = self.owners.pop()
        elif self.parens == 0 and not self.assigned:
            self.angles += (text == "<") - (text == ">" and self.angles > 0)
            self.assigned = text == "=" and self.angles == 0
            self.in_init = self.in_init or text == ":" and self.called

    def at_brace(self, head):
        """"{" to enter it, "body" for a function's, None for an initialiser or an expression."""
        first, _ = leading(head)
        if not self.flat() or self.assigned or self.before == "requires" or (self.before == ")" and self.closed == "requires"):
            return None
        if first in ("namespace", "extern") or first in CLASS_KEYS and not self.called:
            return "{"
        if first == "enum" or not self.called:
            return None
        if self.in_init and re.fullmatch(r"\w+", self.before):
            return None
        return "body"


def after_template(text):
    """A declaration without `template <...>` and requires-clauses that end where a class begins."""
    while text.startswith("template"):
        depth, i = 0, text.index("<")
        for i in range(i, len(text)):
            depth += (text[i] == "<") - (text[i] == ">" and text[i - 1] != "-")
            if depth == 0:
                break
        text = text[i + 1:].strip()
    return text


def leading(head):
    """The word that says what a declaration is, and all words from there."""
    text = after_template(re.sub(r"\s+", " ", "".join(head)).strip())
    found = re.match(r"requires .*?\b((?:class|struct) \w.*)", text)
    text = found[1] if found else text
    text = re.sub(r"^(?:\[\[.*?\]\] ?|alignas\(.*?\) ?|inline )+", "", text)
    words = re.findall(r"\w+|::", text)
    return (words[0] if words else ""), words


def function_name(text):
    """The name before the parameters: of a plain function, an operator, a constructor or a destructor."""
    text = after_template(text)
    text = re.sub(r"^requires\s*\((?:[^()]|\([^()]*\))*\)", "", text)
    depth = 0
    for found in re.finditer(r"(?P<name>~?\boperator\s*(?:\(\s*\)|\[\s*\]|[-+*/%^&|~!=<>,]+|[\w:<>& ]+?(?=\())|~?\w+)|(?P<mark>.)", text):
        if found["mark"]:
            depth += (found["mark"] in "<[") - (found["mark"] in ">]")
        elif depth == 0 and re.match(r"\s*\(", text[found.end():]) and found["name"] not in NO_CALL:
            qualified = text[:found.start()].endswith("::")
            return re.sub(r"\s+(?=\W)", "", found["name"]), qualified
    return "", False


def variable_name(text):
    text = text.split(" = ")[0].split("{")[0]
    while "<" in text and (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    names = re.findall(r"[A-Za-z_]\w*(?=\s*(?:\[[^\]]*\]\s*)*(?:,|$))", text)
    return names[0] if names else ""


def make_item(text, first, head, body, owner):
    if not text or NOT_SHOWN.search(text) or re.fullmatch(r"(?:template <[^>]*> )?(?:class|struct|enum class|union) [\w:]+(?: : \w+)?", text):
        return None
    if first == "enum":
        name = re.match(r"enum (?:class |struct )?(\w*)", text)[1]
        return Item("enum", name, text) if name else None
    if first in ("using", "typedef", "concept"):
        name = re.match(r"(?:using|typedef|concept) (?:enum )?([\w:]+)", after_template(text))
        return Item("alias", name[1].split("::")[-1] if name else "", text) if name and "::" not in name[1] else None
    state = Head()
    for kind, token in tokens(text):
        state.see(kind, token)
    if state.called:
        name, qualified = function_name(text)
        shown = Item("function", name, text.removesuffix(";"), body=body)
        return shown if name and not (qualified and not owner) else None
    return Item("variable", variable_name(after_template(text)), text, body=body)


def comment_item(comment):
    """A comment that belongs to no declaration: a heading ("--- What it is. And more") or a paragraph."""
    text = without_marks("\n".join(comment))
    if not text.startswith("---"):
        return Item("text", "", text)
    title, _, rest = text.lstrip("- ").replace("\n", " ").partition(". ")
    return Item("section", "", title.removesuffix("."), comment=rest)


def read(text):
    return Reader(text).scope()
