"""The table of ATen operators that Deft runs, one row each, by family. A row takes Deft's tensors where the operator takes
torch's, and numbers, element types and lists as they are; missing tensors are None."""

from . import attention, convolution, creation, indexing, losses, norms, ordering, pointwise, pooling, products, reductions, resizing
from .convolution import aten_convolution
from .random import RANDOM
from .table import DTYPES, ROUNDS, TABLE, WHEN, aten
from .views import OF_MEMORY, VIEWS, aten_clone, aten_copy_, has_fixed_strides, is_contiguous

__all__ = ["DTYPES", "OF_MEMORY", "RANDOM", "ROUNDS", "TABLE", "VIEWS", "WHEN", "aten", "aten_clone", "aten_convolution",
           "aten_copy_", "has_fixed_strides", "is_contiguous"]
