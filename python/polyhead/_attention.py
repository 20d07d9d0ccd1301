"""Attention on NumPy arrays: forward, backward, and what the heads looked at."""
from __future__ import annotations

import ctypes
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Optional, Sequence, \
    TypedDict, Union

import numpy as np

from . import _c
from ._context import Error, give, take
from ._page import Paged, write_maps
from ._plans import BYTES, INTEGERS, OPTIONAL, Layout, Options, Plan, check_options, dtype_code, \
    expect

if TYPE_CHECKING:
    from typing_extensions import Unpack

Array = np.ndarray
Offset = Union[int, str, None]
ndarray, empty, FLOAT = np.ndarray, np.empty, np.dtype(np.float32)
PACKED = ["C", "ALIGNED"]  # how the library reads all tensors but q, k and v


# ---- arrays ------------------------------------------------------------------------------

def address_in_object(array: Array) -> int:
    """The first field behind the head of the object: a fifth of a microsecond, where
    NumPy's own ways take one and a half."""
    return from_address(id(array) + HEAD).value


def address_by_numpy(array: Array) -> int:
    return array.ctypes.data


HEAD, from_address = object.__basicsize__, ctypes.c_size_t.from_address
PROBE = np.zeros((2, 2))[1:]
address = address_by_numpy
if address_in_object(PROBE) == address_by_numpy(PROBE):
    address = address_in_object


def as_array(name: str, value: Any) -> Array:
    """q, k or v as it is; nothing is converted, so that nothing is copied unseen."""
    if type(value).__module__.partition(".")[0] in ("torch", "jax", "jaxlib"):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a NumPy array: "
                        f"polyhead.torch and polyhead.jax have functions for tensors")
    if not isinstance(value, ndarray):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a NumPy array")
    return value


def layout_of(name: str, array: Array) -> Layout:
    dtype = dtype_code(array.dtype.name, name)
    size = BYTES[dtype]
    if not array.dtype.isnative:
        raise TypeError(f"{name} has foreign byte order, expected that of this machine")
    if any(stride % size for stride in array.strides):
        raise Error(f"{name} has strides of {array.strides} bytes, expected multiples of "
                    f"its {size}-byte elements")
    return Layout(array.shape, tuple(stride // size for stride in array.strides), dtype)


def as_numbers(name: str, value: Any) -> Array:
    """A small tensor, contiguous and of the type that the library reads."""
    array = np.asarray(value)
    if name in INTEGERS:
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name} is {array.dtype.name}, expected integers")
        if array.size and (array.min() < -2**31 or array.max() >= 2**31):
            raise Error(f"{name} has entries beyond 32 bits")
        return np.require(array, np.int32, PACKED)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"{name} is {array.dtype.name}, expected numbers")
    if name == "visible":
        mask = array if array.dtype in (np.bool_, np.uint8) else array != 0
        return np.ascontiguousarray(unbroadcast(mask)).view(np.uint8)
    if name == "bias":
        array = unbroadcast(array)
    return np.require(array, np.float32, PACKED)


def unbroadcast(array: Array) -> Array:
    """bias or visible with four axes; leading ones that only repeat become 1."""
    array = array[(np.newaxis,) * (4 - array.ndim)]
    repeated = [axis < 3 and length > 1 and stride == 0
                for axis, (length, stride) in enumerate(zip(array.shape, array.strides))]
    return array[tuple(slice(0, 1) if one else slice(None) for one in repeated)]


# ---- calls -------------------------------------------------------------------------------

class Tensors(TypedDict, total=False):
    """Tensors that a call may have besides q, k and v; see `attention`."""
    bias: Any
    visible: Any
    gate: Any
    sink: Any
    alibi: Any
    relative: Any
    q_lens: Any
    kv_lens: Any
    q_offsets: Any
    kv_offsets: Any
    page_table: Any


