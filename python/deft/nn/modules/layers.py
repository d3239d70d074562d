"""Linear layers, embeddings, convolutions, norms and dropout."""

import math

from ... import _C
from ..._C import functions as _functions
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module


def _tuple(value, n):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


def _parameter(*size, device=None, dtype=None):
    return Parameter(_functions.empty(size, device=device, dtype=dtype))


def _uniform_bias(bias, fan_in):
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
    init.uniform_(bias, -bound, bound)


class Linear(Module):
    """x times the transpose of weight, plus bias."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _parameter(out_features, in_features, device=device, dtype=dtype)
        self.register_parameter("bias", _parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            _uniform_bias(self.bias, self.in_features)

    def forward(self, input):
        own = self._parameters
        return F.linear(input, own["weight"], own["bias"])

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1 weight x2 + bias."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = _parameter(out_features, in1_features, in2_features, device=device, dtype=dtype)
        self.register_parameter("bias", _parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        _uniform_bias(self.weight, self.in1_features)
        if self.bias is not None:
            _uniform_bias(self.bias, self.in1_features)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class _Table(Module):
    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                 sparse=False, _weight=None, _freeze=False, device=None, dtype=None):
        super().__init__()
        if sparse:
            raise NotImplementedError(f"{type(self).__name__}: sparse gradients are not supported; leave sparse out")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(f"padding_idx must be within num_embeddings: found {padding_idx} for {num_embeddings}")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        if _weight is None:
            self.weight = _parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with _C.no_grad():
                self.weight[self.padding_idx].fill_(0)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None, **options):
        """A layer with this table."""
        return cls(*embeddings.shape, padding_idx=padding_idx, _weight=embeddings, _freeze=freeze, **options)

    def extra_repr(self):
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name, plain in (("padding_idx", None), ("max_norm", None), ("norm_type", 2.0), ("scale_grad_by_freq", False)):
            if getattr(self, name) != plain:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class Embedding(_Table):
    """Rows of a table by number."""

    def forward(self, input):
        if self.max_norm is None and not self.scale_grad_by_freq:
            return _C.functional.embedding(input, self.weight, self.padding_idx)
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)


class EmbeddingBag(_Table):
    """The mean, sum or maximum of rows of a table."""

    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
                 _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None, _freeze=False):
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze,
                         device, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, False,
                               per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self):
        return f"{super().extra_repr()}, mode='{self.mode}'"


class _Conv(Module):
    dims, transposed = 2, False

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        super().__init__()
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError("in_channels and out_channels must be divisible by groups")
        modes = {"zeros", "reflect", "replicate", "circular"}
        if padding_mode not in modes:
            raise ValueError(f"padding_mode must be one of {sorted(modes)}, but got padding_mode='{padding_mode}'")
        n = self.dims
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        self.kernel_size, self.stride, self.dilation = _tuple(kernel_size, n), _tuple(stride, n), _tuple(dilation, n)
        self.padding = padding if isinstance(padding, str) else _tuple(padding, n)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = _parameter(first, second // groups, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter("bias", _parameter(out_channels, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            _uniform_bias(self.bias, init._calculate_fan_in_and_fan_out(self.weight)[0])

    def _amounts(self):
        """Padding in the order that pad() takes: last dimension first, both ends."""
        amounts = []
        for k, d, p in reversed(list(zip(self.kernel_size, self.dilation, self.padding))):
            amounts += [p, p]
        if self.padding == "same":
            totals = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation)]
            amounts = [a for t in reversed(totals) for a in (t // 2, t - t // 2)]
        return amounts

    def forward(self, input):
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._amounts(), mode=self.padding_mode), 0
        own = self._parameters
        return self.function(input, own["weight"], own["bias"], self.stride, padding, self.dilation, self.groups)

    def extra_repr(self):
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        zeros, ones = (0,) * self.dims, (1,) * self.dims
        for name, plain in (("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1)):
            if getattr(self, name, plain) != plain:
                parts.append(f"{name}={getattr(self, name)}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv1d(_Conv):
    """Convolution over one dimension."""

    dims, function = 1, staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Convolution over two dimensions."""

    dims, function = 2, staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Convolution over three dimensions."""

    dims, function = 3, staticmethod(F.conv3d)


class _ConvTranspose(_Conv):
    transposed = True

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True,
                 dilation=1, padding_mode="zeros", device=None, dtype=None):
        if padding_mode != "zeros":
            raise ValueError('Only "zeros" padding mode is supported for transposed convolutions')
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)
        self.output_padding = _tuple(output_padding, self.dims)

    def _output_padding(self, input, output_size):
        if output_size is None:
            return self.output_padding
        n = self.dims
        sizes = list(output_size)[-n:]
        smallest = [(input.shape[i - n] - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
                    for i in range(n)]
        extra = tuple(s - m for s, m in zip(sizes, smallest))
        if any(e < 0 or e >= max(self.stride[i], self.dilation[i]) for i, e in enumerate(extra)):
            raise ValueError(f"requested an output size of {sizes}, but valid sizes start at {smallest}")
        return extra

    def forward(self, input, output_size=None):
        return self.function(input, self.weight, self.bias, self.stride, self.padding,
                             self._output_padding(input, output_size), self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """The adjoint of Conv1d."""

    dims, function = 1, staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """The adjoint of Conv2d."""

    dims, function = 2, staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """The adjoint of Conv3d."""

    dims, function = 3, staticmethod(F.conv_transpose3d)


class LayerNorm(Module):
    """Normalises over the last dimensions."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _tuple(normalized_shape, 1), eps, elementwise_affine
        self.register_parameter("weight", _parameter(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None)
        self.register_parameter("bias", _parameter(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        bias = f", bias={self.bias is not None}" if self.elementwise_affine else ""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}{bias}"


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dimensions."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _tuple(normalized_shape, 1), eps, elementwise_affine
        self.register_parameter("weight", _parameter(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises groups of channels."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", _parameter(num_channels, device=device, dtype=dtype) if affine else None)
        self.register_parameter("bias", _parameter(num_channels, device=device, dtype=dtype) if affine and bias else None)
        self.reset_parameters()

    reset_parameters = LayerNorm.reset_parameters

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        bias = f", bias={self.bias is not None}" if self.affine else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}{bias}"


class _ChannelNorm(Module):
    """Batch and instance norm: statistics per channel, kept between calls if wanted."""

    ranks = ()

    def __init__(self, num_features, eps, momentum, affine, track_running_stats, device, dtype, bias):
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        self.register_parameter("weight", _parameter(num_features, device=device, dtype=dtype) if affine else None)
        self.register_parameter("bias", _parameter(num_features, device=device, dtype=dtype) if affine and bias else None)
        kept = track_running_stats
        self.register_buffer("running_mean", _functions.zeros(num_features, device=device, dtype=dtype) if kept else None)
        self.register_buffer("running_var", _functions.ones(num_features, device=device, dtype=dtype) if kept else None)
        self.register_buffer("num_batches_tracked", _functions.zeros((), dtype=_C.int64, device=device) if kept else None)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check(self, input):
        if input.ndim not in self.ranks:
            raise ValueError(f"expected {' or '.join(f'{r}D' for r in self.ranks)} input (got {input.ndim}D input)")

    def extra_repr(self):
        bias = f"bias={self.bias is not None}, " if self.affine else ""
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, {bias}"
                f"track_running_stats={self.track_running_stats}")


class _BatchNorm(_ChannelNorm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *,
                 bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *others):
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *others)
        key = prefix + "num_batches_tracked"
        if key in missing_keys:  # files that are older than this buffer
            missing_keys.remove(key)

    def forward(self, input):
        self._check(input)
        buffers, own = self._buffers, self._parameters
        momentum = self.momentum
        if self.training and self.track_running_stats:
            buffers["num_batches_tracked"].add_(1)
            if momentum is None:  # a plain average
                momentum = 1.0 / float(buffers["num_batches_tracked"])
        of_batch = self.training or buffers["running_mean"] is None
        return F.batch_norm(input, buffers["running_mean"], buffers["running_var"], own["weight"], own["bias"], of_batch,
                            momentum or 0.0, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalises channels over the batch."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises channels of pictures over the batch."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalises channels of volumes over the batch."""

    ranks = (5,)


class _InstanceNorm(_ChannelNorm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None, dtype=None,
                 *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input):
        self._check(input)
        unbatched = input.ndim == self.ranks[0]
        x = input.unsqueeze(0) if unbatched else input
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats, self.momentum or 0.0, self.eps)
        return y.squeeze(0) if unbatched else y


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each picture."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each volume."""

    ranks = (4, 5)


class LocalResponseNorm(Module):
    """Divides by a norm over neighbouring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class _Dropout(Module):
    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return self.function(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


def _dropout(name, function, doc):
    return type(name, (_Dropout,), {"function": staticmethod(function), "__doc__": doc, "__module__": __name__})


Dropout = _dropout("Dropout", F.dropout, "Zeroes elements while training.")
Dropout1d = _dropout("Dropout1d", F.dropout1d, "Zeroes whole channels while training.")
Dropout2d = _dropout("Dropout2d", F.dropout2d, "Zeroes whole channels while training.")
Dropout3d = _dropout("Dropout3d", F.dropout3d, "Zeroes whole channels while training.")
AlphaDropout = _dropout("AlphaDropout", F.alpha_dropout, "Dropout for selu.")
FeatureAlphaDropout = _dropout("FeatureAlphaDropout", F.feature_alpha_dropout, "AlphaDropout of whole channels.")
