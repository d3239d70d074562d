"""Recurrent layers and cells."""

import math

from ... import _C
from ..._C import functions as _functions
from ..._C import ops as _ops
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_KINDS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn", "RNN_RELU": "rnn"}


class RNNBase(Module):
    """What RNN, GRU and LSTM share: all layers and directions; each is one product over all steps and one recurrence."""

    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
                 proj_size=0, device=None, dtype=None):
        super().__init__()
        if mode not in _KINDS:
            raise ValueError(f"Unrecognized RNN mode: {mode}; expected one of {', '.join(_KINDS)}")
        self.mode, self.kind = mode, _KINDS[mode]
        if self.kind == "rnn":
            self.nonlinearity = mode[4:].lower()
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError("hidden_size and num_layers must be greater than zero")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, float(dropout), bidirectional, proj_size
        self._make_parameters({"device": device, "dtype": dtype})
        self.reset_parameters()

    def _suffixes(self):
        for layer in range(self.num_layers):
            for direction in ("", "_reverse") if self.bidirectional else ("",):
                yield layer, f"_l{layer}{direction}"

    def _make_parameters(self, options):
        gates = _GATES[self.kind] * self.hidden_size
        out = self.proj_size or self.hidden_size
        for layer, suffix in self._suffixes():
            width = self.input_size if layer == 0 else out * (2 if self.bidirectional else 1)
            shapes = [("weight_ih", (gates, width)), ("weight_hh", (gates, out))]
            if self.bias:
                shapes += [("bias_ih", (gates,)), ("bias_hh", (gates,))]
            if self.proj_size:
                shapes.append(("weight_hr", (self.proj_size, self.hidden_size)))
            for name, shape in shapes:
                self.register_parameter(name + suffix, Parameter(_functions.empty(shape, **options)))

    def reset_parameters(self):
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self):
        """Nothing to do: weights are packed when they are used."""

    def _cell(self):
        return self.kind if self.kind != "rnn" else self.nonlinearity

    def _direction(self, x, rows, suffix, h, c):
        own = self._parameters
        bias_ih, bias_hh = own.get("bias_ih" + suffix), own.get("bias_hh" + suffix)
        if bias_ih is not None and self.kind != "gru":  # one addition over all steps instead of one per step
            bias_ih, bias_hh = bias_ih + bias_hh, None
        gates = F.linear(x, own["weight_ih" + suffix], bias_ih)
        if self.proj_size:
            return self._projected(gates, rows, suffix, h, c, own["weight_hr" + suffix])
        return _ops._recurrence(self._cell(), rows, suffix.endswith("reverse"), gates, h, c, own["weight_hh" + suffix], bias_hh)

    def _projected(self, gates, rows, suffix, h, c, projection):
        """Step by step: the hidden state is projected before the next one reads it."""
        weight, starts, results = self._parameters["weight_hh" + suffix], [0], []
        for r in rows:
            starts.append(starts[-1] + r)
        order = range(len(rows) - 1, -1, -1) if suffix.endswith("reverse") else range(len(rows))
        for t in order:
            n = rows[t]
            g = gates[starts[t] : starts[t + 1]] + F.linear(h[:n], weight)
            i, f, u, o = g.chunk(4, 1)
            new_c = f.sigmoid() * c[:n] + i.sigmoid() * u.tanh()
            new_h = F.linear(o.sigmoid() * new_c.tanh(), projection)
            results.append((t, new_h))
            h = new_h if n == h.shape[0] else _functions.cat([new_h, h[n:]])
            c = new_c if n == c.shape[0] else _functions.cat([new_c, c[n:]])
        results.sort(key=lambda item: item[0])
        return _functions.cat([r for _, r in results]), h, c

    def _run(self, x, rows, h0, c0):
        directions = 2 if self.bidirectional else 1
        hidden, cells = [], []
        for layer in range(self.num_layers):
            outputs = []
            for d in range(directions):
                k = layer * directions + d
                suffix = f"_l{layer}" + ("_reverse" if d else "")
                output, h, c = self._direction(x, rows, suffix, h0[k], None if c0 is None else c0[k])
                outputs.append(output)
                hidden.append(h)
                cells.append(c)
            x = outputs[0] if directions == 1 else _functions.cat(outputs, 1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, True)
        return x, _functions.stack(hidden), _functions.stack(cells) if self.kind == "lstm" else None

    def _states(self, given, batch, like, batched, sorted_indices=None):
        directions = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size] + ([self.hidden_size] if self.kind == "lstm" else [])
        if given is None:
            states = [_functions.zeros(directions, batch, s, dtype=like.dtype, device=like.device) for s in sizes]
        else:
            states = list(given) if self.kind == "lstm" else [given]
            for i, (state, size) in enumerate(zip(states, sizes)):
                expected = (directions, batch, size) if batched else (directions, size)
                if tuple(state.shape) != expected:
                    raise RuntimeError(f"Expected hidden[{i}] size {expected}, got {tuple(state.shape)}")
                states[i] = state if batched else state.unsqueeze(1)
            if sorted_indices is not None:
                states = [s.index_select(1, sorted_indices) for s in states]
        return (states + [None])[:2]

    def _result(self, output, h, c):
        return output, ((h, c) if self.kind == "lstm" else h)

    def forward(self, input, hx=None):
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}")
        batched = input.ndim == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        steps, batch, width = x.shape
        h0, c0 = self._states(hx, batch, input, batched)
        output, h, c = self._run(x.reshape(steps * batch, width), [batch] * steps, h0, c0)
        output = output.reshape(steps, batch, -1)
        if not batched:
            return self._result(output.squeeze(1), h.squeeze(1), None if c is None else c.squeeze(1))
        return self._result(output.transpose(0, 1) if self.batch_first else output, h, c)

    def _forward_packed(self, packed, hx):
        rows = packed.batch_sizes.tolist()
        h0, c0 = self._states(hx, rows[0], packed.data, True, packed.sorted_indices)
        output, h, c = self._run(packed.data, rows, h0, c0)
        if packed.unsorted_indices is not None:
            h = h.index_select(1, packed.unsorted_indices)
            c = None if c is None else c.index_select(1, packed.unsorted_indices)
        return self._result(packed._replace(data=output), h, c)

    def extra_repr(self):
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, plain in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0),
                            ("bidirectional", False)):
            if getattr(self, name) != plain:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class RNN(RNNBase):
    """Elman's recurrent layers with tanh or relu."""

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + nonlinearity.upper(), input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
                 device=None, dtype=None):
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)