class Call:
    """Everything of one call: arrays as the library reads them, and the key of its plan."""

    __slots__ = ("q", "k", "v", "options", "tensors", "extra", "key")

    def __init__(self, q: Any, k: Any, v: Any, options: tuple, tensors: Mapping[str, Any],
                 extra: Optional[Mapping[str, Any]]):
        if type(q) is not ndarray or type(k) is not ndarray or type(v) is not ndarray:
            q, k, v = as_array("q", q), as_array("k", k), as_array("v", v)
        self.q, self.k, self.v, self.options = q, k, v, options
        self.tensors = as_tensors(tensors) if tensors else NOTHING
        self.extra = as_tensors(extra, known=None) if extra else NOTHING
        self.key = (q.shape, q.strides, q.dtype, k.shape, k.strides, k.dtype, v.shape,
                    v.strides, v.dtype, options,
                    tuple((name, array.shape) for name, array in self.tensors.items())
                    if tensors else None)

    def plan(self, context: Any, backward: bool = False) -> Plan:
        """Of this call, on this context, with all inputs filled in."""
        key = (self.key, backward)
        try:
            plan = context.made.get(key)
        except TypeError:  # an option that has no hash
            check_options(Options(*self.options))
            raise
        if plan is None:
            plan = context.make(key, self.make_plan(backward))
        args = plan.args
        args.q, args.k, args.v = q, k, v = address(self.q), address(self.k), address(self.v)
        if q & plan.q_align or (k | v) & plan.kv_align:
            raise Error("q, k or v is not aligned to its elements, expected a copy that is")
        if self.tensors or self.extra or plan.params:
            plan.set_optional({name: address(array) for name, array in self.tensors.items()},
                              {name: (address(array), array.shape)
                               for name, array in self.extra.items()})
        return plan

    def make_plan(self, backward: bool) -> Callable[[Any], Plan]:
        layouts = [layout_of(name, getattr(self, name)) for name in "qkv"]
        shapes = {name: array.shape for name, array in self.tensors.items()}
        options = Options(*self.options)
        return lambda context: Plan(context, *layouts, options, shapes, backward)


NOTHING: dict = {}


def as_tensors(given: Mapping[str, Any], known: Any = OPTIONAL) -> dict[str, Array]:
    for name in given:
        if known and name not in known:
            raise TypeError(f"there is no argument {name!r}; tensors are {', '.join(known)}")
    return {name: as_numbers(name, value) for name, value in given.items()
            if value is not None}


