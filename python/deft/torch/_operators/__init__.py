"""The table of ATen operators that Deft runs, one row each, by family. A row takes Deft's tensors where the operator takes
torch's, and numbers, element types and lists as they are; missing tensors are None."""

from . import attention, convolution, creation, indexing, losses, norms, pointwise, pooling, products, reductions
from .random import RANDOM
from .table import DTYPES, ROUNDS, TABLE, WHEN, aten
from .convolution import aten_convolution
from .views import OF_MEMORY, VIEWS, aten_copy_, is_last

__all__ = ["DTYPES", "OF_MEMORY", "RANDOM", "ROUNDS", "TABLE", "VIEWS", "WHEN", "aten", "aten_convolution", "aten_copy_",
           "is_last"]
