"""Attention on PyTorch tensors: `scaled_dot_product_attention` and its operators.

Two ways lead to the library: a plain call or an `autograd.Function` where a tensor is just
a tensor, and operators of `torch.library` where a compiler, a mode or a transform looks on.
"""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from . import _c
from ._context import Error, give, take, take_gpu
from ._plans import BF16, F16, F32, Layout, Options, Plan

DTYPES = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}

# Tensors of the operators besides q, k and v, in this order.
OPTIONAL = ("bias", "visible", "sink", "gate", "alibi", "q_lens", "kv_lens")
DIFFERENTIABLE = ("bias", "sink", "gate")
TYPES = {"visible": torch.uint8, "q_lens": torch.int32, "kv_lens": torch.int32}
NONE = (None,) * len(OPTIONAL)
PLAIN = Options()
CPU = torch.device("cpu")


# ---- calls of the library --------------------------------------------------------------

def layout_of(name: str, tensor: Tensor) -> Layout:
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name} is {tensor.dtype}, expected float32, float16 or bfloat16")
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), DTYPES[tensor.dtype])


def out_strides(batch: int, heads: int, rows: int, dim: int) -> tuple:
    """Of (batch, heads, rows, dim) in memory (batch, rows, heads, dim): what follows
    attention reads a token's heads side by side."""
    return (rows * heads * dim, dim, heads * dim, 1)


def key_of(q: Tensor, k: Tensor, v: Tensor, optional: Sequence, options: Options) -> tuple:
    """What decides on a plan."""
    shapes = None if optional is NONE else tuple(
        (name, tuple(tensor.shape)) for name, tensor in zip(OPTIONAL, optional)
        if tensor is not None)
    return (q.shape, q.stride(), q.dtype, k.shape, k.stride(), k.dtype, v.shape, v.stride(),
            v.dtype, options, shapes)


def context_of(q: Tensor) -> Any:
    return take_gpu(q.device.index) if q.is_cuda else take(torch.get_num_threads())


def plan_of(context: Any, key: tuple, q: Tensor, k: Tensor, v: Tensor, optional: Sequence,
            extra: Sequence[Tensor], backward: bool) -> Plan:
    """With everything filled in that the forward call reads."""
    plan = context.made.get((key, backward))
    if plan is None:
        plan = context.make((key, backward), lambda made: new_plan(made, key, q, k, v, backward))
    args = plan.args
    args.q, args.k, args.v = a, b, c = q.data_ptr(), k.data_ptr(), v.data_ptr()
    if a & plan.q_align or (b | c) & plan.kv_align:
        raise Error("q, k or v is not aligned to its elements, expected a copy that is")
    if not (a and b and c or q.is_cuda):  # empty, or without memory
        for name, x in (("q", q), ("k", k), ("v", v)):
            check_plain(name, x)
    if optional is not NONE or plan.params or extra:
        set_optional(plan, optional, extra, q.device)
    return plan


def new_plan(context: Any, key: tuple, q: Tensor, k: Tensor, v: Tensor,
             backward: bool) -> Plan:
    *_, options, shapes = key
    layouts = [layout_of(name, x) for name, x in (("q", q), ("k", k), ("v", v))]
    steps = out_strides(*q.shape[:3], v.shape[3]) if q.dim() == v.dim() == 4 else None
    gradients = [layout_of(name, gradient_like(x)) for name, x in (("q", q), ("k", k), ("v", v))]
    return Plan(context, *layouts, options, dict(shapes or ()), backward, steps, gradients)


def set_optional(plan: Plan, optional: Sequence, extra: Sequence[Tensor],
                 device: torch.device) -> None:
    for name, tensor in (*zip(OPTIONAL, optional), *(("extra", x) for x in extra)):
        check_small(name, tensor, device)
    if len(extra) not in (len(plan.params), sum(not p.optional for p in plan.params)):
        raise Error(f"the variant takes {', '.join(p.name for p in plan.params) or 'nothing'} "
                    f"as extra, {len(extra)} tensors are given")
    plan.set_optional({name: tensor.data_ptr() for name, tensor in zip(OPTIONAL, optional)
                       if tensor is not None},
                      {param.name: (tensor.data_ptr(), tuple(tensor.shape))
                       for param, tensor in zip(plan.params, extra)})


