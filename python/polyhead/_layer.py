"""A whole multi-head layer on NumPy arrays."""
from __future__ import annotations

import math
from ctypes import byref
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional

import numpy as np

from . import _c
from ._attention import PACKED, Array, Tensors, address, as_array, as_numbers, as_result, \
    as_tensors
from ._context import Error, give, take
from ._layers import LayerPlan, after_cache, initial, layer_plan, options_of, params_of
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


class Cache(NamedTuple):
    """What decoding keeps of the tokens so far; `Layer.cache` makes one.

    Attributes
    ----------
    k, v, extra : ndarray, float32
        Keys and values, (batch, heads, capacity, dim) unless the variant has another
        layout, and what it keeps beside them. What is beyond `past` is unspecified.
    past : ndarray of int32, shape (batch,)
        How many tokens each row holds; a call adds those of its x. A smaller number forgets
        the tokens from there on.
    capacity : int
        How many tokens a row can hold.
    """
    k: Array
    v: Array
    extra: Array
    past: Array
    capacity: int


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
                 cache: Optional[Cache] = None, **tensors: Unpack[Tensors]) -> Array:
        """The result for x (batch, len, model_dim); memory is (batch, kv_len, memory_dim).

        With a cache x holds the next tokens of each row: they are appended to it, and see
        those before them. Token by token a causal layer gives the bits of one call (mla: of
        one call with a cache).
        """
        return self._forward(x, memory, tensors, seed, 0.0, backward=False, cache=cache)[0]

    def cache(self, batch: int, capacity: int) -> Cache:
        """An empty cache for `batch` rows of at most `capacity` tokens.

        Examples
        --------
        >>> import numpy as np, polyhead
        >>> layer = polyhead.Layer(32, 4, causal=True)
        >>> x = np.ones((1, 3, 32), np.float32)
        >>> cache = layer.cache(1, 3)
        >>> parts = [layer(x[:, t:t + 1], cache=cache) for t in range(3)]
        >>> bool((np.concatenate(parts, 1) == layer(x)).all())
        True
        """
        context = take()
        try:
            plan = layer_plan(context, after_cache(self.options), batch, 1, capacity,
                              _c.PH_F32, cache=True)
            sizes = plan.lib.ph_layer_cache(plan.handle)
            attn = _c.Attn.from_address(plan.lib.ph_layer_about(plan.handle).attn)
            k_shape = batch, attn.k_heads, capacity, attn.qk_dim
            v_shape = batch, attn.v_heads, capacity, attn.v_dim
        finally:
            give(context)
        k, v = empty_cache(sizes.k // 4, k_shape), empty_cache(sizes.v // 4, v_shape)
        return Cache(k, v, empty_cache(sizes.extra // 4), np.zeros(batch, np.int32), capacity)

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
            # The fields of a tuple can be replaced, by views too.
            x, memory = self._inputs(saved.x, saved.memory)
            held = as_array("saved.memory_of_call", saved.memory_of_call)
            saved = saved._replace(x=x, memory=memory, tensors=as_tensors(saved.tensors),
                                   memory_of_call=held)
            plan, args, weights, keep = self._call(context, saved, backward=True)
            if held.nbytes != plan.saved_bytes + 64 or not held.flags.c_contiguous:
                raise Error(f"saved holds {held.nbytes} bytes, expected "
                            f"{plan.saved_bytes + 64}: what the forward call returned")
            dout = as_result("dout", dout, (*saved.x.shape[:2], plan.out_dim), saved.x.dtype)
            results = {name: np.empty(self.shapes[name], np.float32) for name in self.params}
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

    def _forward(self, x, memory, tensors, seed, balance, backward, cache=None):
        x, memory = self._inputs(x, memory)
        saved = Saved(x, memory, as_tensors(tensors), seed, balance, np.empty(0, np.uint8))
        context = take()
        try:
            plan, args, weights, keep = self._call(context, saved, backward, cache)
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
        if cache is not None:
            np.add(cache.past, saved.tensors.get("q_lens", x.shape[1]), out=cache.past)
        return out, saved

    def _inputs(self, x: Any, memory: Any) -> tuple[Array, Optional[Array]]:
        """Both as the library reads them, contiguous."""
        x = as_input("x", x, self.options.model_dim)
        if (memory is None) != (self.options.memory_dim == 0):
            raise Error("memory is given to a layer without memory_dim, or left out of one "
                        "with it")
        if memory is not None:
            memory = as_input("memory", memory, self.options.memory_dim)
            expect("memory", memory.shape, (x.shape[0], *memory.shape[1:]))
            if memory.dtype != x.dtype:
                raise TypeError(f"memory is {memory.dtype.name}, expected that of x, "
                                f"{x.dtype.name}")
        return x, memory

    def _call(self, context, saved: Saved, backward: bool, cache: Optional[Cache] = None):
        x, memory = saved.x, saved.memory
        dtype = dtype_code(x.dtype.name, "x")
        options, kv_len = self.options, (x if memory is None else memory).shape[1]
        if cache is not None:
            check_cache(cache, x.shape[0], memory)
            options, kv_len = after_cache(options), cache.capacity
        plan = layer_plan(context, options, x.shape[0], x.shape[1], kv_len, dtype,
                          {name: array.shape for name, array in saved.tensors.items()},
                          backward, cache is not None)
        args = _c.LayerArgs(x=address(x), balance=saved.balance)
        if cache is not None:
            point_to_cache(args, cache)
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
        array = as_numbers(name, self.params[name])
        expect(name, array.shape, self.shapes[name])
        return array


def point_to_saved(args: Any, plan: LayerPlan, saved: Saved) -> None:
    """The library wants it aligned to 64 bytes."""
    args.saved = -(-address(saved.memory_of_call) // 64) * 64
    args.saved_size = plan.saved_bytes


def empty_cache(floats: int, shape: tuple = ()) -> Array:
    """In the shape of heads, where the variant has no layout of its own."""
    return np.zeros(shape if math.prod(shape) == floats else floats, np.float32)


def check_cache(cache: Cache, batch: int, memory: Optional[Array]) -> None:
    """The library is told how many bytes there are, and the user may replace arrays."""
    if memory is not None:
        raise Error("memory and cache are both given, expected one of them: a cache holds "
                    "keys and values of x")
    for name, dtype in (("k", np.float32), ("v", np.float32), ("extra", np.float32),
                        ("past", np.int32)):
        array = as_array(f"cache.{name}", getattr(cache, name))
        if array.dtype != dtype or not (array.flags.c_contiguous and array.flags.aligned
                                        and array.flags.writeable):
            raise Error(f"cache.{name} is {array.dtype.name}, expected contiguous "
                        f"{np.dtype(dtype).name} that may be written to")
    expect("cache.past", cache.past.shape, (batch,))


def point_to_cache(args: Any, cache: Cache) -> None:
    args.past = address(cache.past)
    for name in ("k", "v", "extra"):
        array = getattr(cache, name)
        if array.size:
            setattr(args, f"{name}_cache", address(array))
            setattr(args, f"{name}_cache_size", array.nbytes)


def as_input(name: str, value: Any, columns: int) -> Array:
    array = as_array(name, value)
    if array.ndim != 3 or array.shape[2] != columns:
        raise Error(f"{name} has shape {array.shape}, expected (batch, len, {columns})")
    dtype_code(array.dtype.name, name)
    if not array.dtype.isnative:
        raise TypeError(f"{name} has foreign byte order, expected that of this machine")
    return np.require(array, None, PACKED)
