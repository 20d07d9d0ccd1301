"""A whole multi-head layer on NumPy arrays."""
from __future__ import annotations

import ctypes
from ctypes import byref
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional

import numpy as np

from . import _c
from ._attention import PACKED, Array, Tensors, address, as_array, as_result, as_tensors
from ._context import Error, give, take
from ._layers import LayerPlan, initial, layer_plan, options_of, params_of
from ._plans import dtype_code, expect

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Saved(NamedTuple):
    """What a forward call leaves for `Layer.backward`."""
    x: Array
    memory: Optional[Array]
    tensors: Mapping[str, Array]
    seed: int
    balance: float
    memory_of_call: Array


class Layer:
    """A multi-head layer: projections, attention in any variant, output projection.

    Parameters
    ----------
    model_dim, heads : int
        Columns of x, and query heads.
    head_dim, v_dim : int, optional
        Of a head; model_dim // heads by default.
    k_heads, v_heads : int, optional
        Heads of k and v, which divide heads.
    memory_dim : int, optional
        Columns of memory, where keys and values come from it.
    out_dim : int, optional
        Columns of the result; model_dim by default.
    concat : bool
        No output projection: the result is the heads side by side.
    linear : bool
        Matrices are stored (out, in), as `nn.Linear` does, instead of (in, out).
    variant : str, optional
        ``"moh:shared=2,top=4"``, ``"dcmha:rank=2"``, ``"gated:head+diff"``, ...
    rope, rope_base, rope_dims
        Rotary positions: ``"half"`` or ``"interleaved"``.
    qk_norm : "head" or "whole", optional
        RMS norm of q and k.
    causal, window, offset, scale, softcap, dropout
        As in `attention`.
    bias : bool
        Whether the projections have biases.
    seed : int
        Of the initial parameters.

    Attributes
    ----------
    params : dict of ndarray
        All parameters by name, float32; they may be changed or replaced.
    """

    def __init__(self, model_dim: int, heads: int, *, bias: bool = True, seed: int = 0,
                 **options: Any):
        self.options = options_of(model_dim, heads, **options)
        self.shapes = {param.name: param.shape for param in params_of(self.options, bias)}
        rng = np.random.default_rng(seed)
        self.params = {param.name: initial(param, self.options.linear, rng)
                       for param in params_of(self.options, bias)}

    def __repr__(self) -> str:
        o = self.options
        return (f"Layer({o.model_dim}, {o.heads}, head_dim={o.head_dim}"
                + (f", variant={o.variant!r}" if o.variant else "")
                + f") with {sum(p.size for p in self.params.values())} parameters")

    def __call__(self, x: Array, memory: Optional[Array] = None, *, seed: int = 0,
                 **tensors: Unpack[Tensors]) -> Array:
        """The result for x (batch, len, model_dim); memory is (batch, kv_len, memory_dim)."""
        return self._forward(x, memory, tensors, seed, 0.0, backward=False)[0]

    def forward(self, x: Array, memory: Optional[Array] = None, *, seed: int = 0,
                balance: float = 0.0, **tensors: Unpack[Tensors]) -> tuple[Array, Saved]:
        """The result, and what `backward` needs.

        balance is the weight of the load-balance loss in the gradients, for variants that
        route. Tensors are those of `attention`: bias, visible, gate, sink, q_lens, ...
        """
        return self._forward(x, memory, tensors, seed, balance, backward=True)

    def backward(self, dout: Array, saved: Saved) -> dict[str, Array]:
        """Gradients of every parameter, of "x" and of "memory", by name."""
        context = take()
        try:
            plan, args, weights, keep = self._call(context, saved, backward=True)
            dout = as_result("dout", dout, (*saved.x.shape[:2], plan.out_dim), saved.x.dtype)
            results = {name: np.empty(array.shape, np.float32)
                       for name, array in self.params.items()}
            grads, table = plan.weights({name: address(array)
                                         for name, array in results.items()},
                                        _c.LayerGrads, "d")
            results["x"] = np.empty(saved.x.shape, saved.x.dtype)
            grads.dout, grads.dx = address(dout), address(results["x"])
            if saved.memory is not None:
                results["memory"] = np.empty(saved.memory.shape, saved.memory.dtype)
                grads.dmemory = address(results["memory"])
            context.check(plan.lib.ph_layer_backward(plan.handle, byref(weights),
                                                     byref(args), byref(grads)))
            del table, keep
        finally:
            give(context)
        return results

    def _forward(self, x, memory, tensors, seed, balance, backward):
        x = as_input("x", x, self.options.model_dim)
        if (memory is None) != (self.options.memory_dim == 0):
            raise Error("memory is given to a layer without memory_dim, or left out of one "
                        "with it")
        if memory is not None:
            memory = as_input("memory", memory, self.options.memory_dim)
            expect("memory", memory.shape, (x.shape[0], *memory.shape[1:]))
        saved = Saved(x, memory, as_tensors(tensors), seed, balance, np.empty(0, np.uint8))
        context = take()
        try:
            plan, args, weights, keep = self._call(context, saved, backward)
            if backward:
                saved = saved._replace(memory_of_call=np.empty(plan.saved_bytes + 64,
                                                               np.uint8))
                point_to_saved(args, plan, saved)
            out = np.empty((*x.shape[:2], plan.out_dim), x.dtype)
            args.out = address(out)
            context.check(plan.lib.ph_layer_forward(plan.handle, byref(weights),
                                                    byref(args)))
            del keep
        finally:
            give(context)
        return out, saved

    def _call(self, context, saved: Saved, backward: bool):
        x, memory = saved.x, saved.memory
        dtype = dtype_code(x.dtype.name, "x")
        plan = layer_plan(context, self.options, x.shape[0], x.shape[1],
                          x.shape[1] if memory is None else memory.shape[1], dtype,
                          {name: array.shape for name, array in saved.tensors.items()},
                          backward)
        args = _c.LayerArgs(x=address(x), balance=saved.balance)
        args.memory = None if memory is None else address(memory)
        args.attn.seed = saved.seed
        for name, array in saved.tensors.items():
            setattr(args.attn, name, address(array))
        if saved.memory_of_call.size:
            point_to_saved(args, plan, saved)
        params = {name: self._param(name) for name in self.params}
        weights, table = plan.weights({name: address(array)
                                       for name, array in params.items()}, _c.LayerWeights)
        return plan, args, weights, (table, params)

    def _param(self, name: str) -> Array:
        if name not in self.shapes:
            raise Error(f"params has {name!r}, expected {', '.join(self.shapes)}")
        array = np.require(self.params[name], np.float32, PACKED)
        expect(name, array.shape, self.shapes[name])
        return array


def point_to_saved(args: Any, plan: LayerPlan, saved: Saved) -> None:
    """The library wants it aligned to 64 bytes."""
    args.saved = -(-address(saved.memory_of_call) // 64) * 64
    args.saved_size = plan.saved_bytes


def as_input(name: str, value: Any, columns: int) -> Array:
    array = as_array(name, value)
    if array.ndim != 3 or array.shape[2] != columns:
        raise Error(f"{name} has shape {array.shape}, expected (batch, len, {columns})")
    dtype_code(array.dtype.name, name)
    if not array.dtype.isnative:
        raise TypeError(f"{name} has foreign byte order, expected that of this machine")
    return np.require(array, None, PACKED)
