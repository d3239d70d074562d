"""The table of ops: what the OpInfo of each op type says, and which rules and kernels the type has."""
import dataclasses
import re

from .code import tokens

SETS = {"kFloats": "floats", "kIntegers": "integers", "kBool": "bool", "kNumbers": "numbers", "kAllTypes": "all"}
COMPOSED = "composed of other ops"


@dataclasses.dataclass
class Op:
    type: str
    header: str
    comment: str
    name: str
    inputs: str
    outputs: str
    dtypes: str
    gradient: str
    onnx: str
    cpu: str
    cuda: str


def split(text, brackets=("([{", ")]}")):
    """At the commas that are in no brackets."""
    parts, depth = [""], 0
    for kind, token in tokens(text):
        depth += (token in brackets[0]) - (token in brackets[1]) if kind == "mark" and len(token) == 1 else 0
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


class Infos:
    """Evaluates initialisers of OpInfo: designated fields, or a call of a function that returns some."""

    def __init__(self):
        self.functions = {}  # name: (parameters, their defaults, the braces it returns)

    def learn(self, item):
        returned = re.search(r"return (\{.*\}|\w+\(.*\));", item.body, re.S)
        if item.kind != "function" or not re.match(r"constexpr OpInfo ", item.text) or not returned:
            return
        params = [each.partition(" = ") for each in split(item.text[item.text.index("(") + 1:item.text.rindex(")")], ("([{<", ")]}>"))]
        names = [re.search(r"(\w+)$", before)[1] for before, _, _ in params]
        self.functions[item.name] = (names, [default for _, _, default in params], returned[1])

    def fields(self, text):
        text = text.strip()
        if text.startswith("{"):
            pairs = [part.partition("=") for part in split(text[1:-1])]
            return {name.strip().lstrip("."): value.strip() for name, _, value in pairs}
        found = re.match(r"(\w+)\s*\((.*)\)$", text, re.S)
        if not found or found[1] not in self.functions:
            return {}
        names, defaults, body = self.functions[found[1]]
        args = split(found[2])
        values = dict(zip(names, args + defaults[len(args):]))
        return {key: values.get(value, value) for key, value in self.fields(body).items()}


def info_of(item):
    return next((m for m in item.members if m.name == "info" and m.text.startswith("static constexpr OpInfo")), None)


def is_op(item):
    return item.kind == "class" and info_of(item) is not None


def op_of(item, header, infos):
    text = re.sub(r"^.*?\binfo\s*=?\s*", "", info_of(item).text, flags=re.S)
    fields = infos.fields(text)
    own = {m.name: m for m in item.members}
    inputs = fields.get("inputs", "1")
    cpu, cuda = kernels(own)
    return Op(item.name, header, item.comment, string(fields.get("name", "")), "a list" if inputs == "kListInput" else inputs,
              fields.get("outputs", "1"), dtypes(fields.get("dtypes", "kFloats")), gradient(own), onnx(fields.get("onnx", "")),
              cpu, cuda)


def string(text):
    return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text))


def dtypes(text):
    single = re.fullmatch(r"only\(DType::(\w+)\)", text)
    return " and ".join(SETS.get(part.strip(), part.strip()) for part in text.split("|")) if not single else single[1]


def onnx(text):
    name = string(text)
    since = re.search(r",\s*(\d+)", text)
    return f"{name} ({since[1]})" if name and since else name


def gradient(own):
    if "not_differentiable" in own:
        return "none: " + string(own["not_differentiable"].text)
    if "vjp" in own or "grad" in own or "grad_a" in own:
        return "yes"
    return COMPOSED


def kernels(own):
    if "fwd" in own:
        return "yes", "yes"
    if "view" in own:
        return "view", "view"
    if "cpu" not in own and "cuda" not in own:
        return "composed", "composed"
    return "yes" if "cpu" in own else "no", "yes" if "cuda" in own else "no"
