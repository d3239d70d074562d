"""The table itself, and what adds rows to it."""

import torch

import deft

aten = torch.ops.aten
prims = torch.ops.prims
ops = deft._C.ops

DTYPES = {
    torch.float32: deft.float32, torch.float64: deft.float64, torch.float16: deft.float16, torch.bfloat16: deft.bfloat16,
    torch.int8: deft.int8, torch.uint8: deft.uint8, torch.int32: deft.int32, torch.int64: deft.int64, torch.bool: deft.bool,
}

TABLE = {}  # operator -> function
WHEN = {}  # operator -> function(node) that says why a call of it cannot run on Deft, or None
ROUNDS = {}  # products -> the arguments that Options.precision rounds


def row(*operators, when=None, rounds=()):
    """Names such as "add.Tensor", of torch.ops.aten; one that this torch lacks is left out."""

    def add(function):
        for name in operators:
            packet, _, overload = name.partition(".")
            packet = getattr(aten, packet, None)
            if packet is not None and hasattr(packet, overload or "default"):
                operator = getattr(packet, overload or "default")
                TABLE[operator] = function
                if when:
                    WHEN[operator] = when
                if rounds:
                    ROUNDS[operator] = rounds
        return function

    return add


def same(names, overload="default", module=deft):
    for name in names.split():
        row(f"{name}.{overload}")(getattr(module, name))
