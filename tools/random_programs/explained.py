"""Differences between PyTorch and Deft that are right as they are, each as narrow as it can be said."""
import math

from pytorch import FLOATS


def isnan(v):
    return isinstance(v, float) and math.isnan(v)


def isinf(v):
    return isinstance(v, float) and math.isinf(v)


def is_number(d):
    return d.place is not None


def nan_for(*ops):
    """PyTorch has NaN in the gradient of these ops of NaN and infinities, Deft a number."""
    return lambda d: is_number(d) and isnan(d.a) and not isnan(d.b) and d.backward_of(*ops) and d.nonfinite_into(*ops)


def raises(who, ops, *texts):
    return lambda d: d.op.rstrip("_") in ops and d.what.startswith(who + " raises") and all(t in d.what for t in texts)


def of_nothing(d):
    return any(math.prod(t["sizes"]) == 0 for t in d.inputs_of(d.op))


def types_into(d, *ops):
    return {t["dtype"] for t in d.inputs_of(*ops)}


def outside_of_type(d):
    """Of `to` and `copy_`: the float has no counterpart among the integers of the type."""
    if d.op not in ("to", "copy_") or not is_number(d):
        return False
    inputs = d.inputs_of(d.op.rstrip("_"))
    dtype, source = (d.step["p"]["dtype"], inputs[0]) if d.op == "to" else (inputs[0]["dtype"], inputs[1])
    if dtype in [*FLOATS, "bool"]:
        return False
    end = 2.0**31 if dtype == "i32" else 2.0**63  # 8 bits are taken from 64
    fits = [math.isfinite(x) and -end <= math.trunc(x) < end for x in source["data"]]
    return not fits[d.place[2]] if len(fits) == math.prod(inputs[0]["sizes"]) else not all(fits)


def folded_scale(d):
    """Group and instance norms as x * scale + shift: inf - inf where a weight is infinite."""
    ops = ("group_norm", "instance_norm", "batch_norm", "layer_norm")
    return is_number(d) and isnan(d.a) and d.nonfinite_into(*ops) and (d.op in ops or d.backward_of(*ops))


def gelu_limit(d):
    return is_number(d) and isnan(d.a) and not isnan(d.b) and (
        d.backward_of("gelu") or d.op == "gelu" and isinf(d.inputs_of("gelu")[0]["data"][d.place[2]]))


def zeros_of_norm(d):
    count = any(s["op"] == "norm" and s["p"]["p"] == 0 for s in d.steps)
    return count and d.what.endswith("only Deft has it") and not any(v for v in d.b if v == v)


def counted(d):
    """Of unique and nonzero: Deft found as many as there are in its own numbers, which are rounded in another way."""
    if d.op not in ("unique", "nonzero") or not d.what.startswith("sizes"):
        return False
    outputs = [o for s, v in zip(d.program["steps"], d.case.got["values"]) for o in zip(s["out"], v)]
    given = dict(outputs).get(d.step["in"][0])
    if given is None:
        return False
    count = len(set(given["data"])) if d.op == "unique" else sum(v != 0 for v in given["data"])
    return count == d.case.got["values"][d.at][0]["sizes"][0]


