"""Polyhead in JAX: attention with its gradient, under jit and vmap, on the CPU.

>>> import jax, jax.numpy as jnp
>>> from polyhead.jax import attention
>>> q = jnp.ones((1, 4, 2, 16))
>>> jax.jit(attention, static_argnames="causal")(q, q, q, causal=True).shape
(1, 4, 2, 16)
"""
from __future__ import annotations

import ctypes
import functools
import json
import math
from typing import Any, Mapping, NamedTuple, Optional

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ._context import Error, give, take
from ._plans import INTEGERS, Layout, Options, Plan, dtype_code, extra_table
from ._xla import handler

__all__ = ["attention"]

Array = jax.Array
OPTIONAL = ("bias", "visible", "gate", "sink", "alibi", "relative", "q_lens", "kv_lens")
CONSTANT = ("visible", "alibi", "q_lens", "kv_lens", "seed")  # those without a gradient
EXTRA = "extra."  # what names of a variant's tensors begin with


# ---- a call as XLA's program holds it ------------------------------------------------------

class Tensor(NamedTuple):
    """An argument or a result: its name, and what vmap leaves as it is."""
    name: str
    shape: tuple
    dtype: str

    def bytes(self) -> int:
        return math.prod(self.shape) * jnp.dtype(self.dtype).itemsize


class Recipe(NamedTuple):
    """All of a call but its addresses; XLA carries it as text."""
    options: Options
    inputs: tuple
    outputs: tuple

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def read(text: bytes) -> "Recipe":
        options, *tensors = json.loads(text)
        window = options[1] and tuple(options[1])
        return Recipe(Options(*options)._replace(window=window),
                      *(tuple(Tensor(name, tuple(shape), dtype)
                              for name, shape, dtype in some) for some in tensors))

    def rows_alone(self) -> bool:
        """Whether every tensor has a row for each row of the batch: then vmap is nothing
        but a larger batch."""
        batch = self.inputs[0].shape[0]
        ranks = {"bias": 4, "visible": 4, "dbias": 4, "gate": 3, "dgate": 3}
        return all(t.name not in ("sink", "alibi", "relative", "seed", "dsink", "drelative")
                   and EXTRA not in t.name and t.shape[:1] == (batch,)
                   and len(t.shape) == ranks.get(t.name, len(t.shape))
                   for t in (*self.inputs, *self.outputs))


def layout_of(tensor: Tensor, batch: int) -> Layout:
    """Heads before rows, as the library counts them; in memory they stay behind."""
    _, rows, heads, dim = tensor.shape
    return Layout((batch, heads, rows, dim), (rows * heads * dim, dim, heads * dim, 1),
                  dtype_code(tensor.dtype, tensor.name))


def plan_of(context: Any, text: bytes, times: int = 1) -> Plan:
    """For a batch that is so many times that of the recipe."""
    key = ("jax", text, times)
    return context.made.get(key) or context.make(key, lambda made: make_plan(
        made, Recipe.read(text), times))


def make_plan(context: Any, recipe: Recipe, times: int) -> Plan:
    tensors = {t.name: t for t in recipe.inputs}
    for name in "qkv":
        if len(tensors[name].shape) != 4:
            raise Error(f"{name} has shape {tensors[name].shape}, expected (batch, len, "
                        f"heads, dim)")
    layouts = [layout_of(tensors[name], times * tensors[name].shape[0]) for name in "qkv"]
    shapes = {name: tensors[name].shape for name in OPTIONAL if name in tensors}
    if times > 1:
        shapes = {name: (times * shape[0], *shape[1:]) for name, shape in shapes.items()}
    batch, heads, rows, _ = layouts[0].shape
    v_dim = layouts[2].shape[3]
    plan = Plan(context, *layouts, recipe.options, shapes, "dout" in tensors,
                (rows * heads * v_dim, v_dim, heads * v_dim, 1), gradients=layouts)
    extra_table(plan.params, {t.name[len(EXTRA):]: (0, t.shape) for t in recipe.inputs
                              if t.name.startswith(EXTRA)})
    return plan


# ---- running it ----------------------------------------------------------------------------

