"""A softmax over very many classes: frequent ones in a head, rare ones in clusters that few samples compute."""

from collections import namedtuple

from ..._C import functions as _functions
from .. import functional as F
from .containers import ModuleList, Sequential
from .layers import Linear
from .module import Module

_Result = namedtuple("ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log probability of each target, and their mean loss. Classes are numbered by how frequent they are; cutoffs are where
    clusters begin, and the i-th cluster has in_features / div_value**(i + 1) features."""

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(map(int, cutoffs))) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                             "where each value is between 1 and n_classes-1")
        options = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cutoffs, n_classes]
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(self._clusters()):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(Linear(in_features, width, bias=False, **options), Linear(width, high - low, bias=False, **options)))

    def _clusters(self):
        return list(zip(self.cutoffs, self.cutoffs[1:]))

    def reset_parameters(self):
        """New random weights."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input, target):
        single = target.ndim == 0
        if single != (input.ndim == 1) or target.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, with one row of input for each target")
        x, t = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
        if x.shape[0] != t.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if t.numel() and not 0 <= t.min().item() <= t.max().item() < self.n_classes:
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                               f"[{t.min().item()}, {t.max().item()}] were found. ")
        in_head, rest = t, 0
        for i, (low, high) in enumerate(self._clusters()):
            mask = (t >= low) & (t < high)
            rows = mask.nonzero().squeeze(1)
            if not rows.numel():
                continue
            in_head = in_head.masked_fill(mask, self.shortlist_size + i)
            local = F.log_softmax(self.tail[i](x.index_select(0, rows)), 1).gather(1, (t[rows] - low).unsqueeze(1)).squeeze(1)
            rest = rest + _functions.zeros(x.shape[0], dtype=local.dtype, device=x.device).index_add(0, rows, local)
        output = F.log_softmax(self.head(x), 1).gather(1, in_head.unsqueeze(1)).squeeze(1) + rest
        loss = (-output).mean()
        return _Result(output.squeeze(0) if single else output, loss)

    def _all_classes(self, x, head):
        head = F.log_softmax(head, 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.log_softmax(tail(x), 1) + head[:, at : at + 1])
        return _functions.cat(parts, 1)

    def log_prob(self, input):
        """The log probabilities of all classes."""
        return self._all_classes(input, self.head(input))

    def predict(self, input):
        """The most probable class of each row; clusters are computed for the rows that may be in one."""
        head = self.head(input)
        best = head.argmax(1)
        rows = (best >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            best = best.index_copy(0, rows, self._all_classes(input.index_select(0, rows), head.index_select(0, rows)).argmax(1))
        return best
