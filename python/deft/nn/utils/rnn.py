"""Sequences of several lengths in one tensor, for recurrent layers."""

from collections import namedtuple

from ... import _C
from ..._C import Tensor
from ..._C import functions as _functions


class PackedSequence(namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):
    """The rows of step 0, then those of step 1, ...; rows that have ended are left out."""

    __slots__ = ()

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """The same with the data elsewhere or in another type."""
        return self._replace(data=self.data.to(*args, **kwargs))


def invert_permutation(permutation):
    """The permutation that undoes this one."""
    if permutation is None:
        return None
    result = _functions.empty_like(permutation)
    result[permutation] = _functions.arange(permutation.numel())
    return result


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs [steps, batch, ...]: of row i the first lengths[i] steps."""
    lengths = lengths.tolist() if isinstance(lengths, Tensor) else [int(n) for n in lengths]
    if batch_first:
        input = input.transpose(0, 1)
    if len(lengths) != input.shape[1]:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={input.shape[1]})")
    if min(lengths, default=1) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    indices = None
    if order != list(range(len(lengths))) and sorted(lengths, reverse=True) != lengths:
        if enforce_sorted:
            raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True.")
    if not enforce_sorted:
        indices = _functions.tensor(order, dtype=_C.int64)
        input, lengths = input.index_select(1, indices), [lengths[i] for i in order]
    sizes = [sum(1 for n in lengths if n > step) for step in range(lengths[0])]
    data = _functions.cat([input[step, :size] for step, size in enumerate(sizes)])
    return PackedSequence(data, _functions.tensor(sizes, dtype=_C.int64), indices)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """The padded tensor and the lengths."""
    sizes = sequence.batch_sizes.tolist()
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(f"Expected total_length to be at least the length of the longest sequence, got {total_length} < {len(sizes)}")
    parts = []
    for step, part in zip(range(steps), list(sequence.data.split(sizes)) + [None] * (steps - len(sizes))):
        missing = sizes[0] - (0 if part is None else part.shape[0])
        blank = sequence.data.new_full((missing,) + tuple(sequence.data.shape[1:]), padding_value)
        parts.append(blank if part is None else part if missing == 0 else _functions.cat([part, blank]))
    padded = _functions.stack(parts)
    lengths = _functions.tensor([sum(1 for s in sizes if s > row) for row in range(sizes[0])], dtype=_C.int64)
    if sequence.unsorted_indices is not None:
        padded, lengths = padded.index_select(1, sequence.unsorted_indices), lengths[sequence.unsorted_indices]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors of several lengths side by side, padded at the end."""
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        blank = s.new_full((longest - s.shape[0],) + tuple(s.shape[1:]), padding_value)
        rows.append(_functions.cat([s, blank] if padding_side == "right" else [blank, s]))
    return _functions.stack(rows, 0 if batch_first else 1)


def pack_sequence(sequences, enforce_sorted=True):
    """Packs tensors of several lengths."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The rows without their padding."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(n)] for row, n in zip(rows, lengths)]


def unpack_sequence(packed_sequences):
    """The rows of a packed sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
