"""Whole layers as PyTorch modules: `MultiheadAttention` and, in any variant, `Heads`."""
from __future__ import annotations

import ctypes
import functools
import json
from typing import Any, Optional, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import _c
from ._context import Error, give, take
from ._layers import LayerOptions, initial, layer_plan, options_of, params_of
from ._plans import Options
from ._torch_attention import DTYPES, NONE, OPTIONAL, check_constant, check_plain, \
    check_result, check_small, check_tensor, is_transformed, look_at, optional_tensors, \
    refuse_twice, scaled_dot_product_attention


class MultiheadAttention(nn.Module):
    """`torch.nn.MultiheadAttention`: the same arguments, parameters and state_dict.

    Not a subclass of it: `nn.TransformerEncoderLayer` reads the weights of one and never
    calls it. attention weights come from the library's look, without their gradient.
    """

    __constants__ = ["batch_first"]

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0,
                 bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
                 kdim: Optional[int] = None, vdim: Optional[int] = None,
                 batch_first: bool = False, device: Any = None, dtype: Any = None):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise Error(f"embed_dim is {embed_dim} and num_heads {num_heads}, expected a "
                        f"multiple")
        # Its parameters are torch's own, made, initialised and named by it.
        made = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, add_bias_kv,
                                     add_zero_attn, kdim, vdim, batch_first, device, dtype)
        for name, parameter in made._parameters.items():
            self.register_parameter(name, parameter)
        self.bias_k, self.bias_v = made.bias_k, made.bias_v  # None where there are none
        self.out_proj = made.out_proj
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim, self.dropout = embed_dim // num_heads, dropout
        self.kdim, self.vdim, self.batch_first = made.kdim, made.vdim, batch_first
        self.add_zero_attn = add_zero_attn
        # An encoder layer asks for this before it takes a fast path of its own.
        self._qkv_same_embed_dim = False

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Optional[Tensor] = None, need_weights: bool = True,
                attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Optional[Tensor]]:
        """As in PyTorch; in bool masks True hides."""
        for name, x in (("query", query), ("key", key), ("value", value),
                        ("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
            if x is not None or name in ("query", "key", "value"):
                check_tensor(name, x)
        if not query.dim() == key.dim() == value.dim() or query.dim() not in (2, 3):
            raise Error(f"query, key and value have {query.dim()}, {key.dim()} and "
                        f"{value.dim()} axes, expected 3, or 2 without a batch")
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._project(query, key, value)
        k, v, added = self._lengthen(k, v)
        mask = self._mask(attn_mask, key_padding_mask, is_causal, q, k, added)
        p = self.dropout if self.training else 0.0
        out = scaled_dot_product_attention(q, k, v, mask, p)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = self._weights(q, k, mask, average_attn_weights) if need_weights else None
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        width = self.embed_dim
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.split(width)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.split(width)
        return [F.linear(x, w, b).unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2)
                for x, w, b in zip((query, key, value), weights, biases)]

    def _lengthen(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Learned and zero keys at the end."""
        ends = []
        if self.bias_k is not None:
            ends.append(tuple(
                b.view(1, 1, self.num_heads, self.head_dim).transpose(1, 2)
                .expand(k.shape[0], -1, -1, -1) for b in (self.bias_k, self.bias_v)))
        if self.add_zero_attn:
            ends.append((torch.zeros_like(k[:, :, :1]), torch.zeros_like(v[:, :, :1])))
        for end_k, end_v in ends:
            k, v = torch.cat([k, end_k], 2), torch.cat([v, end_v], 2)
        return k, v, len(ends)

    def _mask(self, attn_mask, padding, is_causal, q, k, added: int) -> Optional[Tensor]:
        if is_causal and attn_mask is None:
            raise Error("is_causal is given without attn_mask, expected both: it is a hint")
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unflatten(0, (-1, self.num_heads))
        if padding is not None:
            padding = padding[:, None, None, :]
        masks = [F.pad(mask, (0, added)) for mask in (attn_mask, padding) if mask is not None]
        if not masks:
            return None
        if all(mask.dtype == torch.bool for mask in masks):
            return ~(masks[0] if len(masks) == 1 else masks[0] | masks[1])
        return sum(torch.zeros_like(mask, dtype=q.dtype).masked_fill_(mask, float("-inf"))
                   if mask.dtype == torch.bool else mask for mask in masks)

    @torch.no_grad()
    def _weights(self, q: Tensor, k: Tensor, mask: Optional[Tensor], average: bool) -> Tensor:
        optional = NONE if mask is None else optional_tensors(mask, None, None, None, None,
                                                              None, k.shape[2])
        weights = look_at(q, k, optional)["weights"]
        return weights.mean(1) if average else weights


class Heads(nn.Module):
    """A multi-head layer in any variant: `polyhead.Layer` with autograd.

    Parameters
    ----------
    embed_dim, num_heads : int
    variant : str, optional
        ``"moh:shared=2,top=4"``, ``"dcmha:rank=2"``, ``"diff"``, ``"mla:rope=32,latent=64"``,
        ``"gqa:2"``, ``"entmax:alpha=1.5"``, ``"talking"``, ``"gated:head"``, ``"collab"``, ...
    bias : bool
        Whether the projections have biases.
    **options
        As in `polyhead.Layer`: causal, window, head_dim, memory_dim, rope, ...

    Parameters of the module are those of the layer by their names, (in, out), float32.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, variant: Optional[str] = None,
                 bias: bool = True, **options: Any):
        super().__init__()
        self.options = options_of(embed_dim, num_heads, variant=variant, **options)
        rng = np.random.default_rng(int(torch.randint(2**62, ())))
        for param in params_of(self.options, bias):
            start = initial(param, self.options.linear, rng)
            self.register_parameter(param.name, nn.Parameter(torch.from_numpy(start)))
        self.text = json.dumps([self.options, list(self._parameters)])

    def extra_repr(self) -> str:
        o = self.options
        return f"{o.model_dim}, {o.heads}, variant={o.variant!r}"

    def forward(self, x: Tensor, memory: Optional[Tensor] = None, *,
                attn_mask: Optional[Tensor] = None, q_lens: Any = None, kv_lens: Any = None,
                balance: float = 0.0) -> Tensor:
        """x is (batch, len, embed_dim), memory (batch, kv_len, memory_dim). In bool masks
        False hides; masks get no gradient. balance weighs the load-balance loss of
        variants that route in the gradients."""
        for name, tensor in (("x", x), ("memory", memory)):
            if name == "x" or tensor is not None:
                check_tensor(name, tensor)
        check_constant("attn_mask", attn_mask)
        optional: tuple = NONE
        if not attn_mask is q_lens is kv_lens is None:
            keys = (x if memory is None else memory).shape[1]
            optional = optional_tensors(attn_mask, None, None, None, q_lens, kv_lens, keys)
        dropout = self.options.attention.dropout if self.training else 0.0
        seed = torch.randint(2**62, (1,)) if dropout else None
        params = list(self._parameters.values())
        if is_transformed() and not torch.compiler.is_compiling():
            from ._torch_func import TransformedLayer  # which is made of what is here
            return TransformedLayer.apply((self.text, dropout, balance), x, memory, *optional,
                                          seed, *params)[0]
        out, _ = torch.ops.polyhead.layer(x, memory, params, *optional, seed, self.text,
                                          dropout, balance, torch.is_grad_enabled())
        return out


@functools.lru_cache(maxsize=256)
def options_from(text: str, dropout: float) -> tuple[LayerOptions, list[str]]:
    values, names = json.loads(text)
    attention = values.pop()
    attention[1] = None if attention[1] is None else tuple(attention[1])
    return LayerOptions(*values, Options(*attention)._replace(dropout=dropout)), names


def check_input(name: str, x: Tensor, columns: int) -> None:
    if x.dim() != 3 or x.shape[2] != columns:
        raise Error(f"{name} has shape {tuple(x.shape)}, expected (batch, len, {columns})")
    if x.dtype not in DTYPES:
        raise TypeError(f"{name} is {x.dtype}, expected float32, float16 or bfloat16")


def as_contiguous(name: str, x: Optional[Tensor], columns: int) -> Optional[Tensor]:
    if x is None:
        return None
    check_plain(name, x)
    check_input(name, x, columns)
    return x.contiguous()


class LayerCall:
    """A call of a layer: its plan, and arguments with everything that both passes read."""

    def __init__(self, context: Any, x: Tensor, memory: Optional[Tensor],
                 params: Sequence[Tensor], optional: Sequence, seed: Optional[Tensor],
                 text: str, dropout: float, balance: float, save: bool):
        options, self.names = options_from(text, dropout)
        if (memory is None) != (options.memory_dim == 0):
            raise Error("memory is given to a layer without memory_dim, or left out of one "
                        "with it")
        self.x = as_contiguous("x", x, options.model_dim)
        self.memory = as_contiguous("memory", memory, options.memory_dim)
        if memory is not None and (memory.shape[0] != x.shape[0] or memory.dtype != x.dtype):
            raise Error(f"memory is {tuple(memory.shape)} of {memory.dtype}, expected the "
                        f"batch and type of x, {tuple(x.shape)} of {x.dtype}")
        given = {name: t for name, t in zip(OPTIONAL, optional) if t is not None}
        for name, t in given.items():
            check_small(name, t)
        keys = (x if memory is None else memory).shape[1]
        self.plan = layer_plan(context, options, x.shape[0], x.shape[1], keys, DTYPES[x.dtype],
                               {name: tuple(t.shape) for name, t in given.items()}, save)
        shapes = {param.name: param.shape for param in self.plan.params}
        self.params = [check_param(name, p, shapes[name])
                       for name, p in zip(self.names, params)]
        self.args = _c.LayerArgs(x=self.x.data_ptr(), balance=balance)
        self.args.memory = None if memory is None else self.memory.data_ptr()
        self.args.attn.seed = 0 if seed is None else int(seed)
        for name, t in given.items():
            setattr(self.args.attn, name, t.data_ptr())
        self.weights, self.table = self.plan.weights(
            {name: p.data_ptr() for name, p in zip(self.names, self.params)}, _c.LayerWeights)

    def point_to(self, saved: Tensor) -> None:
        """The library wants what is saved aligned to 64 bytes."""
        self.args.saved = -(-saved.data_ptr() // 64) * 64
        self.args.saved_size = self.plan.saved_bytes


def check_param(name: str, p: Tensor, shape: tuple) -> Tensor:
    if tuple(p.shape) != shape:
        raise Error(f"{name} has shape {tuple(p.shape)}, expected {shape}")
    if p.dtype != torch.float32 or not p.is_cpu:
        raise TypeError(f"{name} is {p.dtype} on {p.device}, expected float32 on the CPU: "
                        f"parameters stay float32, x may be smaller")
    return p.contiguous()


LAYER_ARGUMENTS = ("Tensor x, Tensor? memory, Tensor[] params, Tensor? bias, Tensor? visible, "
                   "Tensor? sink, Tensor? gate, Tensor? alibi, Tensor? q_lens, "
                   "Tensor? kv_lens, Tensor? seed, str text, float dropout, float balance")


@torch.library.custom_op("polyhead::layer", mutates_args=(),
                         schema=f"({LAYER_ARGUMENTS}, bool save) -> (Tensor, Tensor)")
def layer_op(x, memory, params, *rest):
    *optional, seed, text, dropout, balance, save = rest
    context = take(torch.get_num_threads())
    try:
        call = LayerCall(context, x, memory, params, optional, seed, text, dropout, balance,
                         save)
        plan = call.plan
        out = x.new_empty(*x.shape[:2], plan.out_dim)
        saved = torch.empty(plan.saved_bytes + 64 if save else 0, dtype=torch.uint8)
        call.args.out = out.data_ptr()
        if save:
            call.point_to(saved)
        context.check(plan.lib.ph_layer_forward(plan.handle, ctypes.byref(call.weights),
                                                ctypes.byref(call.args)))
    finally:
        give(context)
    return out, saved


@layer_op.register_fake
def _(x, memory, params, *rest):
    *optional, _, text, dropout, _, save = rest
    options, _ = options_from(text, dropout)
    check_input("x", x, options.model_dim)
    keys = (x if memory is None else memory).shape[1]
    shapes = {name: tuple(map(int, t.shape)) for name, t in zip(OPTIONAL, optional)
              if t is not None}
    context = take(torch.get_num_threads())
    try:
        plan = layer_plan(context, options, int(x.shape[0]), int(x.shape[1]), int(keys),
                          DTYPES[x.dtype], shapes, save)
        return (x.new_empty(x.shape[0], x.shape[1], plan.out_dim),
                x.new_empty(plan.saved_bytes + 64 if save else 0, dtype=torch.uint8))
    finally:
        give(context)


@torch.library.custom_op("polyhead::layer_backward", mutates_args=(), schema=(
        f"(Tensor dout, Tensor saved, {LAYER_ARGUMENTS}) -> Tensor[]"))
def layer_backward_op(dout, saved, x, memory, params, *rest):
    *optional, seed, text, dropout, balance = rest
    context = take(torch.get_num_threads())
    try:
        call = LayerCall(context, x, memory, params, optional, seed, text, dropout, balance,
                         True)
        check_result("saved", saved, (call.plan.saved_bytes + 64,), torch.uint8)
        check_result("dout", dout, (*x.shape[:2], call.plan.out_dim), x.dtype)
        call.point_to(saved)
        dout = dout.contiguous()
        results = layer_gradients(x, memory, params)
        dparams = results[-len(params):] if params else []
        grads, table = call.plan.weights(
            {name: g.data_ptr() for name, g in zip(call.names, dparams)}, _c.LayerGrads, "d")
        grads.dout, grads.dx = dout.data_ptr(), results[0].data_ptr()
        grads.dmemory = None if memory is None else results[1].data_ptr()
        context.check(call.plan.lib.ph_layer_backward(
            call.plan.handle, ctypes.byref(call.weights), ctypes.byref(call.args),
            ctypes.byref(grads)))
        del table
    finally:
        give(context)
    return results


def layer_gradients(x: Tensor, memory: Optional[Tensor], params: Sequence[Tensor]) -> list:
    return [t.new_empty(t.shape) for t in (x, *([] if memory is None else [memory]), *params)]


@layer_backward_op.register_fake
def _(dout, saved, x, memory, params, *rest):
    return layer_gradients(x, memory, params)


def save_layer(ctx, inputs, output):
    x, memory, params, *rest = inputs
    ctx.options = tuple(rest[-4:-1])
    ctx.save_for_backward(x, memory, output[1], *rest[:len(OPTIONAL) + 1], *params)
    ctx.set_materialize_grads(False)


def backward_of_layer(ctx, dout, _):
    x, memory, saved, *rest = ctx.saved_tensors
    optional, params = rest[:len(OPTIONAL) + 1], rest[len(OPTIONAL) + 1:]
    found = torch.ops.polyhead.layer_backward(dout, saved, x, memory, params, *optional,
                                              *ctx.options)
    dparams = found[-len(params):] if params else []
    return (found[0], None if memory is None else found[1], dparams,
            *[None] * (len(optional) + len(ctx.options) + 1))


layer_op.register_autograd(backward_of_layer, setup_context=save_layer)
layer_backward_op.register_autograd(refuse_twice)
