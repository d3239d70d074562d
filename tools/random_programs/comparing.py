"""In what PyTorch and Deft differ on a program of tools/torch_fuzz, number by number."""
import math

from pytorch import FLOATS, run

# Rounding of a few ops in a row: part of the largest number of the result.
TOLERANCE = {"f64": 1e-9, "f32": 3e-4, "f16": 1e-2, "bf16": 1e-1}
EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def least_precise(program, want):
    """Of all float types that take part: steps in it decide, whatever the type of the result."""
    types = {i["dtype"] for i in program["inputs"]} | {t["dtype"] for step in want["values"] for t in step}
    if types - set(FLOATS):
        types.add("f32")  # whole numbers are divided and the like as f32
    return max(types & set(FLOATS), key=TOLERANCE.get)


class Difference:
    """One number, or one property of a result. at: the number of the step, or of steps for a gradient. place: of a
    number, (step or name of the input, index of the result, index in it)."""

    def __init__(self, case, at, what, a=None, b=None, place=None):
        self.case, self.program, self.at, self.what = case, case.program, at, what
        self.a, self.b, self.place = a, b, place
        steps = self.program["steps"]
        self.step = steps[at] if at < len(steps) else {"op": "backward", "in": [], "p": {}}
        self.op = self.step["op"]
        self.steps = [self.step] if at < len(steps) else steps

    def text(self):
        return self.what if self.a is None else f"{self.what}: {self.a} and {self.b}"

    def backward_of(self, *ops):
        return self.op == "backward" and any(s["op"].rstrip("_") in ops for s in self.steps)

    def inputs_of(self, *ops):
        """What flows into these ops: all of them for a gradient."""
        return [self.case.tensors[name] for s in self.steps if s["op"].rstrip("_") in ops for name in s["in"]]

    def nonfinite_into(self, *ops):
        return any(not math.isfinite(v) for t in self.inputs_of(*ops) for v in t["data"])


class Case:
    """A program with what PyTorch (want) and Deft (got) made of it."""

    def __init__(self, program, want, got):
        self.program, self.want, self.got = program, want, got
        self.tensors = {i["name"]: i for i in program["inputs"]}
        for step, values in zip(program["steps"], want["values"]):
            self.tensors.update(zip(step["out"], values))
        self.type = least_precise(program, want)
        self.tolerance = TOLERANCE[self.type]
        self.again = {}

    def differences(self):
        """Those of the first step that has any, or all of the gradients."""
        want, got = self.want, self.got
        for i, (a, b) in enumerate(zip(want["values"], got["values"])):
            found = [d for k, (x, y) in enumerate(zip(a, b)) for d in self.compare(i, "", (i, k), x, y)]
            if found:
                return found
        failed = want.get("error", {}).get("step"), got.get("error", {}).get("step")
        if failed[0] != failed[1]:
            first = min(f for f in failed if f is not None)
            text = (want if failed[0] == first else got)["error"]["text"].splitlines()[0][:150]
            return [Difference(self, first, f"{'PyTorch' if failed[0] == first else 'Deft'} raises: {text}")]
        end, found = len(self.program["steps"]), []
        for name in sorted(set(want["grads"]) | set(got["grads"])):
            a, b = want["grads"].get(name), got["grads"].get(name)
            if a and b:
                found += self.compare(end, f"gradient of {name}: ", (name, 0), a, b)
            else:
                who, data = ("PyTorch", a["data"]) if a else ("Deft", b["data"])
                found.append(Difference(self, end, f"gradient of {name}: only {who} has it", b=data))
        return found

    def compare(self, at, prefix, place, want, got):
        for key in ("sizes", "dtype", "grad"):
            if want[key] != got[key]:
                yield Difference(self, at, f"{prefix}{key}: {want[key]} and {got[key]}")
            if want["sizes"] != got["sizes"]:
                return
        largest = largest_of(want["data"])
        for i, (a, b) in enumerate(zip(want["data"], got["data"])):
            if not (self.close(a, b, largest) if want["dtype"] in FLOATS else a == b):
                yield Difference(self, at, f"{prefix}number {i}", a, b, (*place, i))

    def close(self, a, b, largest):
        if a == b or (a != a and b != b):
            return True
        return math.isfinite(a) and abs(a - b) <= self.tolerance * (0.05 + abs(a) + 0.05 * largest)

    def once_more(self, place, **how):
        """The number PyTorch gives at a place if it runs the program in another way, and the largest beside it."""
        key = str(how)
        if key not in self.again:
            self.again[key] = run(self.program, **how)
        result = self.again[key]
        where, k, i = place
        try:
            t = result["grads"][where] if isinstance(where, str) else result["values"][where][k]
            return t["data"][i], largest_of(t["data"])
        except (KeyError, IndexError):
            return None, 0

    def is_exact(self, d):
        """Whether Deft's number is the one that PyTorch gives in f64."""
        exact, largest = self.once_more(d.place, wide=True)
        return exact is not None and self.close(exact, d.b, largest)

    def is_rounding(self, d):
        """Whether PyTorch's result moves as far if all numbers are moved by their last digit."""
        exact, largest = self.once_more(d.place, wide=True)
        if exact is None:
            return False
        moved = [self.once_more(d.place, wide=True, noise=(seed, EPSILON[self.type]))[0] for seed in range(8)]
        moved = [m for m in moved if m is not None]
        if not math.isfinite(d.b):
            return any(m == d.b or (m != m and d.b != d.b) for m in moved)
        reach = max([abs(m - exact) for m in moved if math.isfinite(m) and math.isfinite(exact)], default=0)
        return abs(d.b - exact) <= 4 * reach or any(abs(d.b - m) <= 1e-6 * abs(m) for m in moved)


def largest_of(data):
    return max([abs(v) for v in data if math.isfinite(v)], default=0)