def attention(q: Array, k: Array, v: Array, *, causal: bool = False,
              window: Optional[tuple[int, int]] = None, offset: Offset = None,
              scale: Optional[float] = None, softcap: float = 0.0, dropout: float = 0.0,
              seed: int = 0, variant: Optional[str] = None,
              extra: Optional[Mapping[str, Any]] = None, return_lse: bool = False,
              **tensors: Unpack[Tensors]) -> Any:
    """Multi-head attention, ``softmax(scale * q k^T + masks) v`` for every head.

    Parameters
    ----------
    q : ndarray, shape (batch, heads, q_len, dim)
        float32, float16 or bfloat16 (of ``ml_dtypes``). Any strides, as long as the last
        axis is contiguous: nothing is copied.
    k : ndarray, shape (batch, k_heads, kv_len, dim)
        k_heads divides heads. k and v may be float16 or bfloat16 beside a float32 q.
    v : ndarray, shape (batch, v_heads, kv_len, v_dim)
    causal : bool
        Row i sees keys up to its position.
    window : (left, right), optional
        Row i sees so many keys before and after its position; negative: no limit.
    offset : int or "end", optional
        The position of query 0 among the keys, or ``"end"``: the last query is at the last
        key. Must be given with `causal` or `window` when q_len and kv_len differ.
    bias : array_like, shape (batch or 1, heads or 1, q_len or 1, kv_len), optional
        Added to the scaled scores; -inf hides a key. Leading axes may be left out.
    visible : array_like of bool, same shapes, optional
        False hides a key.
    gate : array_like, shape (heads,) or (batch, heads, q_len), optional
        Multiplies the output; a row whose gate is 0 is not computed.
    sink : array_like, shape (heads,), optional
        Logit that takes part in the softmax and has no value.
    alibi : array_like, shape (heads,), optional
        Slopes of ALiBi.
    relative : array_like, shape (heads, 2*reach + 1), optional
        Added to the scores by distance, from -reach to reach.
    q_lens, kv_lens : array_like of int, shape (batch,), optional
        Valid lengths. Rows of the result beyond q_lens are 0.
    q_offsets, kv_offsets : array_like of int, shape (sequences + 1,), optional
        A ragged batch: q is (heads, tokens, dim), k and v likewise, and sequence b is
        tokens q_offsets[b] to q_offsets[b + 1].
    page_table : array_like of int, shape (batch, pages of a row), optional
        k and v are (pages, heads, page_len, dim), and key j of row b lies in page
        ``page_table[b, j // page_len]``. Needs kv_lens.
    scale : float, optional
        1/sqrt(dim) by default.
    softcap : float
        Scores become ``softcap * tanh(score / softcap)``; 0: they do not.
    dropout, seed : float, int
        Probability that a weight is dropped, and what decides which.
    variant : str, optional
        How heads work together: ``"talking"``, ``"entmax:alpha=1.5"``, ...
    extra : dict of array_like, optional
        Tensors of the variant by name.
    return_lse : bool
        Also return the log-sum-exp of every row, which `attention_backward` needs.

    Returns
    -------
    out : ndarray, shape (batch, heads, q_len, v_dim), type of q
    lse : ndarray of float32, shape (batch, heads, q_len)
        With `return_lse`.

    Examples
    --------
    >>> import numpy as np, polyhead
    >>> q = k = v = np.ones((1, 2, 4, 16), np.float32)
    >>> polyhead.attention(q, k, v, causal=True).shape
    (1, 2, 4, 16)
    """
    call = Call(q, k, v, (causal, window, offset, scale, softcap, dropout, variant), tensors,
                extra)
    context = take()
    try:
        plan = call.plan(context)
        args = plan.args
        out = empty(plan.out_shape, call.q.dtype)
        lse = empty(plan.sizes.rows, FLOAT) if return_lse else None
        args.out = address(out)
        args.lse = address(lse) if return_lse else None
        args.seed = seed
        status = plan.lib.ph_forward(plan.handle, plan.args_ref)
        if status:
            raise context.error(status)
    finally:
        give(context)
    return (out, lse) if return_lse else out


def attention_backward(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *,
                       dlse: Optional[Array] = None,
                       wanted: Iterable[str] = ("q", "k", "v"), causal: bool = False,
                       window: Optional[tuple[int, int]] = None, offset: Offset = None,
                       scale: Optional[float] = None, softcap: float = 0.0,
                       dropout: float = 0.0, seed: int = 0, variant: Optional[str] = None,
                       extra: Optional[Mapping[str, Any]] = None,
                       **tensors: Unpack[Tensors]) -> dict[str, Array]:
    """Gradients of `attention`.

    Parameters
    ----------
    dout : ndarray, shape of out
        Gradient of the result.
    q, k, v
        As in the forward call, and so are all options.
    out, lse : ndarray
        What ``attention(..., return_lse=True)`` returned.
    dlse : ndarray, shape of lse, optional
        Gradient through the log-sum-exp.
    wanted : iterable of str
        Whose gradients: "q", "k", "v", "bias", "gate", "sink", "relative" or a tensor of
        the variant.

    Returns
    -------
    dict of ndarray
        The gradients by those names, of the shapes of the tensors.
    """
    call = Call(q, k, v, (causal, window, offset, scale, softcap, dropout, variant), tensors,
                extra)
    context = take()
    try:
        plan = call.plan(context, backward=True)
        held = {"dout": as_result("dout", dout, plan.out_shape, call.q.dtype),
                "out": as_result("out", out, plan.out_shape, call.q.dtype),
                "lse": as_result("lse", lse, plan.sizes.rows, FLOAT)}
        args, grads = plan.args, plan.grads
        args.out, args.lse, args.seed = address(held["out"]), address(held["lse"]), seed
        ctypes.memset(plan.grads_ref, 0, ctypes.sizeof(grads))
        grads.dout = address(held["dout"])
        if dlse is not None:
            held["dlse"] = as_result("dlse", dlse, plan.sizes.rows, FLOAT)
            grads.dlse = address(held["dlse"])
        results = {name: empty_gradient(call, plan, name) for name in wanted}
        table = set_gradients(plan, results)
        context.check(plan.lib.ph_backward(plan.handle, plan.args_ref, plan.grads_ref))
        del table
    finally:
        give(context)
    return results