def gradient_like(x: Tensor) -> Tensor:
    """Memory for the gradient of x, in its order of axes: where x is a view of a projection
    that of heads side by side, so that the view's backward pass copies nothing."""
    made = torch.empty_like(x)
    return made if made.dim() and made.stride(-1) == 1 else torch.empty_like(
        x, memory_format=torch.contiguous_format)


def check_small(name: str, tensor: Optional[Tensor], device: torch.device = CPU) -> None:
    """The operators may be called by anyone."""
    if tensor is None:
        return
    wanted = TYPES.get(name, torch.float32)
    if tensor.device != device or tensor.dtype != wanted or not tensor.is_contiguous() \
            or tensor.data_ptr() % tensor.element_size():
        raise Error(f"{name} is {tensor.dtype} on {tensor.device}, expected contiguous and "
                    f"aligned {wanted} on {name_of(device)}")


def forward(q: Tensor, k: Tensor, v: Tensor, optional: Sequence, extra: Sequence[Tensor],
            seed: Optional[Tensor], key: tuple,
            want_lse: bool) -> tuple[Tensor, Optional[Tensor]]:
    """key is of these tensors: `key_of`."""
    context = context_of(q)
    try:
        plan = plan_of(context, key, q, k, v, optional, extra, False)
        # empty_strided takes half the time of empty.
        out = q.new_empty_strided(plan.out_shape, plan.out_strides)
        lse = q.new_empty_strided(plan.sizes.rows, plan.row_strides, dtype=torch.float32) \
            if want_lse else None
        args = plan.args
        if q.is_cuda:
            args.stream = torch.cuda.current_stream(q.device).cuda_stream
        args.out = out.data_ptr()
        args.lse = lse.data_ptr() if want_lse else None
        args.seed = 0 if seed is None else int(seed)
        status = plan.lib.ph_forward(plan.handle, plan.args_ref)
        if status:
            raise context.error(status)
    finally:
        give(context)
    return out, lse


def as_laid_out(dout: Tensor) -> Tensor:
    """A gradient in the memory order of out; often it is already."""
    strides = out_strides(*dout.shape)
    if dout.stride() == strides:
        return dout
    return dout.new_empty_strided(dout.shape, strides).copy_(dout)


def backward(dout: Optional[Tensor], dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor,
             out: Tensor, lse: Tensor, optional: Sequence, extra: Sequence[Tensor],
             seed: Optional[Tensor], key: tuple, wanted: Sequence[bool]) -> list:
    """Gradients of q, k, v, bias, sink, gate and extra, None where none is wanted."""
    context = context_of(q)
    try:
        plan = plan_of(context, key, q, k, v, optional, extra, True)
        args, grads = plan.args, plan.grads
        if q.is_cuda:
            args.stream = torch.cuda.current_stream(q.device).cuda_stream
        dout = torch.zeros_like(out) if dout is None else as_laid_out(dout.resolve_neg())
        dlse = None if dlse is None else dlse.contiguous().resolve_neg()
        args.out, args.lse = out.data_ptr(), lse.data_ptr()
        args.seed = 0 if seed is None else int(seed)
        grads.dout = dout.data_ptr()
        grads.dlse = None if dlse is None else dlse.data_ptr()
        dq = gradient_like(q) if wanted[0] else None
        dk = gradient_like(k) if wanted[1] else None
        dv = gradient_like(v) if wanted[2] else None
        grads.dq = None if dq is None else dq.data_ptr()
        grads.dk = None if dk is None else dk.data_ptr()
        grads.dv = None if dv is None else dv.data_ptr()
        results = [dq, dk, dv]
        if len(wanted) > 3:
            results += small_gradients(grads, optional, extra, wanted[3:])
        status = plan.lib.ph_backward(plan.handle, plan.args_ref, plan.grads_ref)
        if len(wanted) > 3:
            ctypes.memset(plan.grads_ref, 0, ctypes.sizeof(grads))
        if status:
            raise context.error(status)
    finally:
        give(context)
    return results