# (test(difference), why it is right as it is).
EXPLAINED = [
    # Types
    (lambda d: d.op in ("any", "all") and d.what == "dtype: u8 and bool", "any and all of u8 are bool like all others"),
    (raises("PyTorch", ["topk", "sort", "unique", "median", "kthvalue"], "not"),
     "Deft has an order for bool and for every 16-bit float"),
    (raises("Deft", ["softsign", "tanhshrink", "relu", "relu6", "celu", "hardshrink", "softshrink", "square"],
            "does not take"), "activations take floats, square takes numbers; PyTorch has some for integers and bools"),
    (lambda d: d.what.startswith("Deft raises") and "does not take" in d.what and of_nothing(d),
     "PyTorch does not look at the types of empty tensors"),
    (raises("PyTorch", ["lerp"], "expected dtype"), "lerp promotes types that differ"),
    (raises("PyTorch", ["addcdiv"], "Integer division with addcdiv"), "addcdiv divides integers truly"),
    (raises("Deft", ["threshold"], "does not fit into"), "a number that does not fit into the type is refused"),
    (outside_of_type, "floats that an integer type does not have: C++ gives them no value"),
    # What one of them refuses
    (lambda d: d.op == "backward"
     and any(t in d.what for t in ("desired output type", "Subtraction, the `-`", "Negation, the `-`"))
     and d.what.startswith("PyTorch") and any(i["dtype"] not in FLOATS for i in d.program["inputs"]),
     "PyTorch's own gradient formulas fail next to integers and bools"),
    (lambda d: "derivative for aten::remainder is not implemented" in d.what, "PyTorch has no gradient of number % tensor"),
    (lambda d: d.op == "backward" and "modified by an inplace operation" in d.what and d.what.startswith("PyTorch"),
     "Deft keeps less for backward"),
    (lambda d: d.op == "backward" and "erfinv: output 0" in d.what and "changed in place" in d.what,
     "erfinv keeps its result for backward, PyTorch its input"),
    (lambda d: "view of a leaf Variable that requires grad" in d.what, "a view of a leaf may be written in place"),
    (raises("Deft", ["fill"], "share memory"), "an expanded view is never written in place"),
    (raises("Deft", ["topk"], "a 0-d tensor has one value"), "topk of no value of a number"),
    (lambda d: raises("PyTorch", ["quantile", "group_norm", "instance_norm", "batch_norm", "pad"])(d) and of_nothing(d),
     "nothing is made of nothing"),
    (raises("Deft", ["index_add"], "expected 0 <= index < 0"), "an index into an empty dimension is refused"),
    (lambda d: (raises("Deft", ["index", "index_put"], "expected")(d) or raises("Deft", ["roll", "cat"], "out of range")(d)
                or raises("Deft", ["batch_norm"], "expected N,C")(d)
                or raises("Deft", ["median"], "nothing to choose from")(d)) and of_nothing(d),
     "PyTorch does not look at the indices and dims of empty tensors, and has a median of no integers"),
    (lambda d: raises("Deft", ["pad"], "in this mode")(d) and min(d.step["p"]["amounts"]) < 0,
     "padding beyond what a crop leaves: PyTorch reads memory that was never written"),
    # NaN and infinities
    (nan_for("atan2"), "the gradient of atan2 far out is its limit, 0"),
    (nan_for("softsign"), "the gradient of softsign far out is its limit, 0"),
    (nan_for("amax", "amin", "aminmax"), "amax and amin of NaN share the gradient as max and min do"),
    (lambda d: is_number(d) and isnan(d.a) and d.b == 0 and d.backward_of("amax", "amin", "aminmax"),
     "what is not the extreme gets nothing, also of a gradient that is NaN"),
    (gelu_limit, "gelu has limits where its formula is inf times 0"),
    (folded_scale, "PyTorch's scale and shift of an infinite weight are inf - inf"),
    (lambda d: is_number(d) and isnan(d.a) and not isnan(d.b) and (d.op == "attention" or d.backward_of("attention"))
     and d.nonfinite_into("attention"), "attention passes no NaN on from a key that is not seen"),
    (lambda d: is_number(d) and (isnan(d.a) or isnan(d.b)) and d.nonfinite_into("conv1d", "conv2d", "conv_transpose2d")
     and (d.op.startswith("conv") or d.backward_of("conv1d", "conv2d", "conv_transpose2d")),
     "an infinite weight of a convolution meets the zeros of the padding"),
    (lambda d: is_number(d) and isnan(d.b) and d.a == 0 and d.op == "attention" and d.nonfinite_into("attention"),
     "a query or key that is NaN or infinite makes attention NaN; PyTorch takes such scores for masked"),
    (lambda d: d.op == "var_mean" and d.place[1] == 1 and isnan(d.a) and isinf(d.b), "the mean of an infinity is infinite"),
    (lambda d: d.op == "batch_norm" and isinf(d.a) and isnan(d.b) and d.nonfinite_into("batch_norm"),
     "running statistics of infinities"),
    (lambda d: is_number(d) and isinf(d.a) and isnan(d.b) and d.backward_of("var", "std", "var_mean"),
     "the gradient of the variance of one number, which is NaN"),
    (lambda d: d.op == "interpolate" and isnan(d.a) + isnan(d.b) == 1 and d.nonfinite_into("interpolate"),
     "a neighbour of weight 0 that is not finite"),
    (lambda d: is_number(d) and isnan(d.a) + isnan(d.b) == 1 and d.backward_of("cumprod", "prod")
     and d.nonfinite_into("cumprod", "prod"), "a product of zeros and infinities"),
    (lambda d: is_number(d) and isnan(d.a) and d.b == 0 and d.backward_of("pow")
     and any(s["op"].rstrip("_") == "pow" and s["p"].get("right") is False for s in d.steps),
     "the power False is 0, also to its gradient"),
    (lambda d: d.op.rstrip("_") == "pow" and is_number(d) and isnan(d.a) and d.b == math.inf
     and d.step["p"].get("right") == 0.5 and d.nonfinite_into("pow"), "pow of -inf is inf, as in C; PyTorch takes a root"),
    (nan_for("scatter_reduce"), "PyTorch divides NaN by NaN"),
    (lambda d: is_number(d) and isnan(d.a) and d.b == 0 and d.backward_of("cross_entropy", "nll_loss")
     and d.nonfinite_into("cross_entropy", "nll_loss"), "what is ignored has no gradient, also where it is infinite"),
    (lambda d: is_number(d) and isnan(d.a) and d.b == 0 and d.backward_of("nan_to_num"),
     "what nan_to_num replaces has no gradient, also of a gradient that is NaN"),
    (lambda d: is_number(d) and not math.isfinite(d.a) and d.backward_of("bce"),
     "logarithms of binary_cross_entropy end at -100 for the target's gradient too"),
    (lambda d: d.op == "bce_with_logits" and isnan(d.a) and d.b == math.inf, "the loss of a logit of -inf is infinite"),
    (lambda d: is_number(d) and isnan(d.b) and any(s["op"] == "xlogy" and isnan(s["p"].get("right"))
                                                   for s in d.steps) and d.backward_of("xlogy"),
     "xlogy by the number NaN is xlogy by a tensor of it"),
    (lambda d: d.op == "copysign" and is_number(d) and d.a == -d.b and d.nonfinite_into("copysign"),
     "NaN has no sign worth keeping"),
    (lambda d: d.op in ("rsqrt", "reciprocal", "div") and isinf(d.a) and d.b == -d.a,
     "one by a zero whose sign came from rounding"),
    # Gradients
    (zeros_of_norm, "a count of nonzeros (norm with p = 0) has zeros for a gradient; PyTorch has none"),
    (lambda d: is_number(d) and d.backward_of("hardsigmoid") and "f64" in types_into(d, "hardsigmoid")
     and abs(d.a - d.b) <= 1e-6 * abs(d.a), "PyTorch's gradient of hardsigmoid has a constant in single precision"),
    (counted, "how many values are distinct, or not 0, depends on their rounding"),
]


def explain(d):
    """Why a difference is right as it is, or None."""
    for test, reason in EXPLAINED:
        if test(d):
            return reason
    if is_number(d) and d.case.is_exact(d):
        return "Deft's number is PyTorch's in f64"
    if is_number(d) and d.case.is_rounding(d):
        return "rounding: PyTorch's result moves as far if numbers change in their last digit"
    return None
