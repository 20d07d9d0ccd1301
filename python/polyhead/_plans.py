"""Plans: from the layouts of tensors and options to a ph_plan and the structs of its calls.

All frameworks come through here, with layouts and addresses of their tensors.
"""
from __future__ import annotations

import ctypes
import math
import numbers
from ctypes import byref, c_void_p
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from . import _c
from ._context import Context, Error

F32, F16, BF16 = _c.PH_F32, _c.PH_F16, _c.PH_BF16
DTYPE_OF = {"float32": F32, "float16": F16, "bfloat16": BF16}
BYTES = {F32: 4, F16: 2, BF16: 2}

# Tensors of a call besides q, k and v, in the order in which they are given around.
OPTIONAL = ("bias", "visible", "gate", "sink", "alibi", "relative", "q_lens", "kv_lens",
            "q_offsets", "kv_offsets", "page_table")
INTEGERS = ("q_lens", "kv_lens", "q_offsets", "kv_offsets", "page_table")


class Layout(NamedTuple):
    """Of q, k or v: lengths of its axes, distances along them in elements, type."""
    shape: tuple
    strides: tuple
    dtype: int


class Options(NamedTuple):
    """What a call computes, besides its tensors."""
    causal: bool = False
    window: Optional[tuple] = None
    offset: Any = None
    scale: Optional[float] = None
    softcap: float = 0.0
    dropout: float = 0.0
    variant: Optional[str] = None


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real)


def is_int(value: Any) -> bool:
    """Whether an int of C holds it; ctypes would cut off what is too much."""
    return isinstance(value, numbers.Integral) and -2**31 <= value < 2**31


def check_options(o: Options) -> None:
    """What a field of C would take for something else, or refuse without a sentence."""
    wanted = {"scale": is_number, "softcap": is_number, "dropout": is_number,
              "offset": lambda value: value == "end" or is_int(value),
              "variant": lambda value: isinstance(value, str) and "\0" not in value,
              "window": lambda value: isinstance(value, tuple) and len(value) == 2
              and all(map(is_int, value))}
    expected = {"offset": "the position of query 0, or 'end'", "variant": "a name",
                "window": "(left, right), where a negative number is no limit"}
    for name, fits in wanted.items():
        value = getattr(o, name)
        if value is not None and not fits(value):
            raise Error(f"{name} is {value!r}, expected {expected.get(name, 'a number')}")
    if o.dropout is None:
        raise Error("dropout is None, expected a number")


def dtype_code(name: str, tensor: str) -> int:
    if name not in DTYPE_OF:
        raise TypeError(f"{tensor} is {name}, expected float32, float16 or bfloat16")
    return DTYPE_OF[name]