def as_result(name: str, array: Any, shape: tuple, dtype: np.dtype) -> Array:
    """A tensor that the library reads packed: out, lse and their gradients."""
    array = as_array(name, array)
    expect(name, array.shape, shape)
    if array.dtype != dtype:
        raise TypeError(f"{name} is {array.dtype.name}, expected {dtype.name}")
    return np.require(array, None, PACKED)


DIFFERENTIABLE = ("bias", "gate", "sink", "relative")


def empty_gradient(call: Call, plan: Plan, name: str) -> Array:
    if name in ("q", "k", "v"):
        array = getattr(call, name)
        return empty(array.shape, array.dtype)
    for arrays in ({n: a for n, a in call.tensors.items() if n in DIFFERENTIABLE}, call.extra):
        if name in arrays:
            return empty(arrays[name].shape, np.float32)
    known = ["q", "k", "v", *(n for n in DIFFERENTIABLE if n in call.tensors), *call.extra]
    raise Error(f"the gradient of {name!r} is wanted, expected some of {', '.join(known)}")


def set_gradients(plan: Plan, results: Mapping[str, Array]) -> Any:
    """Where gradients go; those of the variant in a table that must live as long."""
    for name, array in results.items():
        if name in ("q", "k", "v", *DIFFERENTIABLE):
            setattr(plan.grads, "d" + name, address(array))
    names = [param.name for param in plan.params]
    if not any(name in results for name in names):
        return None
    table = (ctypes.c_void_p * len(names))(
        *[address(results[name]) if name in results else None for name in names])
    plan.grads.dextra = ctypes.addressof(table)
    return table


# ---- looking inside ----------------------------------------------------------------------