def small_gradients(grads: Any, optional: Sequence, extra: Sequence[Tensor],
                    wanted: Sequence[bool]) -> list:
    """Of the tensors of DIFFERENTIABLE and of extra."""
    inputs = differentiable(None, None, None, optional, extra)[3:]
    results = [torch.empty_like(x) if one else None for x, one in zip(inputs, wanted)]
    for name, result in zip(DIFFERENTIABLE, results):
        if result is not None:
            setattr(grads, "d" + name, result.data_ptr())
    own = results[len(DIFFERENTIABLE):]
    if own:
        grads.table = (ctypes.c_void_p * len(own))(*[None if x is None else x.data_ptr()
                                                     for x in own])
        grads.dextra = ctypes.addressof(grads.table)
    return results


def differentiable(q: Tensor, k: Tensor, v: Tensor, optional: Sequence,
                   extra: Sequence[Tensor]) -> list:
    by_name = dict(zip(OPTIONAL, optional))
    return [q, k, v, *(by_name[name] for name in DIFFERENTIABLE), *extra]


def spread(found: Sequence[Tensor], wanted: Sequence[bool]) -> list:
    """The gradients in the order of the inputs, None where none was wanted."""
    following = iter(found)
    return [next(following) if one else None for one in wanted]


# ---- autograd ----------------------------------------------------------------------------

class Given(NamedTuple):
    """What a call has besides q, k and v. The tensors that need a gradient go through
    autograd as well: `learned` are their places behind q, k and v in `differentiable`."""
    optional: Sequence
    extra: Sequence[Tensor]
    seed: Optional[Tensor]
    key: tuple
    learned: Sequence[int]
    return_lse: bool


def needing_gradients(optional: Sequence, extra: Sequence[Tensor]) -> list[int]:
    return [i for i, x in enumerate(differentiable(None, None, None, optional, extra)[3:])
            if x is not None and x.requires_grad]


class Attention(torch.autograd.Function):
    """The short way through autograd: half the time of an operator's."""

    @staticmethod
    def forward(ctx, given, q, k, v, *learned):
        out, lse = forward(q, k, v, given.optional, given.extra, given.seed, given.key, True)
        ctx.save_for_backward(q, k, v, out, lse, *learned)
        ctx.given = given
        if not given.return_lse:  # one output less takes a tenth off a small call
            return out
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse=None):
        given = ctx.given
        wanted = ctx.needs_input_grad[1:4]
        run_it = Gradients.apply if torch.is_grad_enabled() else gradients
        if not given.learned:
            return (None, *run_it(given, wanted, dout, dlse, *ctx.saved_tensors))
        count = len(DIFFERENTIABLE) + len(given.extra)
        wanted += tuple(i in given.learned for i in range(count))
        found = run_it(given, wanted, dout, dlse, *ctx.saved_tensors[:5])
        return (None, *found[:3], *[found[3 + i] for i in given.learned])


def gradients(given: Given, wanted, dout, dlse, q, k, v, out, lse) -> tuple:
    return tuple(backward(dout, dlse, q, k, v, out, lse, given.optional, given.extra,
                          given.seed, given.key, wanted))


def refuse_twice(ctx, *_):
    """Backward of what is a gradient already."""
    raise Error("attention is differentiated twice, expected once: polyhead has no second "
                "derivatives")


class Gradients(torch.autograd.Function):
    """Gradients that are part of a graph: whoever differentiates them is told, and does
    not get a constant."""

    @staticmethod
    def forward(ctx, given, wanted, *tensors):
        return gradients(given, wanted, *tensors)

    backward = staticmethod(refuse_twice)


# Options as an operator takes them. No list of numbers: autograd would take an empty one for
# tensors.
SCHEMA = ("bool causal, int? left, int? right, int? offset, bool at_end, float? scale, "
          "float softcap, float dropout, str variant")


