"""Tensors as text, as torch prints them."""

import math

from . import _C


class _Options:
    precision, threshold, edgeitems, linewidth, sci_mode = 4, 1000, 3, 80, None


options = _Options()


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """How tensors are printed; see torch.set_printoptions."""
    profiles = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}
    if profile is not None:
        options.precision, options.threshold, options.edgeitems, options.linewidth = profiles[profile]
    for name, value in (("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems),
                        ("linewidth", linewidth)):
        if value is not None:
            setattr(options, name, value)
    options.sci_mode = sci_mode


class _Formatter:
    """One format for all shown elements."""

    def __init__(self, values, floating):
        self.floating, self.whole, self.scientific, self.width = floating, True, False, 1
        if not floating:
            self.width = max((len(str(v)) for v in values), default=1)
            return
        sizes = [abs(v) for v in values if math.isfinite(v) and v != 0]
        if sizes:
            self.whole = all(v == math.ceil(v) for v in values if math.isfinite(v))
            largest, smallest = max(sizes), min(sizes)
            self.scientific = largest / smallest > 1000 or largest > 1e8 or (not self.whole and smallest < 1e-4)
        if options.sci_mode is not None:
            self.scientific = options.sci_mode
        self.width = max((len(self.text(v)) for v in values if math.isfinite(v)), default=1)

    def text(self, v):
        if not self.floating:
            return str(v)
        if not math.isfinite(v):
            return "nan" if v != v else ("inf" if v > 0 else "-inf")
        if self.scientific:
            return f"{v:.{options.precision}e}"
        return f"{v:.0f}." if self.whole else f"{v:.{options.precision}f}"

    def padded(self, v):
        return self.text(v).rjust(self.width)


def _shown(tensor):
    """The elements that are printed, for choosing their format."""
    edge = options.edgeitems
    for dim in range(tensor.ndim):
        if tensor.shape[dim] > 2 * edge:
            tensor = _C.functions.cat([tensor.narrow(dim, 0, edge), tensor.narrow(dim, tensor.shape[dim] - edge, edge)], dim)
    return tensor


def _row(values, indent, summarize, form):
    per_line = max(1, (options.linewidth - indent) // (form.width + 2))
    if summarize and len(values) > 2 * options.edgeitems:
        edge = options.edgeitems
        items = [form.padded(v) for v in values[:edge]] + [" ..."] + [form.padded(v) for v in values[-edge:]]
    else:
        items = [form.padded(v) for v in values]
    lines = [items[i : i + per_line] for i in range(0, len(items), per_line)] or [[]]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"


def _body(tensor, indent, summarize, form):
    if tensor.ndim == 0:
        return form.text(tensor.item())
    if tensor.ndim == 1:
        values = tensor.tolist()
        return _row(values, indent, summarize, form)
    edge = options.edgeitems
    count = tensor.shape[0]
    if summarize and count > 2 * edge:
        parts = [_body(tensor[i], indent + 1, summarize, form) for i in range(edge)]
        parts.append("...")
        parts += [_body(tensor[i], indent + 1, summarize, form) for i in range(count - edge, count)]
    else:
        parts = [_body(tensor[i], indent + 1, summarize, form) for i in range(count)]
    return "[" + ("," + "\n" * (tensor.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def _suffixes(tensor):
    default = _C.get_default_dtype()
    if tensor.is_cuda:
        yield f"device='{tensor.device}'"
    implied = (default, _C.int64, _C.bool)
    if tensor.numel() == 0:
        if tensor.ndim != 1:
            yield f"size={tuple(tensor.shape)}"
        implied = (default,)
    if tensor.dtype not in implied:
        yield f"dtype={tensor.dtype!r}"
    if tensor.grad_fn is not None:
        yield f"grad_fn=<{tensor.grad_fn.name()}>"
    elif tensor.requires_grad:
        yield "requires_grad=True"


def tensor_text(tensor):
    """repr() of a tensor."""
    from .nn.parameter import Parameter

    prefix = "tensor("
    with _C.no_grad():
        plain = tensor.detach().cpu()
        if plain.numel() == 0:
            body = "[]"
        else:
            if plain.dtype in (_C.bfloat16, _C.float16):
                plain = plain.float()
            summarize = plain.numel() > options.threshold
            shown = (_shown(plain) if summarize else plain).reshape(-1).tolist()
            body = _body(plain, len(prefix), summarize, _Formatter(shown, plain.is_floating_point()))
    text = prefix + body
    last = len(text) - (text.rfind("\n") + 1)
    for suffix in _suffixes(tensor):
        if last + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * len(prefix) + suffix
            last = len(prefix) + len(suffix)
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    text += ")"
    if isinstance(tensor, Parameter):
        return "Parameter containing:\n" + text
    return text