def execute(text: bytes, inputs: list, outputs: list) -> None:
    """A call of XLA. Under vmap all tensors have leading axes more."""
    recipe = Recipe.read(text)
    first = inputs[0]
    times = math.prod(first.dims[:first.rank - 4])
    fold = times > 1 and recipe.rows_alone()
    tensors = (*recipe.inputs, *recipe.outputs)
    addresses = {t.name: buffer.data for t, buffer in zip(tensors, inputs + outputs)}
    context = take()
    try:
        plan = plan_of(context, text, times if fold else 1)
        for i in range(1 if fold else times):
            at = addresses if i == 0 else {
                t.name: addresses[t.name] + i * t.bytes() for t in tensors}
            context.check(call(plan, recipe, at))
    finally:
        give(context)


def call(plan: Plan, recipe: Recipe, at: Mapping[str, int]) -> int:
    args, lib = plan.args, plan.lib
    args.q, args.k, args.v, args.out, args.lse = (at[name] for name in
                                                  ("q", "k", "v", "out", "lse"))
    args.seed = ctypes.c_uint32.from_address(at["seed"]).value if "seed" in at else 0
    plan.set_optional({name: at[name] for name in OPTIONAL if name in at},
                      {t.name[len(EXTRA):]: (at[t.name], t.shape) for t in recipe.inputs
                       if t.name.startswith(EXTRA)})
    if "dout" not in at:
        return lib.ph_forward(plan.handle, plan.args_ref)
    ctypes.memset(plan.grads_ref, 0, ctypes.sizeof(plan.grads))
    plan.grads.dout, plan.grads.dlse = at["dout"], at.get("dlse")
    for t in recipe.outputs:
        if EXTRA not in t.name:
            setattr(plan.grads, t.name, at[t.name])
    own = (ctypes.c_void_p * max(len(plan.params), 1))(
        *[at.get("d" + EXTRA + param.name) for param in plan.params])
    plan.grads.dextra = ctypes.addressof(own) if any(own) else None
    return lib.ph_backward(plan.handle, plan.args_ref, plan.grads_ref)


HANDLER = handler(execute)
jax.ffi.register_ffi_target("polyhead_attention", jax.ffi.pycapsule(HANDLER), platform="cpu")


def invoke(options: Options, inputs: Mapping[str, Array],
           outputs: Mapping[str, Any]) -> dict[str, Array]:
    """The results by name; what is wrong with the call is found here, while tracing."""
    described = [[Tensor(name, tuple(x.shape), jnp.dtype(x.dtype).name)
                  for name, x in some.items()] for some in (inputs, outputs)]
    text = json.dumps([options, *described])
    context = take()
    try:
        plan_of(context, text.encode())
    finally:
        give(context)
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs.values()]
    found = jax.ffi.ffi_call("polyhead_attention", results, vmap_method="broadcast_all")(
        *inputs.values(), text=text)
    return dict(zip(outputs, found))


# ---- derivatives ---------------------------------------------------------------------------

@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(options: Options, tensors: dict[str, Array]) -> tuple[Array, Array]:
    """out and lse; q, k and v are among the tensors."""
    q, v = tensors["q"], tensors["v"]
    if not q.ndim == tensors["k"].ndim == v.ndim == 4:
        raise Error(f"q, k and v have shapes {q.shape}, {tensors['k'].shape} and {v.shape}, "
                    f"expected (batch, len, heads, dim)")
    batch, rows, heads, _ = q.shape
    found = invoke(options, tensors, {
        "out": jax.ShapeDtypeStruct((batch, rows, heads, v.shape[3]), q.dtype),
        "lse": jax.ShapeDtypeStruct((batch, heads, rows), jnp.float32)})
    return found["out"], found["lse"]


def run_forward(options: Options, tensors: dict) -> tuple:
    if "alibi" in tensors and tensors["alibi"].perturbed:
        raise Error("alibi is differentiated, expected a constant: polyhead has no gradient "
                    "of it; jax.lax.stop_gradient makes it one")
    wanted = {name: () for name, x in tensors.items()
              if x.perturbed and name not in CONSTANT}
    values = {name: x.value for name, x in tensors.items()}
    out, lse = run(options, values)
    return (out, lse), (values, out, lse, wanted)