def packed(shape: tuple) -> tuple:
    """Strides of a C-contiguous tensor, in elements; none of them 0."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def strides_of(name: str, layout: Layout) -> Any:
    """ph_strides of a tensor of rank 4, or of rank 3 in a ragged batch."""
    # Strides that nothing is reached by may be anything: those of packed tensors then.
    plain, empty = packed(layout.shape), 0 in layout.shape
    steps = [plain[axis] if empty or length == 1 else layout.strides[axis]
             for axis, length in enumerate(layout.shape)]
    if steps[-1] != 1:
        raise Error(f"the last axis of {name} has stride {steps[-1]}, expected contiguous "
                    f"elements: make a copy of it")
    if math.prod(layout.shape[:-1]) > 1 and not any(steps[:-1]):
        raise Error(f"{name} is one row repeated along every axis: make a copy of it")
    leading = steps[:-1] if len(steps) == 4 else [0, *steps[:-1]]
    return _c.Strides(*leading)


def expect(name: str, shape: tuple, *allowed: tuple) -> None:
    if tuple(shape) not in allowed:
        wanted = " or ".join(str(entry) for entry in allowed)
        raise Error(f"{name} has shape {tuple(shape)}, expected {wanted}")


def broadcast_of(name: str, shape: tuple, full: tuple) -> Any:
    """ph_broadcast of bias or visible: leading axes are 1 or whole, the last is whole."""
    fits = len(shape) == 4 and shape[3] == full[3] and all(
        have in (1, want) for have, want in zip(shape[:3], full))
    if not fits:
        raise Error(f"{name} has shape {tuple(shape)}, expected {full}, where the first "
                    f"three may be 1")
    return _c.Broadcast(*shape[:3])


class Sizes(NamedTuple):
    """Of one call, read off its tensors."""
    batch: int
    heads: int
    q_len: int
    kv_len: int
    dim: int
    v_dim: int
    ragged: bool
    rows: tuple  # leading axes of out and lse


def rank_of(name: str, layout: Layout, rank: int, axes: str) -> None:
    if len(layout.shape) != rank:
        raise Error(f"{name} has shape {layout.shape}, expected {rank} axes: {axes}")


def sizes_of(q: Layout, k: Layout, v: Layout, shapes: Mapping[str, tuple]) -> Sizes:
    """Checks what must agree between q, k and v."""
    if "q_offsets" in shapes:
        return ragged_sizes(q, k, v, shapes)
    axes = "(batch, heads, len, dim)"
    for name, layout in (("q", q), ("k", k), ("v", v)):
        rank_of(name, layout, 4, axes)
    batch, heads, q_len, dim = q.shape
    if "page_table" in shapes:
        pages, _, page_len, _ = k.shape
        expect("k", k.shape, (pages, k.shape[1], page_len, dim))
        expect("v", v.shape, (pages, v.shape[1], page_len, v.shape[3]))
        table = shapes["page_table"]
        if len(table) != 2 or table[0] != batch:
            raise Error(f"page_table has shape {table}, expected ({batch}, pages of a row)")
        kv_len = table[1] * page_len
    else:
        kv_len = k.shape[2]
        expect("k", k.shape, (batch, k.shape[1], kv_len, dim))
        expect("v", v.shape, (batch, v.shape[1], kv_len, v.shape[3]))
    return Sizes(batch, heads, q_len, kv_len, dim, v.shape[3], False, (batch, heads, q_len))


def ragged_sizes(q: Layout, k: Layout, v: Layout, shapes: Mapping[str, tuple]) -> Sizes:
    for name, layout in (("q", q), ("k", k), ("v", v)):
        rank_of(name, layout, 3, "(heads, tokens of all sequences, dim) with q_offsets")
    for name in ("bias", "visible", "page_table", "q_lens", "kv_lens"):
        if name in shapes:
            raise Error(f"{name} is given beside q_offsets, expected a ragged batch without")
    heads, total, dim = q.shape
    expect("k", k.shape, (k.shape[0], k.shape[1], dim))
    expect("v", v.shape, (v.shape[0], k.shape[1], v.shape[2]))
    if len(shapes["q_offsets"]) != 1 or shapes["q_offsets"][0] < 1:
        raise Error(f"q_offsets has shape {shapes['q_offsets']}, expected (sequences + 1,)")
    batch = shapes["q_offsets"][0] - 1
    if "kv_offsets" in shapes:
        expect("kv_offsets", shapes["kv_offsets"], (batch + 1,))
    elif k.shape[1] != total:
        raise Error(f"k has {k.shape[1]} tokens and q {total}, expected kv_offsets")
    return Sizes(batch, heads, 0, 0, dim, v.shape[2], True, (heads, total))


def add_mask(attn: Any, options: Options, sizes: Sizes) -> None:
    if options.causal and options.window is not None:
        raise Error("causal and window are both given, expected one of them: a causal "
                    "window is window=(left, 0)")
    if options.causal:
        attn.mask = _c.PH_MASK_CAUSAL
    elif options.window is not None:
        attn.mask = _c.PH_MASK_BAND
        attn.band_left, attn.band_right = options.window
    if attn.mask and options.offset is None and sizes.q_len != sizes.kv_len:
        raise Error(f"q has {sizes.q_len} rows and k {sizes.kv_len}, expected offset: the "
                    f"position of query 0 among the keys, or 'end'")
    if options.offset == "end":
        attn.anchor = _c.PH_ANCHOR_END
    elif options.offset is not None:
        attn.anchor, attn.q_offset = _c.PH_ANCHOR_OFFSET, options.offset


def add_shapes(attn: Any, sizes: Sizes, shapes: Mapping[str, tuple]) -> None:
    """Optional tensors: their shapes are checked, and those that the plan must know set."""
    full = (sizes.batch, sizes.heads, sizes.q_len, sizes.kv_len)
    for name in ("bias", "visible"):
        if name in shapes:
            setattr(attn, name, broadcast_of(name, shapes[name], full))
    for name in ("sink", "alibi"):
        if name in shapes:
            expect(name, shapes[name], (sizes.heads,))
    for name in ("q_lens", "kv_lens"):
        if name in shapes:
            expect(name, shapes[name], (sizes.batch,))
    if "gate" in shapes:
        expect("gate", shapes["gate"], (sizes.heads,), sizes.rows)
        attn.gate = _c.PH_GATE_HEAD if len(shapes["gate"]) == 1 else _c.PH_GATE_ROW
    if "relative" in shapes:
        shape = shapes["relative"]
        if len(shape) != 2 or shape[0] != sizes.heads or shape[1] % 2 == 0 or shape[1] < 3:
            raise Error(f"relative has shape {shape}, expected ({sizes.heads}, 2*reach + 1)")
        attn.reach = shape[1] // 2


def attn_of(q: Layout, k: Layout, v: Layout, options: Options, shapes: Mapping[str, tuple],
            sizes: Sizes) -> Any:
    check_options(options)
    if options.scale == 0:
        raise Error("scale is 0, expected another number or None for 1/sqrt(dim)")
    # 0 would mean "like q" to the library.
    for name, shape in (("q", q.shape), ("k", k.shape), ("v", v.shape)):
        if shape[-3] == 0:
            raise Error(f"{name} has shape {shape}, expected at least one head")
        if not all(map(is_int, shape)):
            raise Error(f"{name} has shape {shape}, expected fewer than 2**31 along each axis")
    if sizes.v_dim == 0 != sizes.dim:
        raise Error(f"v has shape {v.shape}, expected rows that are not empty")
    if k.dtype != v.dtype:
        raise Error("k and v have different types, expected one")
    attn = _c.Attn(batch=sizes.batch, q_heads=sizes.heads, k_heads=k.shape[-3],
                   v_heads=v.shape[-3], q_len=sizes.q_len, kv_len=sizes.kv_len,
                   qk_dim=sizes.dim, v_dim=sizes.v_dim, dtype=q.dtype,
                   kv_dtype=0 if k.dtype == q.dtype else k.dtype,
                   scale=options.scale or 0, softcap=options.softcap or 0,
                   dropout=options.dropout,
                   variant=options.variant.encode() if options.variant else None)
    if k.dtype == F32 != q.dtype:
        raise Error("k and v are float32 and q is not, expected one type for all, or "
                    "smaller k and v beside q in float32")
    attn.q, attn.k, attn.v = strides_of("q", q), strides_of("k", k), strides_of("v", v)
    if sizes.ragged:
        attn.ragged = _c.PH_RAGGED_ALL
        attn.q_total, attn.kv_total = q.shape[1], k.shape[1]
    if "page_table" in shapes:
        attn.page_len, attn.pages = k.shape[2], k.shape[0]
    add_mask(attn, options, sizes)
    add_shapes(attn, sizes, shapes)
    return attn


class Plan:
    """A ph_plan with the structs of its calls, whose fields are set anew for each."""

    def __init__(self, context: Context, q: Layout, k: Layout, v: Layout, options: Options,
                 shapes: Mapping[str, tuple], backward: bool = False,
                 out_strides: Optional[tuple] = None, gradients: Sequence[Layout] = ()):
        """gradients are the layouts of those of q, k and v; none: packed."""
        self.lib = context.lib
        self.sizes = sizes_of(q, k, v, shapes)
        self.q_align, self.kv_align = BYTES[q.dtype] - 1, BYTES[k.dtype] - 1
        self.attn = attn = attn_of(q, k, v, options, shapes, self.sizes)
        self.out_shape = (*self.sizes.rows, self.sizes.v_dim)
        self.out_strides = out_strides or packed(self.out_shape)
        self.row_strides = packed(self.sizes.rows)
        if out_strides:
            attn.out = _c.Strides(*out_strides[:3])
        if backward:
            attn.backward = 1
            for name, layout in zip(("dq", "dk", "dv"), gradients or [
                    x._replace(strides=packed(x.shape)) for x in (q, k, v)]):
                setattr(attn, name, strides_of(name, layout))
        self.handle = c_void_p()
        context.check(self.lib.ph_plan_create(byref(self.handle), context.handle,
                                              byref(attn)))
        self.params = list_params(self.lib.ph_plan_extra, self.handle)
        self.args, self.grads = _c.Args(), _c.Grads()
        self.args_ref, self.grads_ref = byref(self.args), byref(self.grads)

    def free(self) -> None:
        self.lib.ph_plan_free(self.handle)

    def look(self, context: Context, at: Any) -> None:
        """Fills the arrays of a ph_look_at; args has q, k and lse."""
        self.args.look = ctypes.addressof(at)
        try:
            context.check(self.lib.ph_look(self.handle, self.args_ref))
        finally:
            self.args.look = None

    def set_optional(self, addresses: Mapping[str, int], extra: Mapping[str, tuple]) -> None:
        """Optional tensors by name; those of the variant as (address, shape)."""
        for name, address in addresses.items():
            setattr(self.args, name, address)
        table = extra_table(self.params, extra)
        self.extra = table  # alive as long as args points to it
        self.args.extra = ctypes.addressof(table) if table is not None else None


class Param(NamedTuple):
    """A tensor of a variant or a layer."""
    name: str
    shape: tuple
    optional: bool
    size: int


def list_params(get: Any, handle: Any) -> list[Param]:
    params = []
    while found := get(handle, len(params)):
        entry = found.contents
        shape = tuple(entry.dims[:entry.rank])
        params.append(Param(entry.name.decode(), shape, bool(entry.optional),
                            math.prod(shape)))
    return params


def extra_table(params: list[Param], given: Mapping[str, tuple]) -> Any:
    """The array of pointers that ph_args.extra is; None where there is nothing."""
    names = [param.name for param in params]
    for name in given:
        if name not in names:
            raise Error(f"extra has {name!r}, expected "
                        + (", ".join(names) if names else "nothing: the variant takes none"))
    if not params:
        return None
    for param in params:
        if param.name in given:
            expect(param.name, given[param.name][1], param.shape)
        elif not param.optional:
            raise Error(f"extra lacks {param.name!r} of shape {param.shape}")
    return (c_void_p * len(params))(*[given[name][0] if name in given else None
                                      for name in names])
