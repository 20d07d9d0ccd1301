"""Attention and layers under the transforms of `torch.func`: vmap, grad, vjp, jacrev.

vmap of attention makes the batch larger. Where a tensor without a batch axis is mapped or
needs a gradient of each element (sink, those of a variant), where dropout draws, and in
layers the elements run one after the other. Either way each gets the bits that it gets alone.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from ._context import Error
from ._plans import Options
from ._torch_attention import OPTIONAL, as_laid_out, flat, refuse_twice, spread

# Places among the tensors of a call: q, k, v, those of OPTIONAL, seed, the variant's.
BIAS, SINK, GATE, ALIBI = (3 + OPTIONAL.index(name)
                           for name in ("bias", "sink", "gate", "alibi"))
SEED = 3 + len(OPTIONAL)
LEARNED = (0, 1, 2, BIAS, SINK, GATE)  # and those of the variant


def places_of_gradients(count: int) -> list[int]:
    """In the order in which the library gives them."""
    return [*LEARNED, *range(SEED + 1, count)]


class Transformed(torch.autograd.Function):
    """`polyhead::attention` with the rules that transforms ask for."""

    @staticmethod
    def forward(options, *tensors):
        return torch.ops.polyhead.attention(*tensors[:SEED + 1], list(tensors[SEED + 1:]),
                                            *flat(Options(*options)))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.options = inputs[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output, *inputs[1:])

    @staticmethod
    def backward(ctx, dout, dlse):
        out, lse, *tensors = ctx.saved_tensors
        places = places_of_gradients(len(tensors))
        wanted = tuple(ctx.needs_input_grad[1 + place] for place in places)
        found = spread(Gradients.apply(ctx.options, wanted, dout, dlse, out, lse, *tensors),
                       wanted)
        by_place = dict(zip(places, found))
        return None, *[by_place.get(place) for place in range(len(tensors))]

    @staticmethod
    def jvp(ctx, *_):
        raise Error("attention is differentiated in forward mode, expected backward: "
                    "polyhead has no jvp")

    @staticmethod
    def vmap(info, in_dims, options, *tensors):
        dims, count = in_dims[1:], info.batch_size
        if foldable(Options(*options), dims, tensors, ()):
            found = Transformed.apply(options, *fold(dims, tensors, count, False))
            return unfolded(found, count)
        return one_by_one(lambda *each: Transformed.apply(options, *each), dims, tensors,
                          count)


class Gradients(torch.autograd.Function):
    """The backward pass, likewise."""

    @staticmethod
    def forward(options, wanted, dout, dlse, out, lse, *tensors):
        dout = torch.zeros_like(out) if dout is None else dout
        return tuple(torch.ops.polyhead.attention_backward(
            dout, dlse, *tensors[:3], as_laid_out(out), lse.contiguous(), *tensors[3:SEED + 1],
            list(tensors[SEED + 1:]), list(wanted), *flat(Options(*options))))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(refuse_twice)

    @staticmethod
    def vmap(info, in_dims, options, wanted, *given):
        count, dims, results = info.batch_size, in_dims[6:], given[:4]
        tensors = given[4:]
        if foldable(Options(*options), dims, tensors, wanted):
            results = [x if x is None else fold_one(x, dim, count)
                       for x, dim in zip(results, in_dims[2:6])]
            found = Gradients.apply(options, wanted, *results,
                                    *fold(dims, tensors, count, wanted[LEARNED.index(BIAS)]))
            return unfolded(found, count)
        return one_by_one(lambda *each: Gradients.apply(options, wanted, *each), in_dims[2:],
                          given, count)


# ---- layers ----------------------------------------------------------------------------------

class TransformedLayer(torch.autograd.Function):
    """`polyhead::layer` on x, memory, tensors of OPTIONAL, seed and parameters."""

    @staticmethod
    def forward(options, *tensors):
        x, memory, *rest = tensors
        others, params = rest[:len(OPTIONAL) + 1], rest[len(OPTIONAL) + 1:]
        return torch.ops.polyhead.layer(x, memory, params, *others, *options, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.options = inputs[0]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1], *inputs[1:])

    @staticmethod
    def backward(ctx, dout, _):
        saved, x, memory, *rest = ctx.saved_tensors
        found = LayerGradients.apply(ctx.options, dout, saved, x, memory, *rest)
        dx, *dparams = found
        dmemory = None if memory is None else dparams.pop(0)
        return None, dx, dmemory, *[None] * (len(OPTIONAL) + 1), *dparams

    jvp = Transformed.jvp

    @staticmethod
    def vmap(info, in_dims, options, *tensors):
        return one_by_one(lambda *each: TransformedLayer.apply(options, *each), in_dims[1:],
                          tensors, info.batch_size)


class LayerGradients(torch.autograd.Function):
    """The backward pass, likewise: gradients of x, memory and all parameters."""

    @staticmethod
    def forward(options, dout, saved, x, memory, *rest):
        others, params = rest[:len(OPTIONAL) + 1], rest[len(OPTIONAL) + 1:]
        return tuple(torch.ops.polyhead.layer_backward(dout, saved, x, memory, params,
                                                       *others, *options))

    setup_context, backward = Gradients.setup_context, Gradients.backward

    @staticmethod
    def vmap(info, in_dims, options, *tensors):
        return one_by_one(lambda *each: LayerGradients.apply(options, *each), in_dims[1:],
                          tensors, info.batch_size)


# ---- the mapped axis -----------------------------------------------------------------------

def rank(x: Tensor, dim: Optional[int]) -> int:
    return x.dim() - (dim is not None)


def batch_of(x: Tensor, dim: Optional[int]) -> int:
    """Length of the first axis that is not the mapped one."""
    return x.shape[1 if dim == 0 else 0]


def foldable(options: Options, dims: Sequence, tensors: Sequence,
             wanted: Sequence[bool]) -> bool:
    """Whether one call with a larger batch computes the same."""
    if options.dropout:  # its draws depend on the place in the batch
        return False
    gate = tensors[GATE]
    shared = [SINK, ALIBI, SEED, *range(SEED + 1, len(tensors))]
    if gate is not None and rank(gate, dims[GATE]) == 1:
        shared.append(GATE)
    learned = {place for place, one in zip(places_of_gradients(len(tensors)), wanted) if one}
    if any(dims[place] is not None or place in learned for place in shared):
        return False
    bias = tensors[BIAS]
    return BIAS not in learned or batch_of(bias, dims[BIAS]) == batch_of(tensors[0], dims[0])


def fold(dims: Sequence, tensors: Sequence, count: int, bias_is_learned: bool) -> list:
    """Every tensor that has a batch axis, with the mapped axis in it."""
    batch = batch_of(tensors[0], dims[0])
    folded = list(tensors)
    for place, (x, dim) in enumerate(zip(tensors, dims)):
        if x is None or place in (SINK, ALIBI) or place >= SEED \
                or (place == GATE and rank(x, dim) == 1):
            continue
        repeats = rank(x, dim) == 4 and place >= BIAS and batch_of(x, dim) == 1
        if repeats and dim is None and not (place == BIAS and bias_is_learned):
            continue  # a mask that all share
        if repeats:
            x = x.movedim(dim, 0) if dim is not None else x.expand(count, *x.shape)
            x, dim = x.expand(count, batch, *x.shape[2:]), 0
        folded[place] = fold_one(x, dim, count)
        if place >= BIAS:
            folded[place] = folded[place].contiguous()
    return folded


def fold_one(x: Tensor, dim: Optional[int], count: int) -> Tensor:
    if rank(x, dim) < 1:
        raise Error("a tensor of one element under vmap has no axis, expected a batch")
    x = x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
    x = x.flatten(0, 1)
    return x if x.stride(-1) == 1 else x.contiguous()  # the last axis may be the mapped one


def unfolded(found: Sequence[Tensor], count: int) -> tuple:
    """The results, and where their mapped axis is."""
    return tuple(x.unflatten(0, (count, x.shape[0] // count)) for x in found), (0,) * len(found)


def one_by_one(call: Any, dims: Sequence, tensors: Sequence, count: int) -> tuple:
    found = [call(*(x if dim is None else x.select(dim, i).contiguous()
                    for x, dim in zip(tensors, dims))) for i in range(count)]
    return tuple(torch.stack(each) for each in zip(*found)), (0,) * len(found[0])
