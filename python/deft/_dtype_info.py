"""finfo and iinfo: the limits of types."""

from . import _C


def _float_info(bits, mantissa, exponent):
    eps, tiny = 2.0**-mantissa, 2.0 ** (2 - 2 ** (exponent - 1))
    return bits, eps, (2 - eps) * 2.0 ** (2 ** (exponent - 1) - 1), tiny, tiny * eps


_FLOATS = {_C.float32: (32, 23, 8), _C.float64: (64, 52, 11), _C.float16: (16, 10, 5), _C.bfloat16: (16, 7, 8)}
_INTEGERS = {_C.int8: (8, True), _C.uint8: (8, False), _C.int32: (32, True), _C.int64: (64, True)}


def _name(dtype):
    return repr(dtype).split(".")[1]


class finfo:
    """What a floating type can hold."""

    def __init__(self, type=None):
        type = _C.get_default_dtype() if type is None else type
        if type not in _FLOATS:
            raise TypeError(f"deft.finfo() requires a floating point input type. Use deft.iinfo to handle '{_name(type)}'")
        import math

        self.dtype = _name(type)
        self.bits, self.eps, self.max, self.tiny, self.smallest_subnormal = _float_info(*_FLOATS[type])
        self.min, self.smallest_normal, self.resolution = -self.max, self.tiny, 10.0 ** math.ceil(math.log10(self.eps))
        if type is _C.float64:
            self.resolution = 1e-15
        elif type is _C.float32:
            self.resolution = 1e-6

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """What an integer type can hold."""

    def __init__(self, type):
        if type not in _INTEGERS:
            raise TypeError(f"deft.iinfo() requires an integer input type. Use deft.finfo to handle '{_name(type)}'")
        self.bits, signed = _INTEGERS[type]
        self.dtype, self.min, self.max = _name(type), -(2 ** (self.bits - 1)) if signed else 0, 2 ** (self.bits - signed) - 1

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
