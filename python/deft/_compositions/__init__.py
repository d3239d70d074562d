"""Functions and methods of torch's that are compositions of the library's; what they are made of records their gradients."""

from .. import _C
from .._C import Tensor
from . import creation, elements, gamma, indexing, joining, methods, products, reductions

_f, _ops = _C.functions, _C.ops
_FAMILIES = (products, joining, elements, gamma, reductions, indexing, creation)


def _functions(family):
    return {name: f for name, f in vars(family).items()
            if callable(f) and not name.startswith("_") and getattr(f, "__module__", None) == family.__name__}


_FUNCTIONS = {name: f for family in _FAMILIES for name, f in _functions(family).items()}
globals().update(_FUNCTIONS)

_NO_METHODS = {"chain_matmul", "atleast_1d", "atleast_2d", "atleast_3d", "column_stack", "dstack", "block_diag", "cartesian_prod",
               "combinations", "isin", "trapezoid", "cumulative_trapezoid", "gradient", "searchsorted", "bucketize", "cdist", "fill",
               "unravel_index", "constant_pad_nd", "norm_except_dim", "polygamma", "is_same_size", *_functions(creation)}
_IN_PLACE = (*(_FUNCTIONS[n] for n in (
    "addbmm", "addmv", "addr", "deg2rad", "rad2deg", "float_power", "heaviside", "ldexp", "logit", "sinc", "sgn", "gcd", "lcm", "renorm",
    "masked_scatter", "round", "lgamma", "digamma", "mvlgamma", "index_reduce", "conj_physical")), *(getattr(_f, n) for n in ("addmm", "baddbmm", "cumsum", "cumprod", "tril", "triu")))
_RESHAPING = ("squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims")
_NEVER = ("is_sparse", "is_quantized", "is_meta", "is_mps", "is_xpu", "is_nested", "is_mkldnn", "is_sparse_csr")
# Methods that torch has as functions too, and functions that it has both in torch and in nn.functional.
_IN_PLACE_FUNCTIONS = ("clamp_", "clamp_min_", "clamp_max_", "detach_", "fill_", "zero_", "nan_to_num_", "index_put_", "deg2rad_",
                       "rad2deg_", "gcd_", "lcm_", "ldexp_", "logit_", "sinc_", "xlogy_", "resize_as_", "relu_", "addmv_", "clip_", "conj_physical_")
_FROM_FUNCTIONAL = ("avg_pool1d", "max_pool1d", "max_pool2d", "max_pool3d", "batch_norm", "layer_norm", "group_norm", "rms_norm",
                    "instance_norm", "celu", "cosine_similarity", "embedding", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
                    "conv_transpose2d", "conv_transpose3d")


def install(namespace):
    """Adds these functions to the package's namespace, and their methods to Tensor."""
    argwhere = getattr(_f, "nonzero", _ops.nonzero)
    namespace.update(_FUNCTIONS)
    namespace.update(trapz=reductions.trapezoid, range=namespace.pop("range_"), argwhere=argwhere, newaxis=None)
    for name, f in _FUNCTIONS.items():
        if name not in _NO_METHODS:
            setattr(Tensor, name, f)
    for f in _IN_PLACE:
        setattr(Tensor, f.__name__ + "_", methods._in_place(f))
    for name in _RESHAPING:
        setattr(Tensor, name + "_", methods._reshaping(getattr(Tensor, name)))
    for name, method in methods.METHODS.items():
        setattr(Tensor, name, method)
    for name in _NEVER:
        setattr(Tensor, name, False)
    Tensor.argwhere = argwhere
    Tensor.H = Tensor.mH = property(elements.adjoint, doc="The last two dimensions swapped.")
    for name in _IN_PLACE_FUNCTIONS:
        namespace[name] = getattr(Tensor, name)
    namespace.update({name: getattr(_C.functional, name) for name in _FROM_FUNCTIONAL if hasattr(_C.functional, name)})