def flat(o: Options) -> tuple:
    at_end = o.offset == "end"
    return (o.causal, *(o.window or (None, None)), None if at_end else o.offset, at_end,
            o.scale, o.softcap, o.dropout, o.variant or "")


def unflat(causal, left, right, offset, at_end, scale, softcap, dropout, variant) -> Options:
    return Options(causal, None if left is None else (left, right),
                   "end" if at_end else offset, scale, softcap, dropout, variant or None)


@torch.library.custom_op("polyhead::attention", mutates_args=(), schema=(
        "(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? visible, Tensor? sink, "
        "Tensor? gate, Tensor? alibi, Tensor? q_lens, Tensor? kv_lens, Tensor? seed, "
        f"Tensor[] extra, {SCHEMA}) -> (Tensor, Tensor)"))
def attention_op(q, k, v, bias, visible, sink, gate, alibi, q_lens, kv_lens, seed, extra,
                 *options):
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_plain(name, x)
    optional = (bias, visible, sink, gate, alibi, q_lens, kv_lens)
    return forward(q, k, v, optional, extra, seed,
                   key_of(q, k, v, optional, unflat(*options)), True)


@attention_op.register_fake
def _(q, k, v, bias, visible, sink, gate, alibi, q_lens, kv_lens, seed, extra, *options):
    if not q.dim() == k.dim() == v.dim() == 4:
        raise Error(f"q, k and v have {q.dim()}, {k.dim()} and {v.dim()} axes, expected 4")
    batch, heads, rows, _ = q.shape
    out = q.new_empty_strided((batch, heads, rows, v.shape[3]),
                              out_strides(batch, heads, rows, v.shape[3]))
    return out, q.new_empty((batch, heads, rows), dtype=torch.float32)


@torch.library.custom_op("polyhead::attention_backward", mutates_args=(), schema=(
        "(Tensor? dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
        "Tensor? bias, Tensor? visible, Tensor? sink, Tensor? gate, Tensor? alibi, "
        "Tensor? q_lens, Tensor? kv_lens, Tensor? seed, Tensor[] extra, bool[] wanted, "
        f"{SCHEMA}) -> Tensor[]"))
def backward_op(dout, dlse, q, k, v, out, lse, bias, visible, sink, gate, alibi, q_lens,
                kv_lens, seed, extra, wanted, *options):
    for name, x in (("q", q), ("k", k), ("v", v), ("out", out), ("lse", lse)):
        check_plain(name, x)
    for name, x, like in (("out", out, (*q.shape[:3], v.shape[-1])), ("lse", lse, q.shape[:3]),
                          ("dout", dout, out.shape), ("dlse", dlse, lse.shape)):
        check_result(name, x, like, torch.float32 if "lse" in name else q.dtype)
    out, lse = as_laid_out(out), lse.contiguous()
    optional = (bias, visible, sink, gate, alibi, q_lens, kv_lens)
    found = backward(dout, dlse, q, k, v, out, lse, optional, extra, seed,
                     key_of(q, k, v, optional, unflat(*options)), wanted)
    return [x for x in found if x is not None]


def check_result(name: str, x: Optional[Tensor], shape: tuple, dtype: torch.dtype) -> None:
    if x is None:
        return
    check_plain(name, x)
    if tuple(x.shape) != tuple(shape) or x.dtype != dtype:
        raise Error(f"{name} has shape {tuple(x.shape)} of {x.dtype}, expected "
                    f"{tuple(shape)} of {dtype}")


@backward_op.register_fake
def _(dout, dlse, q, k, v, out, lse, bias, visible, sink, gate, alibi, q_lens, kv_lens,
      seed, extra, wanted, *options):
    optional = (bias, visible, sink, gate, alibi, q_lens, kv_lens)
    return [gradient_like(x) for x, one
            in zip(differentiable(q, k, v, optional, extra), wanted) if one]


def save(ctx, inputs, output):
    q, k, v, *optional, seed, extra = inputs[:12]
    ctx.save_for_backward(q, k, v, *output, *optional, seed, *extra)
    ctx.options = inputs[12:]
    ctx.set_materialize_grads(False)