class LSTM(RNNBase):
    """Long short-term memory."""

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
                 proj_size=0, device=None, dtype=None):
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)


class RNNCellBase(Module):
    """What the cells share."""

    kind = "lstm"

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size
        options = {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(_functions.empty(gates, input_size, **options))
        self.weight_hh = Parameter(_functions.empty(gates, hidden_size, **options))
        self.register_parameter("bias_ih", Parameter(_functions.empty(gates, **options)) if bias else None)
        self.register_parameter("bias_hh", Parameter(_functions.empty(gates, **options)) if bias else None)
        self.reset_parameters()

    reset_parameters = RNNBase.reset_parameters

    def _step(self, input, h, c=None):
        batched = input.ndim == 2
        x = input if batched else input.unsqueeze(0)
        zeros = lambda: _functions.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
        h = zeros() if h is None else h if batched else h.unsqueeze(0)
        if self.kind == "lstm":
            c = zeros() if c is None else c if batched else c.unsqueeze(0)
        kind = self.kind if self.kind != "rnn" else self.nonlinearity
        gates = F.linear(x, self.weight_ih, self.bias_ih)
        bias = self.bias_hh
        if bias is not None and self.kind != "gru":
            gates, bias = gates + bias, None
        _, h, c = _ops._recurrence(kind, [x.shape[0]], False, gates, h, c, self.weight_hh, bias)
        return (h, c) if batched else (h.squeeze(0), None if c is None else c.squeeze(0))

    def forward(self, input, hx=None):
        return self._step(input, hx)[0]

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN."""

    kind = "rnn"

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity


class GRUCell(RNNCellBase):
    """One step of GRU."""

    kind = "gru"

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)


class LSTMCell(RNNCellBase):
    """One step of LSTM."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        return self._step(input, *(hx or (None, None)))