class Look(Paged):
    """What heads attended to, computed when it is read; see `look`.

    Attributes
    ----------
    weights : ndarray, shape (batch, heads, q_len, kv_len)
        All weights: the only attribute of T x T elements.
    col_sum : ndarray, shape (batch, heads, kv_len)
        Weight that each key receives, summed over the rows.
    entropy : ndarray, shape (batch, heads, q_len)
        Of each row, natural logarithm.
    """

    def __init__(self, call: Call, lse: Array, seed: int):
        self._call, self._lse, self._seed = call, lse, seed
        self._rows = lse.shape
        self._kv_len = call.k.shape[-2]
        if "page_table" in call.tensors:
            self._kv_len *= call.tensors["page_table"].shape[1]
        if "q_offsets" in call.tensors:
            offsets = call.tensors.get("kv_offsets", call.tensors["q_offsets"])
            self._kv_len = int(np.diff(offsets).max(initial=0))

    @cached_property
    def weights(self) -> Array:
        return self._fill(weights=empty((*self._rows, self._kv_len), FLOAT))["weights"]

    @cached_property
    def col_sum(self) -> Array:
        if len(self._rows) == 2:
            raise Error("column sums are of a ragged batch, expected a dense one")
        return self._fill(col_sum=empty((*self._rows[:2], self._kv_len), FLOAT))["col_sum"]

    @cached_property
    def entropy(self) -> Array:
        return self._fill(entropy=empty(self._rows, FLOAT))["entropy"]

    def top(self, count: int) -> tuple[Array, Array]:
        """The largest weights of each row, descending, and their keys (-1: no key)."""
        if count < 1:
            raise Error(f"count is {count}, expected 1 or more")
        shape = (*self._rows, count)
        found = self._fill(top_k=count, top_weight=empty(shape, FLOAT),
                           top_index=empty(shape, np.int32))
        return found["top_weight"], found["top_index"]

    def rect(self, batch: int, head: int, rows: tuple[int, int],
             keys: tuple[int, int]) -> Array:
        """Weights of one head: rows from rows[0] up to rows[1], keys likewise."""
        shape = (rows[1] - rows[0], keys[1] - keys[0])
        if min(shape) < 0:
            raise Error(f"rows is {rows} and keys {keys}, expected (first, end)")
        return self._fill(rect=empty(shape, FLOAT), rect_batch=batch, rect_head=head,
                          row0=rows[0], rows=shape[0], col0=keys[0], cols=shape[1])["rect"]

    def __repr__(self) -> str:
        return f"Look at {self._rows} rows and {self._kv_len} keys"

    def write_page(self, path: Any, batch: int = 0, words: Optional[Sequence[str]] = None) -> None:
        """Writes the page of `polyhead look` for one row of the batch, one HTML file; words are
        those of the keys, and of the rows where there are as many. Of T x T weights."""
        if len(self._rows) != 3 or not 0 <= batch < self._rows[0]:
            raise Error(f"batch is {batch} of rows {self._rows}, expected one of a dense batch")
        context = take()
        try:
            write_maps(path, context, self.weights[batch], words)
        finally:
            give(context)

    def _repr_html_(self) -> Optional[str]:
        """The page of the first row of the batch, where it is not too large for a notebook."""
        fits = len(self._rows) == 3 and 0 < math.prod(self._rows[1:]) * self._kv_len <= 1 << 20
        return super()._repr_html_() if fits and self._rows[0] else None

    def _fill(self, **wanted: Any) -> dict:
        """Arrays and numbers of a ph_look_at; the arrays come back filled."""
        at = _c.LookAt(**{name: address(value) if isinstance(value, ndarray) else value
                          for name, value in wanted.items()})
        context = take()
        try:
            plan = self._call.plan(context)
            plan.args.lse, plan.args.seed = address(self._lse), self._seed
            plan.look(context, at)
        finally:
            give(context)
        return wanted


def look(q: Array, k: Array, lse: Optional[Array] = None, *, causal: bool = False,
         window: Optional[tuple[int, int]] = None, offset: Offset = None,
         scale: Optional[float] = None, softcap: float = 0.0, dropout: float = 0.0,
         seed: int = 0, variant: Optional[str] = None,
         extra: Optional[Mapping[str, Any]] = None, **tensors: Unpack[Tensors]) -> Look:
    """What the heads of an attention call attend to, without a T x T matrix.

    Parameters
    ----------
    q, k
        As in `attention`, and so are all options.
    lse : ndarray, optional
        What ``attention(..., return_lse=True)`` returned; computed where it is not given.

    Returns
    -------
    Look
        Column sums, entropies, the largest weights of each row, any rectangle of the
        weights, each computed when it is read.

    Examples
    --------
    >>> import numpy as np, polyhead
    >>> q = k = np.ones((1, 1, 2, 8), np.float32)
    >>> polyhead.look(q, k, causal=True).weights.tolist()
    [[[[1.0, 0.0], [0.5, 0.5]]]]
    """
    options = (causal, window, offset, scale, softcap, dropout, variant)
    call = Call(q, k, k, options, tensors, extra)
    if lse is None:
        _, lse = attention(q, k, k, **Options(*options)._asdict(), seed=seed, extra=extra,
                           return_lse=True, **tensors)
    else:
        lse = as_result("lse", lse, call.q.shape[:-1], FLOAT)
    return Look(call, lse, seed)
