"""Layers: from options and sizes to a ph_layer and the structs of its calls.

NumPy's Layer and PyTorch's Heads come through here, with addresses of their tensors.
"""
from __future__ import annotations

import ctypes
import math
from ctypes import byref, c_void_p
from typing import Any, Mapping, NamedTuple, Optional

import numpy as np

from . import _c
from ._context import Context, Error, give, take
from ._plans import Options, Param, Sizes, add_mask, add_shapes, check_options, is_int, \
    is_number, list_params

ROPES = {None: 0, "half": _c.PH_ROPE_HALF, "interleaved": _c.PH_ROPE_INTERLEAVED}
NORMS = {None: 0, "head": _c.PH_QK_NORM_HEAD, "whole": _c.PH_QK_NORM_WHOLE}


class LayerOptions(NamedTuple):
    """What a layer is, apart from the sizes of its tensors; see `Layer`."""
    model_dim: int
    heads: int
    head_dim: int
    k_heads: int
    v_heads: int
    v_dim: int
    memory_dim: int
    out_dim: int
    concat: bool
    linear: bool
    variant: Optional[str]
    rope: Optional[str]
    rope_base: float
    rope_dims: int
    qk_norm: Optional[str]
    attention: Options  # its variant is None


def options_of(model_dim: int, heads: int, *, head_dim: Optional[int] = None,
               k_heads: Optional[int] = None, v_heads: Optional[int] = None,
               v_dim: Optional[int] = None, memory_dim: Optional[int] = None,
               out_dim: Optional[int] = None, concat: bool = False, linear: bool = False,
               variant: Optional[str] = None, rope: Optional[str] = None,
               rope_base: float = 0.0, rope_dims: int = 0, qk_norm: Optional[str] = None,
               causal: bool = False, window: Optional[tuple[int, int]] = None,
               offset: Any = None, scale: Optional[float] = None, softcap: float = 0.0,
               dropout: float = 0.0) -> LayerOptions:
    """Options of a layer as its users give them, checked by a layer of one token."""
    if rope not in tuple(ROPES) or qk_norm not in tuple(NORMS):
        raise Error(f"rope is {rope!r} and qk_norm {qk_norm!r}, expected 'half' or "
                    f"'interleaved', and 'head' or 'whole'")
    check_sizes(model_dim=model_dim, heads=heads, head_dim=head_dim or 1, k_heads=k_heads or 1,
                v_heads=v_heads or 1, v_dim=v_dim or 1, memory_dim=memory_dim or 1,
                out_dim=out_dim or 1, rope_dims=rope_dims or 1)
    if not is_number(rope_base):
        raise Error(f"rope_base is {rope_base!r}, expected a number")
    window = tuple(window) if isinstance(window, list) else window
    attention = Options(causal, window, offset, scale, softcap, dropout, variant)
    check_options(attention)
    return LayerOptions(model_dim, heads, head_dim or model_dim // heads, k_heads or 0,
                        v_heads or 0, v_dim or 0, memory_dim or 0, out_dim or 0, concat,
                        linear, variant, rope, rope_base, rope_dims, qk_norm,
                        attention._replace(variant=None))


def check_sizes(**sizes: Any) -> None:
    for name, value in sizes.items():
        if not is_int(value) or value < 1:
            raise Error(f"{name} is {value!r}, expected a number from 1 to 2**31 - 1")