def backward_of_op(ctx, dout, dlse):
    q, k, v, out, lse, *rest = ctx.saved_tensors
    optional, seed, extra = rest[:len(OPTIONAL)], rest[len(OPTIONAL)], rest[len(OPTIONAL) + 1:]
    need = ctx.needs_input_grad
    of_extra = need[11] if isinstance(need[11], (list, tuple)) else [need[11]] * len(extra)
    wanted = [need[0], need[1], need[2], need[3], need[5], need[6], *of_extra]
    found = torch.ops.polyhead.attention_backward(dout, dlse, q, k, v, out, lse, *optional,
                                                  seed, extra, wanted, *ctx.options)
    dq, dk, dv, dbias, dsink, dgate, *dextra = spread(found, wanted)
    return dq, dk, dv, dbias, None, dsink, dgate, None, None, None, None, dextra, \
        *[None] * len(ctx.options)


attention_op.register_autograd(backward_of_op, setup_context=save)
backward_op.register_autograd(refuse_twice)


def is_watched() -> bool:
    """Whether a compiler, a mode or a transform must see an operator."""
    return (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
            or is_transformed())


def is_transformed() -> bool:
    """Whether a transform of torch.func or forward-mode derivatives look on."""
    return (torch._C._functorch.peek_interpreter_stack() is not None
            or forward_ad._current_level >= 0)


