"""Attention and transformers."""

import copy

from ... import _C
from ..._C import functions as _functions
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .containers import ModuleList
from .layers import Dropout, LayerNorm, Linear
from .module import Module


def _as_addend(mask, dtype):
    """A bool mask, true where nothing may be seen, as numbers to add."""
    if mask is None or mask.dtype is not _C.bool:
        return mask
    return _functions.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


class MultiheadAttention(Module):
    """Attention in several heads, with the projections in and out."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
                 batch_first=False, device=None, dtype=None):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(f"embed_dim must be divisible by num_heads, got embed_dim={embed_dim} and num_heads={num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        options = {"device": device, "dtype": dtype}
        make = lambda *size: Parameter(_functions.empty(size, **options))
        self._one_projection = self.kdim == embed_dim and self.vdim == embed_dim
        self.register_parameter("in_proj_weight", make(3 * embed_dim, embed_dim) if self._one_projection else None)
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", None if self._one_projection else make(embed_dim, width))
        self.register_parameter("in_proj_bias", make(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **options)
        self.register_parameter("bias_k", make(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", make(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self):
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def _project(self, query, key, value):
        bias = self.in_proj_bias
        if self._one_projection and query is key and key is value:
            return F.linear(query, self.in_proj_weight, bias).chunk(3, -1)
        weights = self.in_proj_weight.chunk(3) if self._one_projection else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))

    def _heads(self, x):
        """[length, batch, embed] to [batch, heads, length, features]."""
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, -1).permute(1, 2, 0, 3)

    def _more_rows(self, k, v):
        if self.bias_k is not None:
            batch = k.shape[1]
            k = _functions.cat([k, self.bias_k.expand(1, batch, -1)])
            v = _functions.cat([v, self.bias_v.expand(1, batch, -1)])
        if self.add_zero_attn:
            row = _functions.zeros(1, k.shape[1], k.shape[2], dtype=k.dtype, device=k.device)
            k, v = _functions.cat([k, row]), _functions.cat([v, row])
        return k, v

    def _mask(self, attn_mask, key_padding_mask, dtype, batch, keys):
        attn_mask, padding = _as_addend(attn_mask, dtype), _as_addend(key_padding_mask, dtype)
        if attn_mask is not None:
            attn_mask = attn_mask.reshape(batch, self.num_heads, *attn_mask.shape[-2:]) if attn_mask.ndim == 3 else attn_mask
            if attn_mask.shape[-1] < keys:
                attn_mask = F.pad(attn_mask, (0, keys - attn_mask.shape[-1]))
        if padding is not None:
            if padding.shape[-1] < keys:
                padding = F.pad(padding, (0, keys - padding.shape[-1]))
            padding = padding.reshape(batch, 1, 1, keys)
        if attn_mask is None or padding is None:
            return padding if attn_mask is None else attn_mask
        return attn_mask + padding

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
                is_causal=False):
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.ndim == 3
        same = query is key and key is value
        if not batched:
            query, key, value = (x.unsqueeze(1) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        if same:
            key = value = query
        q, k, v = self._project(query, key, value)
        k, v = self._more_rows(k, v)
        length, batch = q.shape[0], q.shape[1]
        mask = self._mask(attn_mask, key_padding_mask, q.dtype, batch, k.shape[0])
        q, k, v = self._heads(q), self._heads(k), self._heads(v)
        drop = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * self.head_dim**-0.5) @ k.transpose(-2, -1)
            weights = (scores if mask is None else scores + mask).softmax(-1)
            output = F.dropout(weights, drop, self.training) @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            output = F.scaled_dot_product_attention(q, k, v, mask, drop)
        output = self.out_proj(output.permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim))
        if not batched:
            return output.squeeze(1), None if weights is None else weights.squeeze(0)
        return (output.transpose(0, 1) if self.batch_first else output), weights


def _activation(name):
    if callable(name):
        return name
    if name not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {name}")
    return F.relu if name == "relu" else F.gelu


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward part."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def _attend(self, x, mask, padding, is_causal):
        return self.dropout1(self.self_attn(x, x, x, padding, False, mask, is_causal=is_causal)[0])

    def _feed(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._feed(x))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the encoder's result, and a feed-forward part."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **options)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias=bias, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **options)
        self.norm_first = norm_first
        for name in ("norm1", "norm2", "norm3"):
            setattr(self, name, LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options))
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
                tgt_is_causal=False, memory_is_causal=False):
        own = lambda x: self.dropout1(self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0])
        other = lambda x: self.dropout2(
            self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal)[0])
        feed = lambda x: self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        x = tgt
        for part, norm in ((own, self.norm1), (other, self.norm2), (feed, self.norm3)):
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class TransformerEncoder(Module):
    """A stack of encoder layers. The last two arguments choose among PyTorch's implementations; there is one here."""

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """A stack of decoder layers."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
                tgt_is_causal=None, memory_is_causal=False):
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, bool(tgt_is_causal),
                        memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1,
                 activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False, norm_first=False,
                 bias=True, device=None, dtype=None):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        shared = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norm = lambda: LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.encoder = custom_encoder or TransformerEncoder(TransformerEncoderLayer(*shared, **options), num_encoder_layers, norm())
        self.decoder = custom_decoder or TransformerDecoder(TransformerDecoderLayer(*shared, **options), num_decoder_layers, norm())
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
                            memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """-inf above the diagonal."""
        return _functions.full((sz, sz), float("-inf"), dtype=dtype or _C.get_default_dtype(), device=device).triu(1)