def run_backward(options: Options, saved: tuple, cotangents: tuple) -> tuple:
    tensors, out, lse, wanted = saved
    dout, dlse = cotangents
    inputs = {**tensors, "out": out, "lse": lse}
    inputs["dout"] = jnp.zeros_like(out) if isinstance(dout, SymbolicZero) else dout
    if not isinstance(dlse, SymbolicZero):
        inputs["dlse"] = dlse
    found = invoke(options, inputs, {"d" + name: tensors[name] for name in wanted})
    return ({name: found.get("d" + name) for name in tensors},)


run.defvjp(run_forward, run_backward, symbolic_zeros=True)


# ---- attention -----------------------------------------------------------------------------

def as_tensor(name: str, value: Any, keys: int) -> Array:
    """As the library reads it. Conversions are JAX's, so gradients go through them."""
    x = jnp.asarray(value)
    if name in INTEGERS:
        if not jnp.issubdtype(x.dtype, jnp.integer):
            raise TypeError(f"{name} is {x.dtype}, expected integers")
        return x.astype(jnp.int32)
    if name in ("bias", "visible"):
        x = x[(None,) * (4 - x.ndim)]
        x = jnp.broadcast_to(x, (*x.shape[:3], keys)) if x.shape[3] == 1 else x
    return x.astype(jnp.bool_ if name == "visible" else jnp.float32)


def attention(q: Array, k: Array, v: Array, *, causal: bool = False,
              window: Optional[tuple[int, int]] = None, offset: Any = None,
              scale: Optional[float] = None, softcap: float = 0.0, dropout: float = 0.0,
              seed: Any = None, variant: Optional[str] = None,
              extra: Optional[Mapping[str, Any]] = None, return_lse: bool = False,
              bias: Any = None, visible: Any = None, gate: Any = None, sink: Any = None,
              alibi: Any = None, relative: Any = None, q_lens: Any = None,
              kv_lens: Any = None) -> Any:
    """Multi-head attention, with the axes of `jax.nn.dot_product_attention`.

    Parameters
    ----------
    q : Array, shape (batch, q_len, heads, dim)
        float32, float16 or bfloat16, on the CPU.
    k : Array, shape (batch, kv_len, k_heads, dim)
    v : Array, shape (batch, kv_len, v_heads, v_dim)
    seed : integer array, optional
        Of dropout, 32 bits: ``jax.random.bits(key)``.
    causal, window, offset, scale, softcap, dropout, variant, extra, return_lse, bias,
    visible, gate, sink, alibi, relative, q_lens, kv_lens
        As in `polyhead.attention`. Those of the first line but extra are Python values,
        static under jit.

    Returns
    -------
    out : Array, shape (batch, q_len, heads, v_dim), type of q
    lse : Array of float32, shape (batch, heads, q_len)
        With `return_lse`; gradients flow through it too.

    There are gradients of q, k, v, bias, gate, sink, relative and extra, once.
    """
    tensors = {"q": jnp.asarray(q), "k": jnp.asarray(k), "v": jnp.asarray(v)}
    given = dict(zip(OPTIONAL, (bias, visible, gate, sink, alibi, relative, q_lens, kv_lens)))
    keys = tensors["k"].shape[1] if tensors["k"].ndim == 4 else 0
    tensors |= {name: as_tensor(name, value, keys) for name, value in given.items()
                if value is not None}
    tensors |= {EXTRA + name: jnp.asarray(value, jnp.float32)
                for name, value in (extra or {}).items()}
    if dropout:
        if seed is None:
            raise Error("dropout is given without seed, expected jax.random.bits(key)")
        tensors["seed"] = jnp.asarray(seed, jnp.uint32)
        if tensors["seed"].shape:
            raise Error(f"seed has shape {tensors['seed'].shape}, expected one number")
    # Conversions to Python's numbers: of a traced value JAX says that it must be static.
    options = Options(bool(causal), None if window is None else tuple(map(int, window)),
                      offset if offset in (None, "end") else int(offset),
                      None if scale is None else float(scale), float(softcap),
                      float(dropout), variant)
    out, lse = run(options, tensors)
    return (out, lse) if return_lse else out