def run(q: Tensor, k: Tensor, v: Tensor, optional: Sequence = NONE,
        extra: Sequence[Tensor] = (), seed: Optional[Tensor] = None,
        options: Options = PLAIN, return_lse: bool = False) -> Any:
    """Attention by the shortest way that fits."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if is_watched() or not type(q) is type(k) is type(v) is Tensor:
        if is_transformed() and not torch.compiler.is_compiling():
            from ._torch_func import Transformed  # which is made of what is here
            out, lse = Transformed.apply(tuple(options), q, k, v, *optional, seed, *extra)
            return (out, lse) if return_lse else out
        out, lse = torch.ops.polyhead.attention(q, k, v, *optional, seed, list(extra),
                                                *flat(options))
        return (out, lse) if return_lse else out
    if q.is_neg() or k.is_neg() or v.is_neg():  # memory holds the negated values
        q, k, v = q.resolve_neg(), k.resolve_neg(), v.resolve_neg()
    if optional is not NONE:
        optional = tuple(x if x is None else x.resolve_neg() for x in optional)
    if extra:
        extra = [x.resolve_neg() if isinstance(x, Tensor) else x for x in extra]
    key = key_of(q, k, v, optional, options)
    learned = () if optional is NONE and not extra else needing_gradients(optional, extra)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad
                                    or learned):
        given = Given(optional, extra, seed, key, learned, return_lse)
        if not learned:
            return Attention.apply(given, q, k, v)
        through = differentiable(q, k, v, optional, extra)
        return Attention.apply(given, q, k, v, *[through[3 + i] for i in learned])
    out, lse = forward(q, k, v, optional, extra, seed, key, return_lse)
    return (out, lse) if return_lse else out


# ---- scaled_dot_product_attention --------------------------------------------------------

def as_four(x: Tensor) -> Tensor:
    """(batch, heads, len, dim) of a tensor with fewer or more leading axes."""
    if x.dim() == 4:
        return x
    if x.dim() < 2:
        raise Error(f"a tensor has shape {tuple(x.shape)}, expected (..., len, dim)")
    return x[(None,) * (4 - x.dim())].transpose(0, 1) if x.dim() < 4 else x.flatten(0, -4)


def unbroadcast(mask: Tensor, keys: int) -> Tensor:
    """A mask with four axes, leading ones that only repeat as 1, packed."""
    mask = mask[(None,) * (4 - mask.dim())] if mask.dim() < 4 else mask.flatten(0, -4)
    if mask.shape[3] != keys:
        mask = mask.expand(*mask.shape[:3], keys)
    for axis in range(3):
        if mask.shape[axis] > 1 and mask.stride(axis) == 0:
            mask = mask.narrow(axis, 0, 1)
    return mask.contiguous()


def small(name: str, x: Any, dtype: torch.dtype,
          device: torch.device = CPU) -> Optional[Tensor]:
    """A small tensor as the library reads it."""
    if x is None:
        return None
    x = x if isinstance(x, Tensor) else torch.as_tensor(x, device=device)
    check_plain(name, x, device)
    if x.is_complex():
        raise TypeError(f"{name} is {x.dtype}, expected real numbers")
    return x.to(dtype).contiguous()


def check_tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}, expected a torch.Tensor")


def name_of(device: torch.device) -> str:
    return "the CPU" if device == CPU else str(device)


def check_constant(name: str, x: Any) -> None:
    """Of what has no gradient here: better a sentence than a parameter that never learns."""
    if isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled():
        raise Error(f"{name} needs a gradient, and there is none of it: expected a tensor "
                    f"that needs none (detach it)")


def check_plain(name: str, x: Any, device: torch.device = CPU) -> None:
    """Of a tensor whose address is about to be taken."""
    check_tensor(name, x)
    if x.device != device:
        raise Error(f"{name} is on {x.device}, expected {name_of(device)}")
    if x.layout is not torch.strided:
        raise Error(f"{name} is not strided, expected plain memory")


def refusal(*tensors: Tensor) -> Optional[str]:
    """Why the library cannot compute on these tensors, or None."""
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(f"a tensor is a {type(x).__name__}, expected a torch.Tensor")
        if not x.is_cpu:
            return f"a tensor is on {x.device}, expected the CPU"
        if x.dtype not in DTYPES:
            return f"a tensor is {x.dtype}, expected float32, float16 or bfloat16"
        if x.layout is not torch.strided:
            return "a tensor is not strided, expected plain memory"
    return None


def on_one_gpu(*tensors: Tensor) -> bool:
    """Whether the library may be able to compute on these tensors where they are."""
    return all(type(x) is Tensor and x.is_cuda and x.device == tensors[0].device
               and x.dtype in DTYPES and x.layout is torch.strided for x in tensors)


def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
        enable_gqa: bool = False, *, window: Optional[tuple[int, int]] = None,
        offset: Any = None, softcap: float = 0.0, sink: Any = None, gate: Any = None,
        alibi: Any = None, q_lens: Any = None, kv_lens: Any = None,
        variant: Optional[str] = None, extra: Sequence[Tensor] = (),
        return_lse: bool = False) -> Any:
    """`torch.nn.functional.scaled_dot_product_attention`, and more.

    Parameters
    ----------
    query, key, value : Tensor, shape (..., heads, len, dim)
        float32, float16 or bfloat16 on the CPU, any strides. With other tensors, and
        nothing but the arguments of PyTorch, PyTorch's function is called; with more than
        those a GPU of the library's (H100, H200) computes where the tensors are.
    attn_mask : Tensor, optional
        bool: False hides; float: added to the scores, and it may need a gradient.
    dropout_p : float
        Drops weights by PyTorch's random generator.
    is_causal : bool
        Row i sees keys up to i, from the top left, or as `offset` says. Beside a mask,
        both act.
    window, offset, softcap, sink, gate, alibi, q_lens, kv_lens, variant
        As in `polyhead.attention`.
    extra : sequence of Tensor
        Tensors of the variant, in the order in which it lists them.
    return_lse : bool
        Also return the log-sum-exp of every row; gradients flow through it too.

    Returns
    -------
    Tensor, shape (..., heads, len, v_dim)
    """
    usual = (type(query) is type(key) is type(value) is Tensor and query.is_cpu
             and key.is_cpu and value.is_cpu and query.dtype is key.dtype is value.dtype
             and query.dtype in DTYPES)
    reason = None if usual else refusal(query, key, value)
    if reason is not None:
        ours = (window, offset, sink, gate, alibi, q_lens, kv_lens, variant)
        if not (softcap or extra or return_lse or any(x is not None for x in ours)):
            return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p,
                                                  is_causal, scale=scale,
                                                  enable_gqa=enable_gqa)
        if not on_one_gpu(query, key, value):
            raise Error(reason)
    q, k, v = query, key, value
    if not q.dim() == k.dim() == v.dim() == 4:
        q, k, v = as_four(query), as_four(key), as_four(value)
    if q.shape[0] != k.shape[0] or k.shape[0] != v.shape[0]:
        q, k, v = same_batch(q, k, v)
    optional: tuple = NONE
    if attn_mask is not None or not (sink is gate is alibi is q_lens is kv_lens is None):
        optional = optional_tensors(attn_mask, sink, gate, alibi, q_lens, kv_lens, k.shape[2],
                                    q.device)
    options = PLAIN
    if is_causal or scale or softcap or dropout_p or window or variant or offset is not None:
        options = Options(bool(is_causal), None if window is None else tuple(window),
                          0 if offset is None else offset, scale, softcap, dropout_p, variant)
    seed = torch.randint(2**62, (1,)) if dropout_p else None
    found = run(q, k, v, optional, extra, seed, options, return_lse)
    if query.dim() == 4 and not return_lse:
        return found
    out, lse = found if return_lse else (found, None)
    leading = query.shape[:-2]
    out = out.reshape(*leading, *out.shape[-2:])
    return (out, lse.reshape(*leading, lse.shape[-1])) if return_lse else out


def same_batch(q: Tensor, k: Tensor, v: Tensor) -> tuple:
    """Batches of 1 are repeated, without a copy."""
    batch = max(q.shape[0], k.shape[0], v.shape[0])
    return tuple(x.expand(batch, *x.shape[1:]) if x.shape[0] == 1 else x for x in (q, k, v))


def optional_tensors(attn_mask, sink, gate, alibi, q_lens, kv_lens, keys: int,
                     device: torch.device = CPU) -> tuple:
    """In the order of OPTIONAL."""
    check_constant("alibi", alibi)
    bias = visible = None
    if attn_mask is not None:
        check_plain("attn_mask", attn_mask, device)
        mask = unbroadcast(attn_mask, keys)
        if mask.dtype in (torch.bool, torch.uint8):
            # before PyTorch 2.13 vmap knows no view of another type
            visible = mask.to(torch.uint8) if is_transformed() else mask.view(torch.uint8)
        elif mask.is_floating_point():
            bias = mask.float()
        else:
            raise TypeError(f"attn_mask is {mask.dtype}, expected bool or floats")
    floats = (small(name, x, torch.float32, device)
              for name, x in (("sink", sink), ("gate", gate), ("alibi", alibi)))
    lengths = (small(name, x, torch.int32, device)
               for name, x in (("q_lens", q_lens), ("kv_lens", kv_lens)))
    return (bias, visible, *floats, *lengths)


# ---- looking -----------------------------------------------------------------------------

def look_at(q: Tensor, k: Tensor, optional: Sequence = NONE, options: Options = PLAIN,
            summaries: bool = False, top_k: int = 0) -> dict[str, Tensor]:
    """All weights, (batch, heads, q_len, kv_len), or summaries of O(T): column sums,
    entropies, the largest weights of each row and their keys."""
    q, k = q.detach(), k.detach()
    key = key_of(q, k, k, optional, options)
    _, lse = forward(q, k, k, optional, (), None, key, True)
    rows, keys = q.shape[:3], k.shape[2]
    if summaries:
        found = {"col_sum": torch.empty(*rows[:2], keys), "entropy": torch.empty(rows),
                 "top_weight": torch.empty(*rows, top_k),
                 "top_index": torch.empty(*rows, top_k, dtype=torch.int32)}
    else:
        found = {"weights": torch.empty(*rows, keys)}
    at = _c.LookAt(top_k=top_k, **{name: x.data_ptr() for name, x in found.items()})
    context = take(torch.get_num_threads())
    try:
        plan = plan_of(context, key, q, k, k, optional, (), False)
        plan.args.lse = lse.data_ptr()
        plan.look(context, at)
    finally:
        give(context)
    return found