class LayerPlan:
    """A ph_layer for tensors of certain sizes, with the structs of its calls."""

    def __init__(self, context: Context, options: LayerOptions, batch: int, q_len: int,
                 kv_len: int, dtype: int, shapes: Mapping[str, tuple], backward: bool,
                 cache: bool):
        o, self.lib = options, context.lib
        attn = _c.Attn(batch=batch, q_heads=o.heads, k_heads=o.k_heads, v_heads=o.v_heads,
                       q_len=q_len, kv_len=kv_len, qk_dim=o.head_dim, v_dim=o.v_dim,
                       dtype=dtype, scale=o.attention.scale or 0,
                       softcap=o.attention.softcap, dropout=o.attention.dropout,
                       backward=int(backward),
                       variant=o.variant.encode() if o.variant else None)
        sizes = Sizes(batch, o.heads, q_len, kv_len, o.head_dim, o.v_dim or o.head_dim,
                      False, (batch, o.heads, q_len))
        add_mask(attn, o.attention, sizes)
        add_shapes(attn, sizes, shapes)
        form = _c.PH_FORM_LINEAR if o.linear else _c.PH_FORM_WHOLE
        desc = _c.LayerDesc(model_dim=o.model_dim, memory_dim=o.memory_dim,
                            out_dim=o.out_dim, concat=int(o.concat), attn=attn, q_form=form,
                            k_form=form, v_form=form, o_form=form, rope=ROPES[o.rope],
                            rope_base=o.rope_base, rope_dims=o.rope_dims,
                            qk_norm=NORMS[o.qk_norm], cache=int(cache))
        self.handle = c_void_p()
        context.check(self.lib.ph_layer_create(byref(self.handle), context.handle,
                                               byref(desc)))
        self.params = list_params(self.lib.ph_layer_param, self.handle)
        self.named = self.lib.ph_layer_named(self.handle)
        self.out_dim = self.lib.ph_layer_about(self.handle).out_dim
        # In whole cache lines: rows of several calls stay aligned when they are stacked.
        saved = self.lib.ph_layer_saved(self.handle) if backward else 0
        self.saved_bytes = -(-saved // 64) * 64

    def free(self) -> None:
        self.lib.ph_layer_free(self.handle)

    def weights(self, addresses: Mapping[str, int], struct: Any, prefix: str = "") -> tuple:
        """LayerWeights, or LayerGrads, and the table it points to."""
        filled = struct()
        for param in self.params[:self.named]:
            setattr(filled, prefix + param.name, addresses.get(param.name))
        own = [addresses.get(param.name) for param in self.params[self.named:]]
        table = (c_void_p * max(len(own), 1))(*own)
        setattr(filled, prefix + "extra", ctypes.addressof(table) if own else None)
        return filled, table


def layer_plan(context: Context, options: LayerOptions, batch: int, q_len: int, kv_len: int,
               dtype: int, shapes: Mapping[str, tuple] = {}, backward: bool = False,
               cache: bool = False) -> LayerPlan:
    key = ("layer", options, batch, q_len, kv_len, dtype, tuple(shapes.items()), backward,
           cache)
    return context.made.get(key) or context.make(
        key, lambda made: LayerPlan(made, options, batch, q_len, kv_len, dtype, shapes,
                                    backward, cache))


def after_cache(options: LayerOptions) -> LayerOptions:
    """Of a layer with a cache: its tokens come after those that the cache holds."""
    if options.attention.offset is not None:
        return options
    return options._replace(attention=options.attention._replace(offset="end"))


def params_of(options: LayerOptions, bias: bool) -> list[Param]:
    """The parameters that a layer has: biases where wanted, a learned alpha of entmax
    where none is said."""
    context = take()
    try:
        offset = options.attention._replace(offset=0)
        probe = layer_plan(context, options._replace(attention=offset), 1, 1, 1, _c.PH_F32)
        listed = list(probe.params)
    finally:
        give(context)
    fixed = "alpha=" in (options.variant or "")
    return [param for param in listed
            if not (param.name in ("bq", "bk", "bv", "bo") and not bias)
            and not (param.name == "alpha_logit" and fixed)]


# Parameters that do not start as a random matrix or zero. Variants start as plain heads
# where they can.
ONES = ("diff_norm", "kv_norm", "q_norm", "k_norm")
NORMAL = {"dc_w2": 0.02, "dc_wg": 0.02, "lambda_q1": 0.1, "lambda_k1": 0.1,
          "lambda_q2": 0.1, "lambda_k2": 0.1}


def initial(param: Param, linear: bool, rng: np.random.Generator) -> np.ndarray:
    shape = param.shape
    if param.name in ONES:
        return np.ones(shape, np.float32)
    if param.name in NORMAL:
        return (NORMAL[param.name] * rng.standard_normal(shape)).astype(np.float32)
    if param.name in ("w_logits", "w_weights"):
        return np.eye(*shape, dtype=np.float32)
    if param.name == "mix":  # each head starts with columns of its own
        rows, columns = shape
        return (np.arange(columns) * rows // columns
                == np.arange(rows)[:, None]).astype(np.float32)
    if len(shape) < 2 or param.name in ("dc_static", "content"):
        return np.zeros(shape, np.float32)
    bound = math.sqrt(6 / (shape[-2] + shape[-1]))
    return rng.uniform(-bound, bound, shape).astype(np.float32)
